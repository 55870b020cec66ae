// The memory that the ranks of a node share: one memfd, made by one process, inherited or received by the
// others, mapped by all. Nothing has a name in a file system, so nothing is left when the last one dies.
//
// The file is as long as its layout and mostly a hole; reserve() comes before the first touch.
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

  // Makes the memory of a node with so many ranks. *fd is close-on-exec and the caller's.
  // Errors: kBadArg: 0 ranks, or more than kMaxNodeRanks; kResource, with needed and available bytes.
  static Status create(uint32_t node_size, int* fd) noexcept;

  // Maps it and says that node rank `node_rank` is this process. Keeps a copy of `fd`.
  // Errors: kBadArg: no such rank; kBroken: not such a file, or of another version; kResource.
  Status attach(int fd, uint32_t node_rank) noexcept;
  void detach() noexcept;

  uint32_t node_size() const noexcept { return ranks_; }
  uint32_t node_rank() const noexcept { return rank_; }

  // Requires of all below: attached.
  RankArea& area(uint32_t node_rank) const noexcept {
    return *at<RankArea>(layout_.area(node_rank));
  }
  // 256 bytes per rank in two blocks of 128, zero at first, for barriers.
  std::byte* barrier_area(uint32_t node_rank) const noexcept { return area(node_rank).barrier; }

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

  // First use, by the writer.
  Status reserve_ring(uint32_t from, uint32_t to, Lane lane) noexcept;
  // The chunk that `cell` belongs to, and the receipts.
  Status reserve_cells(uint32_t from, Lane lane, uint32_t cell) noexcept;

  // What the writer has reserved. Who reads calls these first: they see to it that a writer who lies is an
  // error and no SIGBUS. They cost no memory if it does not lie.
  Status touch_ring(uint32_t from, uint32_t to, Lane lane) noexcept;
  Status touch_cells(uint32_t from, Lane lane, uint32_t cell) noexcept;

  // How many bytes of the file exist; 0 once the program has closed its descriptor.
  uint64_t reserved_bytes() const noexcept;

 private:
  template <typename T>
  T* at(uint64_t offset) const noexcept {
    return static_cast<T*>(static_cast<void*>(base_ + offset));
  }
  enum class Whose : bool { kOurs, kTheirs };
  Status reserve(uint64_t offset, uint64_t bytes, const char* what, Whose whose) noexcept;
  Status have_ring(uint32_t from, uint32_t to, Lane lane, Whose whose) noexcept;
  Status have_cells(uint32_t from, Lane lane, uint32_t cell, Whose whose) noexcept;
  Status map(int fd, uint64_t bytes) noexcept;
  Status populate(uint64_t first, uint64_t bytes, const char* what, Whose whose) noexcept;

  NodeLayout layout_{0};
  std::byte* base_ = nullptr;
  uint32_t ranks_ = 0;
  uint32_t rank_ = 0;
  KeptDescriptor fd_;
  PageReserver reserver_;
};

}  // namespace hydrant::shm
