// The registered buffers that messages to one peer are built in. A message that the adapter does not copy at
// once keeps its slot until the send completes. Under the lock of the peer.
//
// Invariant: each slot is free or taken; free_count_ slots are free, and next() is the one that take()
// returns.
#pragma once

#include "firehose/base/status.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace hydrant::ibv {

class SendSlots {
 public:
  // Makes `count` slots of `bytes` each, from `memory` on. Errors: kResource.
  Status open(std::byte* memory, uint32_t bytes, uint32_t count) noexcept {
    free_.reset(new (std::nothrow) uint16_t[count]);
    if (free_ == nullptr) return fail(Status::kResource, "no memory for %u send slots", count);
    memory_ = memory;
    bytes_ = bytes;
    for (uint32_t i = count; i-- != 0;) release(i);
    return Status::kOk;
  }
  bool is_empty() const noexcept { return free_count_ == 0; }
  // next() and take() require a free slot.
  uint32_t next() const noexcept { return free_[free_count_ - 1]; }
  uint32_t take() noexcept { return free_[--free_count_]; }
  void release(uint32_t slot) noexcept { free_[free_count_++] = static_cast<uint16_t>(slot); }
  std::byte* at(uint32_t slot) const noexcept { return memory_ + size_t{slot} * bytes_; }

 private:
  std::byte* memory_ = nullptr;
  uint32_t bytes_ = 0;
  uint32_t free_count_ = 0;
  std::unique_ptr<uint16_t[]> free_;
};

}  // namespace hydrant::ibv
