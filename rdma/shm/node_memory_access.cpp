// Reads and writes the memory of a node's ranks. Called for puts, gets and Longs within the node, and for the
// shared blocks of barriers and collectives.
#include "rdma/shm/node_memory_access.hpp"

namespace hydrant::shm {

std::byte* NodeMemoryAccess::shared_block(Rank peer) const noexcept {
  const uint32_t index = index_.of(peer);
  return index < index_.size ? memory_.area(index).barrier : nullptr;
}

std::byte* NodeMemoryAccess::start_block(Rank peer) const noexcept {
  const uint32_t index = index_.of(peer);
  return index < index_.size ? memory_.area(index).start : nullptr;
}

std::byte* NodeMemoryAccess::collective_blocks(Rank peer) const noexcept {
  const uint32_t index = index_.of(peer);
  return index < index_.size ? memory_.collective_blocks(index) : nullptr;
}

Status NodeMemoryAccess::reserve_collective_block(uint32_t block) noexcept {
  return memory_.reserve_collective_block(memory_.node_rank(), block);
}

Status NodeMemoryAccess::add_segment(Rank peer, uintptr_t peer_addr, size_t bytes,
                                     void* local) noexcept {
  const uint32_t index = index_.of(peer);
  if (index >= index_.size) return fail(Status::kBadArg, "rank %u is not on this node", peer);
  return peers_.add(index, peer_addr, bytes, local);
}

void* NodeMemoryAccess::mapped(Rank peer, uintptr_t addr, size_t bytes) const noexcept {
  const uint32_t index = index_.of(peer);
  return index < index_.size ? peers_.mapped(index, addr, bytes) : nullptr;
}

Status NodeMemoryAccess::copy(Rank peer, CopyDirection direction,
                              std::span<const Piece> pieces) noexcept {
  const uint32_t index = index_.of(peer);
  if (index >= index_.size)
    return fail_literal(Status::kUnsupported, "a rank of another node shares no memory");
  if (index != memory_.node_rank() && !connections_.is_connected(index))
    return fail(Status::kBroken, "rank %u is gone", peer);
  return peers_.copy(index, direction, pieces);
}

Status NodeMemoryAccess::write(Rank peer, uintptr_t dest, const void* source,
                               size_t bytes) noexcept {
  return put(peer, dest, source, bytes, nullptr);
}

Status NodeMemoryAccess::put(Rank peer, uintptr_t remote, const void* local, size_t bytes,
                             Completion* /*completion*/) noexcept {
  const Piece piece = {.local = const_cast<void*>(local), .remote = remote, .bytes = bytes};
  return copy(peer, CopyDirection::kToPeer, {&piece, 1});
}

Status NodeMemoryAccess::get(Rank peer, uintptr_t remote, void* local, size_t bytes,
                             Completion* /*completion*/) noexcept {
  const Piece piece = {.local = local, .remote = remote, .bytes = bytes};
  return copy(peer, CopyDirection::kFromPeer, {&piece, 1});
}

Status NodeMemoryAccess::put_pieces(Rank peer, std::span<const Piece> pieces) noexcept {
  return copy(peer, CopyDirection::kToPeer, pieces);
}

Status NodeMemoryAccess::get_pieces(Rank peer, std::span<const Piece> pieces) noexcept {
  return copy(peer, CopyDirection::kFromPeer, pieces);
}

}  // namespace hydrant::shm
