// Serves requests of ranks: stores and returns entries, queues ranks that wait for an entry or in a fence,
// and at a deadline reports which ranks are missing. No system call: the supervisor passes requests and the
// time, and sends the replies.
#pragma once

#include "rdma/bootstrap/wire.hpp"
#include "rdma/launch/key_value_store.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace hydrant::launch {

// Sends the replies: the supervisor, or a test.
class ReplySender {
 public:
  virtual void send_reply(Rank to, const Reply& reply,
                          std::span<const std::byte> tail) noexcept = 0;

 protected:
  ~ReplySender() = default;
};

class BootstrapServer {
 public:
  BootstrapServer(Rank size, ReplySender& answerer)
      : answerer_(answerer), store_(size), waiting_(size), joined_(size) {}

  // Handles a request of `rank`. A second request while the first waits cancels the first.
  void take(Rank rank, const Request& request, std::span<const std::byte> entry,
            uint64_t now) noexcept;
  // Replies to requests whose deadline has passed.
  void expire(uint64_t now) noexcept;
  // The earliest deadline; UINT64_MAX if no rank waits.
  uint64_t next_ns() const noexcept { return next_ns_; }

  // The job ends for this reason: fails all waiting requests, and all later ones.
  void end(std::string reason) noexcept;
  // Drops the waiting request of `rank`, which has ended.
  void forget(Rank rank) noexcept;

  bool joined(Rank rank) const noexcept { return joined_[rank]; }
  uint32_t joined_count() const noexcept { return joined_count_; }

 private:
  enum class Wait : uint32_t { kNone, kEntry, kFence };
  struct Waiting {
    Wait what = Wait::kNone;
    Request request;
  };

  void hello(Rank rank, const Request& request) noexcept;
  void put(Rank rank, const Request& request, std::span<const std::byte> entry) noexcept;
  void get(Rank rank, const Request& request, uint64_t now) noexcept;
  void fence(Rank rank, const Request& request, uint64_t now) noexcept;
  void wait(Rank rank, Wait what, const Request& request, uint64_t now) noexcept;
  void open_fence() noexcept;
  void reply(Rank to, uint32_t id, Status status, std::span<const std::byte> tail) noexcept;
  void refuse(Rank to, uint32_t id, Status status, std::string_view text) noexcept;
  void give_up(Rank rank) noexcept;
  std::string missing_text() const;

  ReplySender& answerer_;
  KeyValueStore store_;
  std::vector<Waiting> waiting_;  // by rank
  std::vector<bool> joined_;      // by rank
  uint32_t joined_count_ = 0;
  uint32_t in_fence_ = 0;
  uint32_t entry_waits_ = 0;
  uint64_t next_ns_ = UINT64_MAX;
  std::string end_reason_;
};

}  // namespace hydrant::launch
