// Reads and shortens the calling thread's time slice by sched_getattr(2) and sched_setattr(2). The reader
// thread of the monitor and am/progress/short_slices.cpp call it.
#include "firehose/base/machine/time_slice.hpp"

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

bool read_attributes(int thread, Attributes* attributes) noexcept {
  return syscall(SYS_sched_getattr, thread, attributes, sizeof *attributes, 0) == 0;
}

}  // namespace

void shorten_time_slice(uint64_t ns) noexcept {
  const int kept = errno;
  Attributes attributes;
  if (read_attributes(0, &attributes) && attributes.policy == SCHED_OTHER &&
      attributes.runtime_ns > ns) {
    attributes.size = sizeof attributes;
    attributes.runtime_ns = ns;
    (void)syscall(SYS_sched_setattr, 0, &attributes, 0);
  }
  errno = kept;
}

uint64_t time_slice_ns(int thread) noexcept {
  Attributes attributes;
  return read_attributes(thread, &attributes) ? attributes.runtime_ns : 0;
}

}  // namespace hydrant
