// Translates addresses in segments that are mapped here, and has the kernel copy to and from all other memory
// of a peer. NodeMemoryAccess calls it for puts and gets, such as path `cma` of "Tour: a put".
#include "rdma/shm/memory/peer_memory.hpp"

#include "firehose/base/errno_text.hpp"
#include "firehose/base/log.hpp"
#include "rdma/config/job_knobs.hpp"

#include <cerrno>
#include <cstring>
#include <new>

namespace hydrant::shm {

PeerMemory::~PeerMemory() {
  for (uint32_t rank = 0; rank < ranks_; ++rank) {
    Segment* segment = peers_[rank].segments.load(std::memory_order_relaxed);
    while (segment != nullptr) {
      Segment* next = segment->next;
      delete segment;
      segment = next;
    }
  }
}

Status PeerMemory::init(NodeMemory& memory) noexcept {
  peers_.reset(new (std::nothrow) Peer[memory.node_size()]);
  if (peers_ == nullptr) return fail(Status::kResource, "no memory for a table of peers");
  memory_ = &memory;
  ranks_ = memory.node_size();
  if (knob_number(JobKnob::kCma) == 0) {
    for (uint32_t rank = 0; rank < ranks_; ++rank) {
      for (auto& forbidden : peers_[rank].forbidden)
        forbidden.store(true, std::memory_order_relaxed);
    }
    log_info("node rank %u: HYDRANT_CMA=n: memory that is not mapped is copied by its owner",
             memory.node_rank());
  } else if (!allow_cma()) {
    log_info(
        "node rank %u: kernel.yama.ptrace_scope keeps others from copying to and from this process",
        memory.node_rank());
  }
  return Status::kOk;
}

Status PeerMemory::add(uint32_t rank, uintptr_t address, size_t bytes, void* local) noexcept {
  if (bytes == 0 || address + bytes < address || local == nullptr) {
    return fail(Status::kBadArg, "a segment of %zu bytes at %#zx", bytes,
                static_cast<size_t>(address));
  }
  auto* segment =
      new (std::nothrow) Segment{address, bytes, static_cast<std::byte*>(local), nullptr};
  if (segment == nullptr) return fail(Status::kResource, "no memory for the entry of a segment");
  // The releases pair with the acquires in mapped().
  Segment* first = nullptr;
  if (peers_[rank].segments.compare_exchange_strong(first, segment, std::memory_order_release,
                                                    std::memory_order_acquire))
    return Status::kOk;
  Segment* second = first->next.load(std::memory_order_relaxed);
  do {
    segment->next.store(second, std::memory_order_relaxed);
  } while (!first->next.compare_exchange_weak(second, segment, std::memory_order_release,
                                              std::memory_order_relaxed));
  return Status::kOk;
}

void* PeerMemory::mapped(uint32_t rank, uintptr_t address, size_t bytes) const noexcept {
  const Segment* segment = peers_[rank].segments.load(std::memory_order_acquire);
  for (; segment != nullptr; segment = segment->next.load(std::memory_order_acquire)) {
    const size_t offset = address - segment->address;
    if (offset <= segment->bytes && bytes <= segment->bytes - offset)
      return segment->local + offset;
  }
  return nullptr;
}

// ---- the kernel copies ----

void PeerMemory::forbid(uint32_t rank, CopyDirection direction, const char* why) noexcept {
  if (peers_[rank].forbidden[static_cast<uint32_t>(direction)].exchange(true,
                                                                        std::memory_order_relaxed))
    return;
  log_info(
      "%s between node rank %u and node rank %u: %s; memory that is not mapped is copied by its "
      "owner",
      name_of(direction), memory_->node_rank(), rank, why);
}

Status PeerMemory::find_process(uint32_t rank, CopyDirection direction, uint32_t* pid) noexcept {
  const RankArea& peer = memory_->area(rank);
  if (peer.attached.load(std::memory_order_acquire) == 0) {
    return fail(Status::kUnsupported, "node rank %u has not attached yet", rank);
  }
  // A pid from another pid namespace would name another process.
  const auto ours =
      memory_->area(memory_->node_rank()).pid_namespace.load(std::memory_order_relaxed);
  if (ours == 0 || peer.pid_namespace.load(std::memory_order_relaxed) != ours) {
    forbid(rank, direction, "they live in different pid namespaces");
    return fail(Status::kUnsupported, "node rank %u lives in another pid namespace", rank);
  }
  *pid = peer.pid.load(std::memory_order_relaxed);
  return Status::kOk;
}

Status PeerMemory::explain(uint32_t rank, CopyDirection direction, uint32_t pid,
                           int error) noexcept {
  if (error == ESRCH) return fail(Status::kBroken, "node rank %u (pid %u) is gone", rank, pid);
  // EFAULT and ENOMEM concern this address alone.
  if (error == EPERM || error == ENOSYS || error == EACCES)
    forbid(rank, direction, errno_text(error));
  return fail(Status::kUnsupported, "%s, pid %u: %s", name_of(direction), pid, errno_text(error));
}

bool PeerMemory::copy_if_mapped(uint32_t rank, CopyDirection direction,
                                const MemoryAccess::Piece& piece) const noexcept {
  void* address = mapped(rank, piece.remote, piece.bytes);
  if (address == nullptr) return false;
  if (direction == CopyDirection::kToPeer) {
    std::memcpy(address, piece.local, piece.bytes);
  } else {
    std::memcpy(piece.local, address, piece.bytes);
  }
  return true;
}

Status PeerMemory::copy(uint32_t rank, CopyDirection direction,
                        std::span<const MemoryAccess::Piece> pieces) noexcept {
  while (!pieces.empty() && copy_if_mapped(rank, direction, pieces.front()))
    pieces = pieces.subspan(1);
  return pieces.empty() ? Status::kOk : copy_by_cma(rank, direction, pieces);
}

Status PeerMemory::copy_by_cma(uint32_t rank, CopyDirection direction,
                               std::span<const MemoryAccess::Piece> pieces) noexcept {
  if (peers_[rank].forbidden[static_cast<uint32_t>(direction)].load(std::memory_order_relaxed)) {
    return fail_literal(Status::kUnsupported, "the kernel may not copy to or from this rank");
  }
  uint32_t pid = 0;
  if (const Status found = find_process(rank, direction, &pid); found != Status::kOk) return found;
  CmaCopy kernel(pid, direction);
  int error = kernel.add(pieces.front());
  for (const MemoryAccess::Piece& piece : pieces.subspan(1)) {
    if (error != 0) break;
    if (!copy_if_mapped(rank, direction, piece)) error = kernel.add(piece);
  }
  if (error == 0) error = kernel.finish();
  return error == 0 ? Status::kOk : explain(rank, direction, pid, error);
}

}  // namespace hydrant::shm
