// Chooses and takes the path of vector, indexed and strided transfers. Called for all that vis_calls.cpp's
// short way does not copy.
#include "extended/vis/vis_transfer.hpp"

#include "am/job/job.hpp"
#include "am/trace/trace_points.hpp"
#include "extended/binding/firehose_binding.hpp"
#include "extended/event/wait.hpp"
#include "extended/rma/common/copy.hpp"
#include "extended/rma/common/count_pieces.hpp"
#include "extended/rma/common/rma_thread.hpp"
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

// The index of a path in counts and names.
size_t index_of(VisPath path) noexcept {
  return static_cast<size_t>(path == VisPath::kKernel ? VisPath::kPieces : path);
}

void count_vis(RmaThread& thread, const VisTransfer& what, VisPath path) noexcept {
  PathCounts& counts = thread.vis_counts[static_cast<size_t>(what.direction)][index_of(path)];
  counts.ops += 1;
  counts.bytes += what.bytes;
  if (is_tracing()) [[unlikely]]
    trace_transfer(what.is_put(), what.peer, vis_path_name(path), what.bytes);
}

bool is_self(const VisTransfer& what) noexcept { return what.peer == job().rank(); }

// Decides how the pieces from `first` on move, which is the peer's.
VisPath choose_vis_path(RmaThread& thread, const VisTransfer& what, const Piece& first) noexcept {
  const PathChoices& allowed = paths(what.peer);
  const bool is_mapped = (is_self(what) ? allowed.self : allowed.mapped) &&
                         mapped_here(thread, what.peer, first.addr, first.bytes) != nullptr;
  if (is_mapped && choices.copies) return VisPath::kCopied;
  if (!choices.pieces) return VisPath::kPackets;
  if (is_self(what) && allowed.self) return VisPath::kPieces;
  if (allowed.cma && !is_mapped) return VisPath::kKernel;
  const size_t pieces = std::max(what.dest->count, what.source->count);
  return choices.packets && pieces > 1 && what.bytes / pieces <= choices.packet_max
             ? VisPath::kPackets
             : VisPath::kPieces;
}

// The memory that this thread knows to be mapped; all of it for this rank itself.
Shifts known_memory(const RmaThread& thread, const VisTransfer& what) noexcept {
  if (is_self(what)) return Shifts::of({1, UINTPTR_MAX}, 0, what.is_put());
  const KnownPeer& known = thread.peer(what.peer);
  return Shifts::of({known.addr, known.size}, known.shift, what.is_put());
}

// Moves the cursors behind the pieces at the front that are mapped here, which it copies.
void copy_mapped_front(RmaThread& thread, const VisTransfer& what, Cursor& dest,
                       Cursor& source) noexcept {
  if (what.grids != nullptr) {
    const MemoryRange& box = what.peer_box;
    if (const std::byte* here = mapped_here(thread, what.peer, box.addr, box.len);
        here != nullptr) {
      const auto shift = static_cast<intptr_t>(reinterpret_cast<uintptr_t>(here) - box.addr);
      copy_grid(*what.grids, what.is_put() ? shift : 0, what.is_put() ? 0 : shift);
      dest.seek({what.dest->count, 0});
      return;
    }
  } else {
    const ListPositions at = copy_list(*what.dest, *what.source, known_memory(thread, what));
    dest.seek(at.dest);
    source.seek(at.source);
  }
  // Pieces that are cut differently on both sides, and created segments.
  walk(dest, source, [&](uintptr_t to, uintptr_t from, size_t bytes) {
    void* here = mapped_here(thread, what.peer, what.is_put() ? to : from, bytes);
    if (here == nullptr) return false;
    copy_bytes(what.is_put() ? here : reinterpret_cast<void*>(to),
               what.is_put() ? reinterpret_cast<const void*>(from) : here, bytes);
    return true;
  });
}

// Collects puts or gets of single pieces, and starts them in lists.
class PieceList {
 public:
  PieceList(RmaThread& thread, const VisTransfer& what, VisPath path,
            CompletionCounter& counter) noexcept
      : thread_(thread), what_(what), path_(path), counter_(counter) {}

  Status add(uintptr_t dest, uintptr_t source, size_t bytes) noexcept {
    void* const to = reinterpret_cast<void*>(dest);
    void* const from = reinterpret_cast<void*>(source);
    ops_[count_++] = {what_.peer, what_.is_put() ? to : from, what_.is_put() ? from : to, bytes};
    return count_ == ops_.size() ? start() : Status::kOk;
  }
  Status start() noexcept {
    const std::span<const hydrant_rma_op_t> ops = std::span(ops_).first(count_);
    count_ = 0;
    size_t started = ops.size();
    Status status = Status::kUnsupported;
    if (path_ == VisPath::kKernel && ops.size() > 1)
      status = copy_by_kernel(thread_, ops, what_.direction);
    if (status == Status::kUnsupported)
      status = start_each(thread_, ops, what_.direction, {what_.source_may_change, what_.immediate},
                          counter_, &started);
    for (const hydrant_rma_op_t& op : ops.first(started)) moved_bytes_ += op.bytes;
    return status;
  }
  // The bytes at the front that have been started.
  size_t moved_bytes() const noexcept { return moved_bytes_; }

 private:
  RmaThread& thread_;
  const VisTransfer& what_;
  const VisPath path_;
  CompletionCounter& counter_;
  size_t moved_bytes_ = 0;
  size_t count_ = 0;
  std::array<hydrant_rma_op_t, kMaxTogether> ops_;
};

Status transfer_in_pieces(RmaThread& thread, const VisTransfer& what, VisPath path, Cursor& dest,
                          Cursor& source, CompletionCounter& counter) noexcept {
  request_one_firehose(what);
  const Position dest_start = dest.position();
  const Position source_start = source.position();
  PieceList list(thread, what, path, counter);
  Status status = Status::kOk;
  walk(dest, source, [&](uintptr_t to, uintptr_t from, size_t bytes) {
    status = list.add(to, from, bytes);
    return status == Status::kOk;
  });
  if (status == Status::kOk) status = list.start();
  if (status == Status::kNotReady && (list.moved_bytes() != 0 || has_begun(what, dest_start))) {
    dest.seek(dest_start);
    source.seek(source_start);
    skip_bytes(dest, list.moved_bytes());
    skip_bytes(source, list.moved_bytes());
    status = finish_in_polls(thread, what, dest.position(), source.position(), counter);
  }
  if (status == Status::kOk) count_vis(thread, what, VisPath::kPieces);
  return status;
}

}  // namespace

const char* vis_path_name(VisPath path) noexcept {
  constexpr const char* kNames[RmaThread::kVisPaths] = {"copied", "pieces", "packets"};
  return kNames[index_of(path)];
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
  const Cursor& peers = what.is_put() ? dest : source;
  VisPath path = choose_vis_path(*thread, what, peers.rest());
  if (path == VisPath::kCopied) {
    copy_mapped_front(*thread, what, dest, source);
    if (dest.at_end()) {
      count_vis(*thread, what, VisPath::kCopied);
      return Status::kOk;
    }
    path = choose_vis_path(*thread, what, peers.rest());
  }
  Status status = Status::kUnsupported;
  if (path == VisPath::kPackets) {
    status = transfer_in_packets(*thread, what, dest.position(), source.position(), counter);
    if (status == Status::kOk) count_vis(*thread, what, VisPath::kPackets);
  }
  if (status == Status::kUnsupported)
    status = transfer_in_pieces(*thread, what, path, dest, source, counter);
  const bool is_over = is_self(what) || paths(what.peer).cma;
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
