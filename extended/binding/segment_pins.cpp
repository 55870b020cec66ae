// Vouches for segments, and pins a small one as a whole. Puts, gets and atomics between pinned memory vouch
// for this rank's own segment; am/segment calls the functions for created segments, through Job.
#include "extended/binding/segment_pins.hpp"

#include "am/call/thread_state.hpp"
#include "am/exit/exit.hpp"
#include "am/job/job.hpp"
#include "am/progress/waiting.hpp"
#include "extended/binding/firehose_binding.hpp"
#include "firehose/base/config/knobs.hpp"
#include "firehose/base/log.hpp"

#include <atomic>

namespace hydrant {
namespace {

// The segment that vouch_own_segment() has vouched for.
constinit std::atomic<const hydrant_segment*> noted{nullptr};

// Pins a segment up to GASNET_M bytes as a whole, so that a request for part of it gets a firehose on
// all of it.
void pin_small_segment(const hydrant_segment& segment) noexcept {
  if (segment.size > knob_number(Knob::kGasnetM)) return;
  const hydrant_pin_t pin =
      hydrant_pin(firehose().domain, segment.addr, segment.size,
                  HYDRANT_LOCAL_WRITE | HYDRANT_REMOTE_WRITE | HYDRANT_REMOTE_READ);
  if (pin.region == nullptr)
    log_info("the segment is pinned where it is used, not whole: %s", hydrant_error_text());
}

}  // namespace

void vouch_segment(void* addr, size_t bytes) noexcept {
  (void)hydrant_vouch(firehose().domain, addr, bytes);
}

void forget_segment(void* addr, size_t bytes) noexcept {
  // Another segment may use the same structure.
  noted.store(nullptr, std::memory_order_relaxed);
  int code = hydrant_unvouch(firehose().domain, addr, bytes);
  Backoff backoff;
  while (code == GASNET_ERR_NOT_READY && handler_depth == 0 && !has_exit_grace_expired()) {
    backoff.polled(poll_all());
    code = hydrant_invalidate(firehose().domain, addr, bytes);
  }
}

void vouch_own_segment() noexcept {
  const hydrant_segment* segment = job().endpoint.segment;
  if (segment == noted.load(std::memory_order_relaxed)) return;
  noted.store(segment, std::memory_order_relaxed);
  if (segment == nullptr || job().segment_mode == kSegmentEverything) return;
  (void)hydrant_vouch(firehose().domain, segment->addr, segment->size);
  pin_small_segment(*segment);
}

}  // namespace hydrant
