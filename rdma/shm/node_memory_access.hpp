// The memory of a node's ranks: blocks in the node's memory, segments that are mapped here, and all else,
// which the kernel copies (memory/peer_memory.hpp). Of other ranks it reaches nothing.
//
// Threads: any.
#pragma once

#include "rdma/shm/connections.hpp"
#include "rdma/shm/memory/node_memory.hpp"
#include "rdma/shm/memory/peer_memory.hpp"
#include "rdma/shm/node_index.hpp"
#include "rdma/transport/memory_access.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace hydrant::shm {

class NodeMemoryAccess final : public MemoryAccess {
 public:
  NodeMemoryAccess(NodeMemory& memory, const Connections& connections) noexcept
      : memory_(memory), connections_(connections) {}
  // Errors: kResource.
  Status init(const NodeIndex& index) noexcept {
    index_ = index;
    return peers_.init(memory_);
  }

  std::byte* shared_block(Rank peer) const noexcept override;
  std::byte* start_block(Rank peer) const noexcept override;
  std::byte* collective_blocks(Rank peer) const noexcept override;
  Status reserve_collective_block(uint32_t block) noexcept override;
  Status add_segment(Rank peer, uintptr_t peer_addr, size_t bytes, void* local) noexcept override;
  void* mapped(Rank peer, uintptr_t addr, size_t bytes) const noexcept override;
  Status write(Rank peer, uintptr_t dest, const void* source, size_t bytes) noexcept override;
  Status put(Rank peer, uintptr_t remote, const void* local, size_t bytes,
             Completion* completion) noexcept override;
  Status get(Rank peer, uintptr_t remote, void* local, size_t bytes,
             Completion* completion) noexcept override;
  Status put_pieces(Rank peer, std::span<const Piece> pieces) noexcept override;
  Status get_pieces(Rank peer, std::span<const Piece> pieces) noexcept override;

 private:
  Status copy(Rank peer, CopyDirection direction, std::span<const Piece> pieces) noexcept;

  NodeMemory& memory_;
  NodeIndex index_;
  const Connections& connections_;
  PeerMemory peers_;
};

}  // namespace hydrant::shm
