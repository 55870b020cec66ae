// Shared states of several nodes in one process, and adapters between them that write when the test decides:
// in order from one rank to one node, otherwise in any order, and optionally byte by byte.
#pragma once

#include "extended/barrier/barrier_rdma.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

namespace hydrant::test {

// The clock of all networks: time passes only in elapse_ns().
inline std::atomic<uint64_t> network_clock_ns{0};
inline void elapse_ns(uint64_t ns) { network_clock_ns += ns; }

class RdmaNetwork {
 public:
  // Ranks 0 to size-1, `per_node` on each node, perhaps fewer on the last; `room`: words under way from
  // a rank to a node.
  RdmaNetwork(uint32_t size, uint32_t per_node, size_t room)
      : size_(size), per_node_(per_node), room_(room) {
    nodes_ = (size + per_node - 1) / per_node;
    for (uint32_t node = 0; node < nodes_; ++node) states_.push_back(make_state(per_node));
    for (Rank rank = 0; rank < size; ++rank)
      writers_.push_back(std::make_unique<WordWriter>(*this, rank));
    queues_.resize(size_t{size} * nodes_);
  }

  uint32_t nodes() const { return nodes_; }
  uint32_t node_of(Rank rank) const { return rank / per_node_; }
  BarrierRdmaState& shared(uint32_t node) { return *states_[node]; }

  RdmaBarrier::Config config_of(Rank rank, uint32_t epoch = 0) {
    const uint32_t node = node_of(rank);
    RdmaBarrier::Config config{.nodes = nodes_,
                               .ranks = {},
                               .index = rank % per_node_,
                               .sources = {},
                               .shared = &shared(node),
                               .writer = writers_[rank].get(),
                               .sleeping = sleeping,
                               .epoch = epoch,
                               .turn_ns = turn_ns,
                               .clock = []() noexcept { return network_clock_ns.load(); }};
    for (Rank one = node * per_node_; one < std::min(size_, (node + 1) * per_node_); ++one)
      config.ranks.push_back(one);
    for (uint32_t reach = 1; reach < nodes_; reach *= 2)
      config.sources.push_back((node + nodes_ - reach) % nodes_ * per_node_);
    return config;
  }

  // Delivers the oldest word from rank `from`, or from the next rank that has sent one, to the node of
  // `to`; or only its next `bytes` bytes. Returns false if there is none.
  bool deliver(Rank from, Rank to, uint32_t bytes = 8) {
    const std::lock_guard lock(mu_);
    for (Rank rank = from; rank < from + size_; ++rank) {
      auto& queue = queues_[size_t{rank % size_} * nodes_ + node_of(to)];
      if (queue.empty()) continue;
      if (write(queue.front(), bytes)) queue.pop_front();
      return true;
    }
    return false;
  }

  // For the ranks that are made from now on.
  uint64_t turn_ns = RdmaBarrier::kTurnNs;
  Sleeping* sleeping = nullptr;
  // The nodes to which each rank has posted, or tried to: (rank, node).
  std::set<std::pair<Rank, uint32_t>> contacts() {
    const std::lock_guard lock(mu_);
    return contacts_;
  }
  std::atomic<bool> is_down{false};  // every post is refused
  Rank poor = kNoRank;               // lacks memory for each of its posts
  std::atomic<uint64_t> posted{0};

  struct Sent {
    std::atomic<uint64_t>* place = nullptr;
    uint64_t word = 0;
    uint32_t first = 0;
    uint32_t done = 0;
  };
  // Queues by rank and node, for tests that save and restore them; no other thread may run then.
  std::vector<std::deque<Sent>>& queues() { return queues_; }

 private:
  struct WordWriter final : BarrierWordWriter {
    WordWriter(RdmaNetwork& of, Rank from) : network(of), rank(from) {}
    Status post(uint32_t parity, uint32_t round, uint64_t word) noexcept override {
      return network.post(rank, parity, round, word);
    }
    RdmaNetwork& network;
    Rank rank;
  };
  struct Free {
    void operator()(BarrierRdmaState* shared) const noexcept { std::free(shared); }
  };
  using State = std::unique_ptr<BarrierRdmaState, Free>;

  // Returns true if the word is complete.
  static bool write(Sent& sent, uint32_t bytes) {
    if (bytes >= 8 && sent.done == 0) {
      sent.place->store(sent.word, std::memory_order_release);
      return true;
    }
    // Writes each byte once, starting with any of the eight, in one of four orders.
    for (; bytes > 0 && sent.done < 8; --bytes, ++sent.done) {
      const uint32_t byte = (sent.first + sent.done * (sent.first / 8 * 2 + 1)) % 8;
      auto* at = reinterpret_cast<uint8_t*>(sent.place) + byte;
      __atomic_store_n(at, static_cast<uint8_t>(sent.word >> 8 * byte), __ATOMIC_RELEASE);
    }
    return sent.done == 8;
  }

  static State make_state(uint32_t ranks) {
    const size_t bytes = BarrierRdmaState::bytes(ranks);
    void* memory = std::aligned_alloc(64, bytes);
    std::memset(memory, 0, bytes);
    return State(static_cast<BarrierRdmaState*>(memory));
  }

  Status post(Rank from, uint32_t parity, uint32_t round, uint64_t word) noexcept {
    const std::lock_guard lock(mu_);
    const uint32_t to = (node_of(from) + (1u << round)) % nodes_;
    auto& queue = queues_[size_t{from} * nodes_ + to];
    contacts_.insert({from, to});
    if (from == poor) return Status::kResource;
    if (is_down || queue.size() >= room_) return Status::kNotReady;
    ++posted;
    queue.push_back({.place = &shared(to).words[parity][round],
                     .word = word,
                     .first = static_cast<uint32_t>(posted % 32)});
    return Status::kOk;
  }

  const uint32_t size_;
  const uint32_t per_node_;
  const size_t room_;
  uint32_t nodes_ = 0;
  std::mutex mu_;
  std::vector<State> states_;
  std::vector<std::unique_ptr<WordWriter>> writers_;
  std::vector<std::deque<Sent>> queues_;
  std::set<std::pair<Rank, uint32_t>> contacts_;
};

}  // namespace hydrant::test
