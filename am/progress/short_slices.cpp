// Shortens the time slice of a thread that waits for other ranks, once per thread. The waits in waiting.cpp
// call it.
#include "am/progress/short_slices.hpp"

#include "firehose/base/machine/time_slice.hpp"
#include "rdma/config/job_knobs.hpp"

namespace hydrant {

void take_short_slices() noexcept {
  static constinit thread_local bool has_asked = false;
  if (has_asked) [[likely]]
    return;
  has_asked = true;
  const uint64_t slice_ns = knob_number(JobKnob::kTimeSlice);
  if (slice_ns != 0) shorten_time_slice(slice_ns);
}

}  // namespace hydrant
