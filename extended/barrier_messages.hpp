// Barriers by Active Messages alone, for jobs whose ranks share no memory, and for comparison. Arrivals come
// in handlers, which only note them; what has to be sent is sent by start(), finish() and drive(), never
// waiting for room: what does not fit now is sent by a later call.
//
// AMDISSEM: in round k a rank sends to the one that stands 2^k behind it and waits for the one 2^k before it;
// ceil(log2 n) rounds, no limit on n. AMCENTRAL: all send to rank 0, which answers all.
//
// A rank may be one barrier ahead of another, never two: what comes is noted per parity of the epoch.
//
// Threads: as BarrierEngine; receive() by any thread.
//
// Source: Mellor-Crummey and Scott, "Algorithms for scalable synchronization on shared-memory
// multiprocessors", 1991, section 3.3.
#pragma once

#include "extended/barrier_engine.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

namespace hydrant {

// What travels: 32 bits, and the id where there may be one.
//   bit 0 parity | 1-2 state | 3-8 round | 31 which of the job's two barriers
struct BarrierMessage {
  uint32_t parity = 0;
  uint32_t round = 0;
  BarrierName name;
  bool with_id = true;  // false: the barrier has no names, and the message is one argument long

  static constexpr uint32_t kMaxRounds = 32;
  constexpr uint32_t bits() const noexcept {
    return (parity & 1) | state_bits(name) << 1 | round << 3;
  }
  static constexpr BarrierMessage from(uint32_t bits, uint32_t id) noexcept {
    return {.parity = bits & 1, .round = bits >> 3 & 63, .name = name_from(bits >> 1, id)};
  }
};

// How messages leave. Not for handlers.
class BarrierPost {
 public:
  // False: there is no room now.
  virtual bool send(Rank peer, const BarrierMessage& message) noexcept = 0;

 protected:
  ~BarrierPost() = default;
};

// What both have: the lock of whoever gets the barrier on, its epoch, what was collected.
class MessageBarrier : public BarrierEngine {
 public:
  // False: no rank of this job sends such a message.
  virtual bool receive(Rank from, const BarrierMessage& message) noexcept = 0;

  void start(BarrierName mine, bool no_names) noexcept final;
  bool finish(BarrierName* all) noexcept final;
  uint32_t drive() noexcept final;
  bool needs_driving() const noexcept final { return size_ > 1; }
  bool ready() const noexcept final;

 protected:
  MessageBarrier(Rank rank, Rank size, BarrierPost& post) noexcept
      : rank_(rank), size_(size), post_(post) {}

  // With the lock: starts anew; then gets on as far as can be. Answers how many steps were made.
  virtual void begin() noexcept = 0;
  virtual uint32_t advance() noexcept = 0;
  // Whether advance() would make a step, as a thread without the lock can guess.
  virtual bool can_advance() const noexcept = 0;

  BarrierMessage message(uint32_t round) const noexcept;
  uint32_t parity() const noexcept { return epoch_.load(std::memory_order_relaxed) & 1; }

  const Rank rank_;
  const Rank size_;
  BarrierPost& post_;
  BarrierName joined_;
  bool no_names_ = false;
  std::atomic<bool> done_{true};

 private:
  std::atomic<bool> busy_{false};
  std::atomic<uint32_t> epoch_{0};
};

class DisseminationBarrier final : public MessageBarrier {
 public:
  DisseminationBarrier(Rank rank, Rank size, BarrierPost& post);
  const char* name() const noexcept override { return "AMDISSEM"; }
  bool receive(Rank from, const BarrierMessage& message) noexcept override;
  void find_missing(std::vector<Rank>* missing) const override;

 private:
  void begin() noexcept override;
  uint32_t advance() noexcept override;
  bool can_advance() const noexcept override;
  Rank source(uint32_t round) const noexcept;

  // Per parity and round: a count of one, state and id of what has come; 0 before. Pairs: release
  // by receive(), acquire by advance().
  using Slots = std::array<std::atomic<uint64_t>, BarrierMessage::kMaxRounds>;
  Slots slots_[2] = {};
  uint32_t rounds_ = 0;
  std::atomic<uint32_t> round_{0};
  bool sent_ = false;
};

class CentralBarrier final : public MessageBarrier {
 public:
  CentralBarrier(Rank rank, Rank size, BarrierPost& post);
  const char* name() const noexcept override { return "AMCENTRAL"; }
  bool receive(Rank from, const BarrierMessage& message) noexcept override;
  void find_missing(std::vector<Rank>* missing) const override;

 private:
  void begin() noexcept override;
  uint32_t advance() noexcept override;
  bool can_advance() const noexcept override;
  uint32_t advance_centre() noexcept;
  uint32_t advance_other() noexcept;

  // Per parity: how many have come, and the join of what they brought, in one word. Of all the others at
  // rank 0; of rank 0 elsewhere.
  std::atomic<uint64_t> come_[2] = {};
  // At rank 0, for find_missing(): a bit per rank.
  std::unique_ptr<std::atomic<uint64_t>[]> who_[2];
  Rank next_ = 0;  // to be told next
};

}  // namespace hydrant
