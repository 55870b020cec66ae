// The memory that the ranks of a node share: one memfd, created by one process, inherited or received by the
// others, and mapped by all. It has no name in a file system, so nothing is left when the last process exits.
//
// The file is as long as its layout, and most of it is a hole: a range is reserved before its first access.
#pragma once

#include "firehose/base/kept_descriptor.hpp"
#include "rdma/shm/memory/node_layout.hpp"
#include "rdma/shm/memory/page_reserver.hpp"

#include <cstddef>
#include <cstdint>

namespace hydrant::shm {

class NodeMemory {
 public:
  NodeMemory() = default;
  ~NodeMemory();
  NodeMemory(const NodeMemory&) = delete;
  NodeMemory& operator=(const NodeMemory&) = delete;

  // Creates the memory of a node with `node_size` ranks. *fd is close-on-exec and belongs to the caller.
  // Errors: kBadArg: 0 ranks, or more than kMaxNodeRanks; kResource, with needed and available bytes.
  static Status create(uint32_t node_size, int* fd) noexcept;

  // Maps the memory and enters this process as node rank `node_rank`. Keeps a copy of `fd`.
  // Errors: kBadArg: no such rank; kBroken: not such a file, or another version; kResource.
  Status attach(int fd, uint32_t node_rank) noexcept;
  void detach() noexcept;

  uint32_t node_size() const noexcept { return ranks_; }
  uint32_t node_rank() const noexcept { return rank_; }

  // All functions below require an attached memory.
  RankArea& area(uint32_t node_rank) const noexcept {
    return *at<RankArea>(layout_.area(node_rank));
  }
  // For collectives, zero at first; see Transport.
  std::byte* collective_blocks(uint32_t node_rank) const noexcept {
    return base_ + layout_.collectives(node_rank);
  }

  RingControl& control(uint32_t from, uint32_t to, Lane lane) const noexcept {
    return *at<RingControl>(layout_.control(from, to, lane));
  }
  std::byte* lines(uint32_t from, uint32_t to, Lane lane) const noexcept {
    return base_ + layout_.lines(from, to, lane);
  }
  CellReceipt& receipt(uint32_t from, Lane lane, uint32_t cell) const noexcept {
    return *at<CellReceipt>(layout_.receipt(from, lane, cell));
  }
  std::byte* cell(uint32_t from, Lane lane, uint32_t index) const noexcept {
    return base_ + layout_.cell(from, lane, index);
  }

  // Reserves a block; called by the rank that it belongs to before the other ranks learn of it.
  Status reserve_collective_block(uint32_t node_rank, uint32_t block) noexcept;
  // The rank that reserves memory. kTheirs makes sure, before the first access here, that the other rank has
  // done so, and then allocates nothing: a corrupt rank causes an error instead of SIGBUS.
  enum class Owner : bool { kOurs, kTheirs };
  // Reserves a ring, before its first use. A ring of requests is its writer's, one of replies its reader's.
  Status reserve_ring(uint32_t from, uint32_t to, Lane lane, Owner owner = Owner::kOurs) noexcept;
  // Reserves the chunk that `cell` belongs to, and the receipts; they are the sender's.
  Status reserve_cells(uint32_t from, Lane lane, uint32_t cell,
                       Owner owner = Owner::kOurs) noexcept;

  // Bytes of the file that are allocated; 0 once the program has closed its descriptor.
  uint64_t reserved_bytes() const noexcept;

 private:
  template <typename T>
  T* at(uint64_t offset) const noexcept {
    return static_cast<T*>(static_cast<void*>(base_ + offset));
  }
  Status reserve(uint64_t offset, uint64_t bytes, const char* what, Owner owner) noexcept;
  Status map(int fd, uint64_t bytes) noexcept;
  Status populate(uint64_t first, uint64_t bytes, const char* what, Owner owner) noexcept;

  NodeLayout layout_{0};
  std::byte* base_ = nullptr;
  uint32_t ranks_ = 0;
  uint32_t rank_ = 0;
  KeptDescriptor fd_;
  PageReserver reserver_;
};

}  // namespace hydrant::shm
