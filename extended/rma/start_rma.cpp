// Starts puts and gets: the pin cache, the hooks for Longs and segments, the paths, and the handlers.
// start_extended() (extended/start.cpp) calls it.
#include "am/job/job.hpp"
#include "extended/binding/firehose_binding.hpp"
#include "extended/binding/segment_pins.hpp"
#include "extended/rma/common/rma_path.hpp"
#include "extended/rma/long_payload.hpp"
#include "extended/rma/paths/bounce_pool.hpp"
#include "extended/rma/paths/rma_messages.hpp"
#include "extended/rma/pinned/rma_pinned.hpp"
#include "extended/rma/rma.hpp"
#include "rdma/config/job_knobs.hpp"

namespace hydrant {

Status start_rma() noexcept {
  start_pinned_transfers();
  if (is_firehose_enabled()) {
    job().hooks.put_long = put_long_payload;
    job().hooks.segment_memory_begins = vouch_segment;
    job().hooks.segment_memory_ends = forget_segment;
    if (knob_number(JobKnob::kAmLongPrealloc) != 0) (void)bounce_buffer_bytes();
  }
  if (const Status status = choose_paths(); status != Status::kOk) return status;
  add_rma_handlers();
  add_firehose_handlers();
  return Status::kOk;
}

}  // namespace hydrant
