#include "am/progress/time_slice.hpp"

#include "rdma/config/job_knobs.hpp"

#include <cerrno>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace hydrant {
namespace {

// The first version of the kernel's struct sched_attr, which not every C library declares.
struct Attributes {
  uint32_t size = sizeof(Attributes);
  uint32_t policy = 0;
  uint64_t flags = 0;
  int32_t nice = 0;
  uint32_t priority = 0;
  uint64_t runtime_ns = 0;  // under SCHED_OTHER the slice, from Linux 6.12 on; 0 before
  uint64_t deadline_ns = 0;
  uint64_t period_ns = 0;
};

bool read_attributes(Attributes* attributes) noexcept {
  return syscall(SYS_sched_getattr, 0, attributes, sizeof *attributes, 0) == 0;
}

void shorten_slice(uint64_t slice_ns) noexcept {
  const int kept = errno;
  Attributes attributes;
  if (read_attributes(&attributes) && attributes.policy == SCHED_OTHER &&
      attributes.runtime_ns > slice_ns) {
    attributes.size = sizeof attributes;
    attributes.runtime_ns = slice_ns;
    (void)syscall(SYS_sched_setattr, 0, &attributes, 0);
  }
  errno = kept;
}

}  // namespace

void take_short_slices() noexcept {
  static constinit thread_local bool has_asked = false;
  if (has_asked) [[likely]]
    return;
  has_asked = true;
  const uint64_t slice_ns = knob_number(JobKnob::kTimeSlice);
  if (slice_ns != 0) shorten_slice(slice_ns);
}

uint64_t time_slice_ns() noexcept {
  Attributes attributes;
  return read_attributes(&attributes) ? attributes.runtime_ns : 0;
}

}  // namespace hydrant
