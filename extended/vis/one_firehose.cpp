// Decides whether the memory around a strided transfer's pieces is worth a firehose. Asked before pieces are
// posted (vis_transfer.cpp), and when a persistent operation is made.
#include "extended/vis/one_firehose.hpp"

#include "am/job/job.hpp"
#include "am/segment/segments.hpp"
#include "extended/rma/common/rma_path.hpp"
#include "extended/rma/pinned/rma_pinned.hpp"

namespace hydrant {
namespace {

constexpr size_t kMaxBytes = size_t{4} << 20;
constexpr size_t kMaxShare = 4;  // of the box, for each byte of the pieces

}  // namespace

void request_one_firehose(const VisTransfer& what) noexcept {
  if (what.grids == nullptr || what.peer == job().rank() || !paths(what.peer).pinned) return;
  const size_t pieces = (what.is_put() ? what.dest : what.source)->count;
  const MemoryRange& box = what.peer_box;
  if (pieces < 2 || box.len > kMaxBytes || box.len / kMaxShare > what.bytes) return;
  SegmentAddress segment;
  if (find_segment(what.peer, &segment, false) != Status::kOk || segment.size == 0 ||
      !segment.holds(box.addr, box.len))
    return;
  // The pieces report errors.
  (void)prefetch(what.peer, box.addr, box.len);
}

}  // namespace hydrant
