// Messages to one peer in one lane on the injected network: written here, kept until they are due, with their
// credits until the acknowledgement has returned.
//
// Threads: one at a time. No allocation after open().
#pragma once

#include "rdma/transport/transport.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace hydrant {

class InjectedStream {
 public:
  struct Message {
    uint64_t due_ns = 0;       // when it arrives; after that, when its credit returns
    uint64_t puts_before = 0;  // puts of the pair that must be done first
    uint64_t bytes = 0;        // of head and payload
    Cell cell;
    uint32_t head_bytes = 0;
    uint32_t cell_bytes = 0;
    uint32_t tag = 0;
    bool has_cell = false;
  };

  bool is_open() const noexcept { return messages_ != nullptr; }
  // Errors: kResource.
  Status open(uint32_t credits, uint32_t message_bytes) noexcept {
    stride_ = (message_bytes + 63) / 64 * 64;
    heads_.reset(new (std::nothrow) Line[size_t{credits} * stride_ / sizeof(Line)]);
    messages_.reset(new (std::nothrow) Message[credits]);
    free_.reset(new (std::nothrow) uint32_t[credits]);
    queue_.reset(new (std::nothrow) uint32_t[credits]);
    returning_.reset(new (std::nothrow) uint32_t[credits]);
    if (heads_ == nullptr || messages_ == nullptr || free_ == nullptr || queue_ == nullptr ||
        returning_ == nullptr) {
      messages_.reset();
      return fail(Status::kResource, "no memory for %u messages on the injected network", credits);
    }
    credits_ = credits;
    for (uint32_t i = 0; i < credits; ++i) free_[i] = i;
    free_count_ = credits;
    return Status::kOk;
  }

  Message& message(uint32_t slot) noexcept { return messages_[slot]; }
  std::byte* head(uint32_t slot) noexcept {
    return reinterpret_cast<std::byte*>(heads_.get()) + size_t{slot} * stride_;
  }

  // ---- states of a slot: free, written, queued, returning, free ----
  bool has_free() const noexcept { return free_count_ != 0; }
  uint64_t bytes_under_way() const noexcept { return bytes_; }
  uint32_t take(uint64_t bytes) noexcept {
    const uint32_t slot = free_[--free_count_];
    messages_[slot] = Message{};
    add_bytes(slot, bytes);
    return slot;
  }
  void add_bytes(uint32_t slot, uint64_t bytes) noexcept {
    messages_[slot].bytes += bytes;
    bytes_ += bytes;
  }
  void put_back(uint32_t slot) noexcept {
    bytes_ -= messages_[slot].bytes;
    free_[free_count_++] = slot;
  }
  // The message arrives at due_ns, but not before an earlier message of this lane.
  void enqueue(uint32_t slot, uint64_t due_ns) noexcept {
    last_due_ns_ = due_ns < last_due_ns_ ? last_due_ns_ : due_ns;
    messages_[slot].due_ns = last_due_ns_;
    queue_[(queued_first_ + queued_++) % credits_] = slot;
  }
  bool any_queued() const noexcept { return queued_ != 0; }
  uint32_t first_queued() const noexcept { return queue_[queued_first_]; }
  void dequeue() noexcept {
    queued_first_ = (queued_first_ + 1) % credits_;
    --queued_;
  }
  void start_return(uint32_t slot, uint64_t due_ns) noexcept {
    messages_[slot].due_ns = due_ns;
    returning_[(returning_first_ + returning_count_++) % credits_] = slot;
  }
  // Frees the slots whose credits are back by `now`; returns when the next one is, or UINT64_MAX.
  uint64_t finish_returns(uint64_t now) noexcept {
    for (; returning_count_ != 0; --returning_count_) {
      const uint32_t slot = returning_[returning_first_];
      if (messages_[slot].due_ns > now) return messages_[slot].due_ns;
      put_back(slot);
      returning_first_ = (returning_first_ + 1) % credits_;
    }
    return UINT64_MAX;
  }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  uint32_t credits_ = 0;
  uint32_t stride_ = 0;
  std::unique_ptr<Line[]> heads_;
  std::unique_ptr<Message[]> messages_;
  std::unique_ptr<uint32_t[]> free_;
  std::unique_ptr<uint32_t[]> queue_;  // rings of slots
  std::unique_ptr<uint32_t[]> returning_;
  uint32_t free_count_ = 0;
  uint32_t queued_first_ = 0;
  uint32_t queued_ = 0;
  uint32_t returning_first_ = 0;
  uint32_t returning_count_ = 0;
  uint64_t bytes_ = 0;
  uint64_t last_due_ns_ = 0;
};

}  // namespace hydrant
