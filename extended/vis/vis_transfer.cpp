// Chooses and takes the path of vector, indexed and strided transfers. Called for all that vis_calls.cpp's
// short way does not copy.
#include "extended/vis/vis_transfer.hpp"

#include "am/job/job.hpp"
#include "am/trace/trace_points.hpp"
#include "extended/binding/firehose_binding.hpp"
#include "extended/event/wait.hpp"
#include "extended/rma/common/copy.hpp"
#include "extended/rma/common/rma_thread.hpp"
#include "extended/rma/paths/rma_messages.hpp"
#include "extended/rma/rma_many.hpp"
#include "extended/vis/copy_grid.hpp"
#include "extended/vis/copy_list.hpp"
#include "extended/vis/one_firehose.hpp"
#include "extended/vis/packets.hpp"
#include "rdma/config/job_knobs.hpp"

#include <array>
#include <span>

namespace hydrant {
namespace {

// Constant once the job is wired.
struct VisChoices {
  bool copies = true;
  bool packets = true;
  bool pieces = true;
  size_t packet_max = 0;  // bytes per piece
};
constinit VisChoices choices;

void count_vis(RmaThread& thread, const VisTransfer& what, VisPath path) noexcept {
  PathCounts& counts =
      thread.vis_counts[static_cast<size_t>(what.direction)][static_cast<size_t>(path)];
  counts.ops += 1;
  counts.bytes += what.bytes;
  if (is_tracing()) [[unlikely]]
    trace_transfer(what.is_put(), what.peer, vis_path_name(path), what.bytes);
}

bool copies_with(const VisTransfer& what) noexcept {
  if (!choices.copies) return false;
  return what.peer == job().rank() ? paths().self : paths(what.peer).mapped;
}

bool copy_grids(RmaThread& thread, const VisTransfer& what) noexcept {
  const MemoryRange& box = what.peer_box;
  const std::byte* here = mapped_here(thread, what.peer, box.addr, box.len);
  if (here == nullptr) return false;
  const auto shift = static_cast<intptr_t>(reinterpret_cast<uintptr_t>(here) - box.addr);
  copy_grid(*what.grids, what.is_put() ? shift : 0, what.is_put() ? 0 : shift);
  return true;
}

// The memory that this thread knows to be mapped; all of it for this rank itself.
Shifts known_memory(const RmaThread& thread, const VisTransfer& what) noexcept {
  if (what.peer == job().rank()) return Shifts::of({1, UINTPTR_MAX}, 0, what.is_put());
  const KnownPeer& known = thread.peer(what.peer);
  return Shifts::of({known.addr, known.size}, known.shift, what.is_put());
}

// Collects puts or gets of single pieces, and starts them in lists.
class PieceList {
 public:
  PieceList(RmaThread& thread, const VisTransfer& what, CompletionCounter& counter) noexcept
      : thread_(thread), what_(what), counter_(counter) {}

  Status add(uintptr_t dest, uintptr_t source, size_t bytes) noexcept {
    const uintptr_t remote = what_.is_put() ? dest : source;
    const uintptr_t local = what_.is_put() ? source : dest;
    if (copies_) {
      if (void* here = mapped_here(thread_, what_.peer, remote, bytes); here != nullptr) {
        if (what_.is_put())
          copy_bytes(here, reinterpret_cast<const void*>(local), bytes);
        else
          copy_bytes(reinterpret_cast<void*>(local), here, bytes);
        has_copied_ = true;
        added_bytes_ += bytes;
        return Status::kOk;
      }
    }
    ops_[count_++] = {what_.peer, reinterpret_cast<void*>(remote), reinterpret_cast<void*>(local),
                      bytes};
    added_bytes_ += bytes;
    return count_ == ops_.size() ? start() : Status::kOk;
  }
  Status start() noexcept {
    const std::span<const hydrant_rma_op_t> ops = std::span(ops_).first(count_);
    count_ = 0;
    size_t started = 0;
    Status status = Status::kOk;
    if (!ops.empty())
      status = start_many(ops, what_.direction, {what_.source_may_change, what_.immediate},
                          counter_, &started);
    has_started_ |= started != 0;
    if (status == Status::kOk) {
      moved_bytes_ = added_bytes_;
    } else {
      for (const hydrant_rma_op_t& op : ops.first(started)) moved_bytes_ += op.bytes;
    }
    return status;
  }
  // False: all pieces were mapped here.
  bool has_started() const noexcept { return has_started_; }
  bool has_begun() const noexcept { return has_started_ || has_copied_; }
  // All bytes before this one have been started or copied, and perhaps some behind it.
  size_t moved_bytes() const noexcept { return moved_bytes_; }

 private:
  RmaThread& thread_;
  const VisTransfer& what_;
  CompletionCounter& counter_;
  const bool copies_ = copies_with(what_);
  bool has_started_ = false;
  bool has_copied_ = false;
  size_t added_bytes_ = 0;
  size_t moved_bytes_ = 0;
  size_t count_ = 0;
  std::array<hydrant_rma_op_t, 128> ops_;
};

Status transfer_in_pieces(RmaThread& thread, const VisTransfer& what, Cursor& dest, Cursor& source,
                          CompletionCounter& counter) noexcept {
  request_one_firehose(what);
  const Position dest_start = dest.position();
  const Position source_start = source.position();
  PieceList list(thread, what, counter);
  Status status = Status::kOk;
  walk(dest, source, [&](uintptr_t to, uintptr_t from, size_t bytes) {
    status = list.add(to, from, bytes);
    return status == Status::kOk;
  });
  if (status == Status::kOk) status = list.start();
  if (status == Status::kNotReady && (list.has_begun() || has_begun(what, dest_start))) {
    dest.seek(dest_start);
    source.seek(source_start);
    skip_bytes(dest, list.moved_bytes());
    skip_bytes(source, list.moved_bytes());
    status = finish_in_polls(thread, what, dest.position(), source.position(), counter);
  }
  if (status == Status::kOk)
    count_vis(thread, what, list.has_started() ? VisPath::kPieces : VisPath::kCopied);
  return status;
}

bool prefers_packets(const VisTransfer& what) noexcept {
  if (!choices.packets) return false;
  if (!choices.pieces) return true;
  if (paths(what.peer).cma || (what.peer == job().rank() && paths().self)) return false;
  const size_t pieces = std::max(what.dest->count, what.source->count);
  return pieces > 1 && what.bytes / pieces <= choices.packet_max;
}

}  // namespace

const char* vis_path_name(VisPath path) noexcept {
  constexpr const char* kNames[kVisPaths] = {"copied", "pieces", "packets"};
  return kNames[static_cast<size_t>(path)];
}

Status start_vis(const VisTransfer& what, CompletionCounter& counter) noexcept {
  RmaThread* thread = RmaThread::mine();
  if (thread == nullptr || !thread->has_peers()) [[unlikely]]
    return fail(Status::kResource, "no memory for a thread's state of puts and gets");
  if (counter.thread != thread) counter.thread = thread;
  if (what.immediate) {
    if (!are_exports_settled() || !has_room(*thread, counter)) return Status::kNotReady;
  } else {
    settle_exports();
  }
  Cursor dest(*what.dest);
  Cursor source(*what.source);
  if (copies_with(what)) {
    if (what.grids != nullptr) {
      if (copy_grids(*thread, what)) {
        count_vis(*thread, what, VisPath::kCopied);
        return Status::kOk;
      }
    } else {
      const Piece first = (what.is_put() ? dest : source).rest();
      // Finds out what is mapped, at a thread's first use of this peer.
      (void)mapped_here(*thread, what.peer, first.addr, first.bytes);
      const ListPositions at = copy_list(*what.dest, *what.source, known_memory(*thread, what));
      dest.seek(at.dest);
      source.seek(at.source);
    }
  }
  if (dest.at_end()) {
    count_vis(*thread, what, VisPath::kCopied);
    return Status::kOk;
  }
  Status status = Status::kUnsupported;
  if (prefers_packets(what)) {
    const Piece first = what.is_put() ? dest.rest() : source.rest();
    const bool is_mapped =
        copies_with(what) && mapped_here(*thread, what.peer, first.addr, first.bytes) != nullptr;
    if (!is_mapped) {
      status = transfer_in_packets(*thread, what, dest.position(), source.position(), counter);
      if (status == Status::kOk) count_vis(*thread, what, VisPath::kPackets);
    }
  }
  if (status == Status::kUnsupported)
    status = transfer_in_pieces(*thread, what, dest, source, counter);
  const bool is_over = what.peer == job().rank() || paths(what.peer).cma;
  if (is_over && !what.immediate) poll_now_and_then();
  return status;
}

void start_vis_paths() noexcept {
  const std::string_view forced = knob_choice(JobKnob::kVisPath);
  choices = {.copies = forced == "auto",
             .packets = forced != "pieces",
             .pieces = forced != "packets",
             .packet_max = knob_number(JobKnob::kVisPacketMax)};
}

}  // namespace hydrant
