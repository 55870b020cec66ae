#include "rdma/shm/peer_memory.hpp"

#include "firehose/base/errno_text.hpp"

#include <cerrno>
#include <new>
#include <sys/uio.h>

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
  return Status::kOk;
}

Status PeerMemory::add(uint32_t rank, uintptr_t address, size_t bytes, void* local) noexcept {
  if (bytes == 0 || address + bytes < address || local == nullptr) {
    return fail(Status::kBadArg, "a segment of %zu bytes at %#zx", bytes,
                static_cast<size_t>(address));
  }
  auto* segment =
      new (std::nothrow) Segment{address, bytes, static_cast<std::byte*>(local), nullptr};
  if (segment == nullptr) return fail(Status::kResource, "no memory to remember a segment");
  auto& head = peers_[rank].segments;
  segment->next = head.load(std::memory_order_relaxed);
  // Pairs with the acquire in mapped().
  while (!head.compare_exchange_weak(segment->next, segment, std::memory_order_release,
                                     std::memory_order_relaxed)) {
  }
  return Status::kOk;
}

void* PeerMemory::mapped(uint32_t rank, uintptr_t address, size_t bytes) const noexcept {
  const Segment* segment = peers_[rank].segments.load(std::memory_order_acquire);
  for (; segment != nullptr; segment = segment->next) {
    const size_t offset = address - segment->address;
    if (offset <= segment->bytes && bytes <= segment->bytes - offset)
      return segment->local + offset;
  }
  return nullptr;
}

Status PeerMemory::find_process(uint32_t rank, uint32_t* pid) noexcept {
  const RankArea& peer = memory_->area(rank);
  if (peer.attached.load(std::memory_order_acquire) == 0) {
    return fail(Status::kUnsupported, "node rank %u has not attached yet", rank);
  }
  // A number from another pid namespace would name somebody else.
  const auto ours =
      memory_->area(memory_->node_rank()).pid_namespace.load(std::memory_order_relaxed);
  if (ours == 0 || peer.pid_namespace.load(std::memory_order_relaxed) != ours) {
    peers_[rank].forbidden.store(true, std::memory_order_relaxed);
    return fail(Status::kUnsupported, "node rank %u lives in another pid namespace", rank);
  }
  *pid = peer.pid.load(std::memory_order_relaxed);
  return Status::kOk;
}

Status PeerMemory::write(uint32_t rank, uintptr_t dest, const void* source, size_t bytes) noexcept {
  if (peers_[rank].forbidden.load(std::memory_order_relaxed)) {
    return fail_plainly(Status::kUnsupported, "process_vm_writev to this rank is forbidden");
  }
  uint32_t pid = 0;
  const Status found = find_process(rank, &pid);
  if (found != Status::kOk) return found;
  auto from = reinterpret_cast<uintptr_t>(source);
  while (bytes != 0) {
    const iovec local{reinterpret_cast<void*>(from), bytes};
    const iovec remote{reinterpret_cast<void*>(dest), bytes};
    const ssize_t done = process_vm_writev(static_cast<pid_t>(pid), &local, 1, &remote, 1, 0);
    if (done > 0) {
      from += static_cast<size_t>(done);
      dest += static_cast<size_t>(done);
      bytes -= static_cast<size_t>(done);
      continue;
    }
    if (done < 0 && errno == EINTR) continue;
    const int error = done < 0 ? errno : EFAULT;
    if (error == ESRCH) return fail(Status::kBroken, "node rank %u (pid %u) is gone", rank, pid);
    // EFAULT and ENOMEM are about this address alone.
    if (error == EPERM || error == ENOSYS || error == EACCES) {
      peers_[rank].forbidden.store(true, std::memory_order_relaxed);
    }
    return fail(Status::kUnsupported, "process_vm_writev to pid %u: %s", pid, errno_text(error));
  }
  return Status::kOk;
}

}  // namespace hydrant::shm
