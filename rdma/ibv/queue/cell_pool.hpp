// The registered cells of one lane: buffers for payloads that are too long to be sent inline.
//
// Invariant: each cell is free or taken. Threads: any.
#pragma once

#include "firehose/base/status.hpp"
#include "rdma/ibv/queue/spin_guard.hpp"
#include "rdma/ibv/registrar/verbs_memory.hpp"
#include "rdma/transport/transport.hpp"

#include <array>
#include <cstdint>
#include <memory>
#include <new>

namespace hydrant::ibv {

class CellPool {
 public:
  // Errors: kResource.
  Status open(ibv_pd* pd, uint32_t count, uint32_t cell_bytes, bool threaded) noexcept {
    threaded_ = threaded;
    cell_bytes_ = cell_bytes;
    if (const Status status =
            memory_.open(pd, size_t{count} * cell_bytes, IBV_ACCESS_LOCAL_WRITE, "cells");
        status != Status::kOk)
      return status;
    free_.reset(new (std::nothrow) uint16_t[count]);
    if (free_ == nullptr) return fail(Status::kResource, "no memory for cells");
    for (uint32_t i = count; i-- != 0;) free_[free_count_++] = static_cast<uint16_t>(i);
    return Status::kOk;
  }
  void close() noexcept { memory_.close(); }
  uint32_t lkey() const noexcept { return memory_.lkey(); }

  // Errors: kNotReady: all are taken.
  Status take(Cell* cell) noexcept {
    const SpinGuard guard(lock_, threaded_);
    if (free_count_ == 0) return Status::kNotReady;
    const uint32_t index = free_[--free_count_];
    *cell = {memory_.data() + size_t{index} * cell_bytes_, cell_bytes_, index};
    return Status::kOk;
  }
  void release(uint32_t index) noexcept {
    const SpinGuard guard(lock_, threaded_);
    free_[free_count_++] = static_cast<uint16_t>(index);
  }

 private:
  SpinLock lock_;
  bool threaded_ = false;
  uint32_t cell_bytes_ = 0;
  uint32_t free_count_ = 0;
  VerbsMemory memory_;
  std::unique_ptr<uint16_t[]> free_;
};

// The pools, one for each lane, so that requests cannot take the cells of replies.
using LaneCells = std::array<CellPool, kLaneCount>;

}  // namespace hydrant::ibv
