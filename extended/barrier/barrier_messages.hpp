// Barriers by Active Messages alone, for jobs whose ranks share no memory, and for comparison. Handlers
// only record arrivals. start(), finish() and make_progress() send messages and never wait for room: a
// message that does not fit now is sent by a later call.
//
// AMDISSEM (dissemination): in round k a rank sends to the rank 2^k after it and waits for the rank 2^k
// before it; ceil(log2 n) rounds, no limit on n. AMCENTRAL: all ranks send to rank 0, which replies to
// all.
//
// A rank may be one barrier ahead of another, but never two, so arrivals are recorded per parity of the
// epoch.
//
// Threads: as BarrierEngine; any thread may call receive().
//
// Source: Mellor-Crummey and Scott, "Algorithms for scalable synchronization on shared-memory
// multiprocessors", 1991, section 3.3.
#pragma once

#include "extended/barrier/barrier_engine.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

namespace hydrant {

// A barrier message: 32 bits, and the id if names are possible. Bits: 0 parity, 1-2 state, 3-8 round,
// 31 which of the job's two barriers.
struct BarrierMessage {
  uint32_t parity = 0;
  uint32_t round = 0;
  BarrierName name;
  bool with_id = true;  // false: the barrier has no names, so the message has one argument

  static constexpr uint32_t kMaxRounds = 32;
  constexpr uint32_t bits() const noexcept {
    return (parity & 1) | state_bits(name) << 1 | round << 3;
  }
  static constexpr BarrierMessage from(uint32_t bits, uint32_t id) noexcept {
    return {.parity = bits & 1, .round = bits >> 3 & 63, .name = name_from(bits >> 1, id)};
  }
};

// Sends barrier messages. Not called in handlers.
class BarrierMessageSender {
 public:
  // Returns false if there is no room now.
  virtual bool send(Rank peer, const BarrierMessage& message) noexcept = 0;

 protected:
  ~BarrierMessageSender() = default;
};

// Common part of both algorithms: the lock of the advancing thread, the epoch, and the join of the names.
class MessageBarrier : public BarrierEngine {
 public:
  // Records an arrival. Returns false for a message that no rank of this job would send.
  virtual bool receive(Rank from, const BarrierMessage& message) noexcept = 0;

  void start(BarrierName mine, bool no_names) noexcept final;
  bool finish(BarrierName* all) noexcept final;
  uint32_t make_progress() noexcept final;
  bool needs_progress() const noexcept final { return size_ > 1; }
  bool ready() const noexcept final;

 protected:
  MessageBarrier(Rank rank, Rank size, BarrierMessageSender& sender) noexcept
      : rank_(rank), size_(size), sender_(sender) {}

  // begin() resets the state for a new barrier; advance() makes all possible steps and returns their
  // number. Both are called with the lock.
  virtual void begin() noexcept = 0;
  virtual uint32_t advance() noexcept = 0;
  // True if advance() would make a step; a hint, read without the lock.
  virtual bool can_advance() const noexcept = 0;

  BarrierMessage message(uint32_t round) const noexcept;
  uint32_t parity() const noexcept { return epoch_.load(std::memory_order_relaxed) & 1; }

  const Rank rank_;
  const Rank size_;
  BarrierMessageSender& sender_;
  BarrierName joined_;
  bool no_names_ = false;
  std::atomic<bool> done_{true};

 private:
  std::atomic<bool> busy_{false};
  std::atomic<uint32_t> epoch_{0};
};

class DisseminationBarrier final : public MessageBarrier {
 public:
  DisseminationBarrier(Rank rank, Rank size, BarrierMessageSender& sender);
  const char* name() const noexcept override { return "AMDISSEM"; }
  bool receive(Rank from, const BarrierMessage& message) noexcept override;
  void find_missing(MissingRanks* missing) const noexcept override;

 private:
  void begin() noexcept override;
  uint32_t advance() noexcept override;
  bool can_advance() const noexcept override;
  Rank source(uint32_t round) const noexcept;

  // Per parity and round: a count of one, state and id of the arrival, or 0. receive() stores with
  // release, advance() loads with acquire.
  using Slots = std::array<std::atomic<uint64_t>, BarrierMessage::kMaxRounds>;
  Slots slots_[2] = {};
  uint32_t rounds_ = 0;
  std::atomic<uint32_t> round_{0};
  bool sent_ = false;
};

class CentralBarrier final : public MessageBarrier {
 public:
  CentralBarrier(Rank rank, Rank size, BarrierMessageSender& sender);
  const char* name() const noexcept override { return "AMCENTRAL"; }
  bool receive(Rank from, const BarrierMessage& message) noexcept override;
  void find_missing(MissingRanks* missing) const noexcept override;

 private:
  void begin() noexcept override;
  uint32_t advance() noexcept override;
  bool can_advance() const noexcept override;
  uint32_t advance_centre() noexcept;
  uint32_t advance_other() noexcept;

  // Per parity, in one word: the number of arrivals and the join of their names. At rank 0 they come
  // from all other ranks, elsewhere from rank 0.
  std::atomic<uint64_t> arrivals_[2] = {};
  // At rank 0, for find_missing(): one bit per rank.
  std::unique_ptr<std::atomic<uint64_t>[]> arrived_[2];
  Rank next_ = 0;  // the next rank to send to
};

}  // namespace hydrant
