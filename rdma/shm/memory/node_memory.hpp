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
  // 256 bytes per rank in two blocks of 128, zero at first, for barriers.
  std::byte* barrier_area(uint32_t node_rank) const noexcept { return area(node_rank).barrier; }

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
  // Reserves a ring, before its first use: a ring of requests by its writer, one of replies by its reader.
  Status reserve_ring(uint32_t from, uint32_t to, Lane lane) noexcept;
  // Reserves the chunk that `cell` belongs to, and the receipts; called by the sender.
  Status reserve_cells(uint32_t from, Lane lane, uint32_t cell) noexcept;

  // Make sure that the other rank has reserved a ring or a cell, before the first access here: a corrupt rank
  // then causes an error instead of SIGBUS. They allocate nothing if it has reserved the memory.
  Status touch_ring(uint32_t from, uint32_t to, Lane lane) noexcept;
  Status touch_cells(uint32_t from, Lane lane, uint32_t cell) noexcept;

  // Bytes of the file that are allocated; 0 once the program has closed its descriptor.
  uint64_t reserved_bytes() const noexcept;

 private:
  template <typename T>
  T* at(uint64_t offset) const noexcept {
    return static_cast<T*>(static_cast<void*>(base_ + offset));
  }
  enum class Owner : bool { kOurs, kTheirs };
  Status reserve(uint64_t offset, uint64_t bytes, const char* what, Owner owner) noexcept;
  Status allocate_ring(uint32_t from, uint32_t to, Lane lane, Owner owner) noexcept;
  Status allocate_cells(uint32_t from, Lane lane, uint32_t cell, Owner owner) noexcept;
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
