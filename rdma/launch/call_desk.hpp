// Answers what ranks ask for: stores and hands out cards, holds those who wait for a card or in a fence,
// and tells them at their deadline who is missing. No system call: the supervisor brings requests and
// the time, and sends the answers.
#pragma once

#include "rdma/launch/card_store.hpp"
#include "rdma/launch/wire.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace hydrant::launch {

// Who sends the answers.
class Answerer {
 public:
  virtual void answer(Rank to, const Reply& reply, std::span<const std::byte> tail) noexcept = 0;

 protected:
  ~Answerer() = default;
};

class CallDesk {
 public:
  CallDesk(Rank size, Answerer& answerer)
      : answerer_(answerer), store_(size), waiting_(size), joined_(size) {}

  // Takes a request of `rank`. A rank that asks again while it waits has given up the first call.
  void take(Rank rank, const Request& request, std::span<const std::byte> card,
            uint64_t now) noexcept;
  // Answers those whose deadline has come.
  void expire(uint64_t now) noexcept;
  // The earliest deadline; UINT64_MAX if nobody waits.
  uint64_t next_ns() const noexcept { return next_ns_; }

  // The job ends for this reason: nobody waits any more, from now on.
  void end(std::string reason) noexcept;
  // Drops what `rank` waits for: it is gone.
  void forget(Rank rank) noexcept;

  bool joined(Rank rank) const noexcept { return joined_[rank]; }
  uint32_t joined_count() const noexcept { return joined_count_; }

 private:
  enum class Wait : uint32_t { kNone, kCard, kFence };
  struct Waiting {
    Wait what = Wait::kNone;
    Request request;
  };

  void hello(Rank rank, const Request& request) noexcept;
  void put(Rank rank, const Request& request, std::span<const std::byte> card) noexcept;
  void get(Rank rank, const Request& request, uint64_t now) noexcept;
  void fence(Rank rank, const Request& request, uint64_t now) noexcept;
  void wait(Rank rank, Wait what, const Request& request, uint64_t now) noexcept;
  void open_fence() noexcept;
  void reply(Rank to, uint32_t id, Status status, std::span<const std::byte> tail) noexcept;
  void refuse(Rank to, uint32_t id, Status status, std::string_view text) noexcept;
  void give_up(Rank rank) noexcept;
  std::string missing_text() const;

  Answerer& answerer_;
  CardStore store_;
  std::vector<Waiting> waiting_;  // by rank
  std::vector<bool> joined_;      // by rank
  uint32_t joined_count_ = 0;
  uint32_t in_fence_ = 0;
  uint32_t card_waits_ = 0;
  uint64_t next_ns_ = UINT64_MAX;
  std::string end_reason_;
};

}  // namespace hydrant::launch
