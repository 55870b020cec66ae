// Flow control with one peer. A sender has a credit for each receive buffer that the peer has posted for it,
// and writes payloads into the peer's receive slots in turn. docs/verbs.md has the arithmetic.
//
// There is a counter for requests, one for replies and one for control messages, in this order. All count up
// for ever; on the wire they are modulo 2^16, which is enough because fewer than 2^15 messages are under way.
//
// Invariant: acknowledged <= sent and sent - acknowledged <= the limit of the counter; reported <= taken.
//
// Threads: sending under the lock of the peer. apply() by the thread that reads the completion queue,
// add_taken() and add_freed_slots() by any thread that delivers.
#pragma once

#include "firehose/base/status.hpp"
#include "rdma/ibv/wire/ibv_wire.hpp"
#include "rdma/transport/transport.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <new>

namespace hydrant::ibv {

class Credits {
 public:
  static constexpr uint32_t kControl = kLaneCount;  // the counter behind those of the lanes
  static constexpr uint32_t kCounters = kLaneCount + 1;
  // Counts the peer's receive buffers that are posted for the first time; not on the wire.
  static constexpr uint32_t kFirst = kCounters;
  using WireCounts = uint16_t[kCounters];

  // `credits` messages of each lane may be under way, `slots` of them with a payload. Errors: kResource.
  Status open(uint32_t credits, uint32_t slots) noexcept {
    credits_ = credits;
    slots_ = slots;
    slot_free_after_.reset(new (std::nothrow) uint64_t[size_t{kLaneCount} * slots]());
    if (slot_free_after_ != nullptr) return Status::kOk;
    return fail(Status::kResource, "no memory for %u receive slots", slots);
  }

  // ---- sending ----
  bool has_credit(Lane lane) const noexcept {
    return under_way(static_cast<uint32_t>(lane)) < credits_;
  }
  // The last two credits are for replies to control messages: if both sides have much to report, neither
  // waits for ever.
  bool has_control_credit() const noexcept {
    const bool is_reply = unreported(kControl) >= kControlCredits / 2;
    return under_way(kControl) < (is_reply ? kControlCredits : kControlCredits - 2);
  }
  void count_sent(uint32_t counter) noexcept { ++sent_[counter]; }
  void count_sent(Lane lane) noexcept { ++sent_[static_cast<uint32_t>(lane)]; }
  // Requests and replies, ever.
  uint64_t messages_sent() const noexcept { return sent_[0] + sent_[1]; }

  // Receive slots of the peer are used in turn. Slots of all lanes are numbered, those for requests first.
  bool has_slot(Lane lane) const noexcept {
    return acknowledged_[static_cast<uint32_t>(lane)].load(std::memory_order_acquire) >=
           slot_free_after_[next_slot(lane)];
  }
  // Takes the next slot for the message of this lane that was counted last.
  uint32_t take_slot(Lane lane) noexcept {
    const auto index = static_cast<uint32_t>(lane);
    const uint32_t slot = next_slot(lane);
    slot_free_after_[slot] = sent_[index];
    ++slots_sent_[index];
    return slot;
  }

  // Writes into an outgoing header how many messages of the peer have been processed, and counts them as
  // reported.
  void report(WireCounts& counts) noexcept {
    for (std::atomic<uint32_t>& freed : freed_slots_) {
      // Cleared before the counters are read; pairs with the order of add_taken() before add_freed_slots(): a
      // slot freed meanwhile is reported with the next header.
      if (freed.load(std::memory_order_relaxed) != 0) freed.exchange(0, std::memory_order_acq_rel);
    }
    for (uint32_t i = 0; i < kCounters; ++i) {
      const uint64_t taken = taken_[i].load(std::memory_order_acquire);
      counts[i] = static_cast<uint16_t>(taken);
      reported_[i].store(taken, std::memory_order_relaxed);
    }
  }

  // ---- receiving ----
  // Applies the counts of an incoming header. Counts of an older header change nothing.
  void apply(const WireCounts& counts) noexcept {
    for (uint32_t i = 0; i < kCounters; ++i) {
      const uint64_t known = acknowledged_[i].load(std::memory_order_relaxed);
      const auto more = static_cast<int16_t>(counts[i] - static_cast<uint16_t>(known));
      if (more > 0)
        acknowledged_[i].store(known + static_cast<uint64_t>(more), std::memory_order_release);
    }
  }
  bool are_posted(uint64_t buffers) const noexcept {
    return taken_[kFirst].load(std::memory_order_acquire) >= buffers;
  }
  // Counts messages of the peer whose buffers are posted again.
  void add_taken(uint32_t counter, uint64_t count) noexcept {
    taken_[counter].fetch_add(count, std::memory_order_release);
  }
  // Counts those of these messages that had a payload in a receive slot.
  void add_freed_slots(Lane lane, uint32_t count) noexcept {
    freed_slots_[static_cast<uint32_t>(lane)].fetch_add(count, std::memory_order_release);
  }
  // Whether the peer may run short of credits or slots unless it gets a report.
  bool is_report_due() const noexcept {
    if (unreported(kControl) >= kControlCredits / 2) return true;
    for (uint32_t lane = 0; lane < kLaneCount; ++lane) {
      if (unreported(lane) >= credits_ / 2 ||
          freed_slots_[lane].load(std::memory_order_relaxed) >= slots_ / 2)
        return true;
    }
    return false;
  }

 private:
  uint64_t under_way(uint32_t counter) const noexcept {
    return sent_[counter] - acknowledged_[counter].load(std::memory_order_acquire);
  }
  uint64_t unreported(uint32_t counter) const noexcept {
    return taken_[counter].load(std::memory_order_relaxed) -
           reported_[counter].load(std::memory_order_relaxed);
  }
  uint32_t next_slot(Lane lane) const noexcept {
    const auto index = static_cast<uint32_t>(lane);
    return index * slots_ + static_cast<uint32_t>(slots_sent_[index] % slots_);
  }

  uint32_t credits_ = 0;
  uint32_t slots_ = 0;
  std::array<uint64_t, kCounters> sent_ = {};
  std::array<uint64_t, kLaneCount> slots_sent_ = {};
  // How many messages of the lane must be acknowledged before the slot is free again; 0: it is.
  std::unique_ptr<uint64_t[]> slot_free_after_;
  std::array<std::atomic<uint64_t>, kCounters> acknowledged_ = {};  // by the peer
  std::array<std::atomic<uint64_t>, kCounters + 1> taken_ = {};     // of the peer's messages
  std::array<std::atomic<uint64_t>, kCounters> reported_ = {};      // ... in a header to the peer
  std::array<std::atomic<uint32_t>, kLaneCount> freed_slots_ = {};  // since the last report
};

}  // namespace hydrant::ibv
