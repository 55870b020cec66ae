// The barrier of a job on several nodes. The ranks of a node meet in shared memory, and in each round
// one word goes from node to node by RDMA. A "node" is a set of ranks that share a state; it may be a
// single rank.
//
// In epoch e (the e-th barrier) a rank stores its word among the arrivals of its node. A rank that sees
// all arrivals takes the node through ceil(log2 n) rounds of dissemination. In round k it writes the
// join of all known words into mailbox k of the node 2^k after it, waits for its own mailbox k, and
// joins. After the last round it publishes the result, for which every rank of the node waits. This is
// one state machine per node, on the shared state. Any rank of the node may drive it, in start(), finish() or
// make_progress(), under a lock that is only tried.
//
// A first contact takes time, and its connection takes memory of both ranks for good. So a node posts the
// words of round k by one rank, the poster: the rank with the index k modulo the number of ranks. Otherwise
// every rank of a node would in time be connected to the first rank of every node that it writes to. Another
// rank posts only when it has seen the same word unsent for its turn: kTurnNs, about the time of a first
// contact, for each place behind the poster. From then on it posts words of that round at once, because it
// has the connection. A post that is refused for now (kNotReady) is a sign of life, which starts the
// turns anew. After another refusal they go on: another rank may have the memory that this one lacks.
//
// Correctness:
//  * Two parities are enough. Arrivals, words and results are stored per parity of the epoch. A slot of
//    epoch e is overwritten for e+2 only after some rank has finished e+1. Then all ranks have started e+1,
//    so all have finished e: each has read its result, before that its node its words, and before that the
//    arrivals. One parity is not enough: a node may be in e+1 while its neighbour still reads epoch e's word.
//  * Epoch e's word cannot overtake that of e+2, although other ranks send it on other queue pairs: e+2 is
//    sent only after the receiver has read e (above). Retransmissions are harmless over adapters that keep
//    the order of writes: they acknowledge a repeated write without executing it again (C9-105 of the
//    InfiniBand specification). Over others the writer refuses a word until its predecessor in the same place
//    has completed, because a write is repeated before that only.
//  * One writer per epoch and round: the rank that posts a word holds the lock, and records the post before
//    it unlocks.
//  * A word is never read partially: see barrier_rdma_state.hpp.
//  * Stores before start() are visible after finish(). Each hand-over is a release read by an acquire
//    (arrival, lock, result), and an adapter preserves the order of a post and the stores before it.
//  * No arrival is lost. A rank that finds the lock taken leaves, so the holder checks again after it
//    unlocks. Arrival, try and unlock are sequentially consistent: either the rank gets the lock, or the
//    holder sees the arrival.
//  * A rank that is stopped while it holds the lock stops its node, like a rank that does not arrive. A
//    rank that dies ends the job, as always.
//
// Progress: ranks of the same node need no polling rank. For each word except a node's last,
// some rank of the receiving node must poll (wait, try, or a poll between notify and wait), because it
// sends the next round. So with two nodes, which have one round, no rank has to poll after all have
// notified, if the last arrival of each node is a rank that posts. If it is not, the poster has to poll or,
// after its turn, any rank of the node. If the transport refuses a post (full queue, or no connection yet),
// a later poll of the same rank repeats it, or of another after its turn. Over adapters that may write a word
// twice, the rank that posted a place's last word has to poll before any rank posts the next. Connecting
// needs a poll of the other node's first rank.
//
// An adapter's write wakes no thread. One rank of each node, the watcher, waits with short sleeps
// (WaitTarget::kAdapter) and wakes the others.
//
// Cost: three locked instructions to arrive, two per step of the machine; a check without progress
// reads two cache lines.
//
// Threads: as BarrierEngine. Source: Mellor-Crummey and Scott, "Algorithms for scalable synchronization
// on shared-memory multiprocessors", 1991, section 3.3.
#pragma once

#include "extended/barrier/barrier_engine.hpp"
#include "extended/barrier/barrier_rdma_state.hpp"
#include "firehose/base/status.hpp"
#include "firehose/base/thread.hpp"
#include "rdma/transport/sleeping.hpp"

#include <atomic>
#include <cstdint>
#include <vector>

namespace hydrant {

// Writes words to the shared states of other nodes. Never waits, runs no handlers.
class BarrierWordWriter {
 public:
  // Writes `word` into words[parity][round] of the shared state of the node 2^round after this one. kOk: it
  // will arrive without further action of this rank. Other codes: not sent, retry later, if no other rank has
  // sent it; the implementation itself ends the job if retrying cannot help.
  virtual Status post(uint32_t parity, uint32_t round, uint64_t word) noexcept = 0;

 protected:
  ~BarrierWordWriter() = default;
};

class RdmaBarrier final : public BarrierEngine {
 public:
  static constexpr uint64_t kTurnNs = 1'000'000;

  struct Config {
    uint32_t nodes = 1;
    std::vector<Rank> ranks = {0};       // ranks of this node
    uint32_t index = 0;                  // index of this rank in `ranks`
    std::vector<Rank> sources;           // by round: the first rank of the node that sends the word
    BarrierRdmaState* shared = nullptr;  // zeroed, or with the state of an engine of the same epoch
    BarrierWordWriter* writer = nullptr;  // null is allowed if nodes is 1
    Sleeping* sleeping = nullptr;         // wakes sleeping ranks; null: no rank sleeps
    uint32_t epoch = 0;                   // last epoch that this rank has finished
    uint64_t turn_ns = kTurnNs;
    uint64_t (*clock)() noexcept = now_ns;
  };
  explicit RdmaBarrier(Config config);

  // Number of rounds for `nodes` nodes.
  static constexpr uint32_t rounds_of(uint32_t nodes) noexcept {
    uint32_t rounds = 0;
    for (uint64_t reach = 1; reach < nodes; reach *= 2) ++rounds;
    return rounds;
  }

  const char* name() const noexcept override { return "RDMADISSEM"; }
  void start(BarrierName mine, bool no_names) noexcept override;
  bool finish(BarrierName* all) noexcept override;
  uint32_t make_progress() noexcept override;
  bool needs_progress() const noexcept override { return rounds_ != 0; }
  bool is_silent() const noexcept override { return rounds_ != 0; }
  bool ready() const noexcept override;
  // Makes this rank the watcher if this epoch has none; only for callers that wait until the barrier is
  // over.
  WaitTarget wait_target() const noexcept override;
  void find_missing(MissingRanks* missing) const noexcept override;

  uint32_t epoch() const noexcept { return epoch_.load(std::memory_order_relaxed); }

 private:
  using Word = std::atomic<uint64_t>;
  // Ranks of the node to wake after the lock is released.
  enum class Wakes : uint8_t { kNone, kPoster, kAll };

  uint32_t ranks_here() const noexcept { return static_cast<uint32_t>(config_.ranks.size()); }
  BarrierRdmaState::Slot& arrival(uint32_t parity, uint32_t index) const noexcept {
    return config_.shared->arrival(parity, index, ranks_here());
  }
  bool has_result(uint32_t epoch, uint64_t* word) const noexcept;
  bool can_advance() const noexcept;
  bool try_lock() noexcept;
  uint32_t advance(bool has_just_arrived) noexcept;
  uint32_t advance_locked(Wakes* wakes) noexcept;
  bool gather(uint32_t epoch, uint32_t* steps) noexcept;
  bool exchange_words(uint32_t epoch, uint32_t* steps, Wakes* wakes) noexcept;
  Status post(uint32_t epoch, uint32_t round, uint64_t word) noexcept;
  void publish(uint32_t epoch) noexcept;
  void wake_others() noexcept;
  void wake_poster() noexcept;
  // True if this rank posts the words of the round without waiting for its turn.
  bool posts(uint32_t round) const noexcept {
    return (posted_rounds_.load(std::memory_order_relaxed) >> round & 1) != 0;
  }
  bool is_my_turn(uint32_t round) const noexcept;
  bool take_turn(uint32_t round) noexcept;

  const Config config_;
  const uint32_t rounds_;
  // Relaxed: other threads read it as a hint.
  std::atomic<uint32_t> epoch_;
  // The transport refused this rank's last post; only a retry shows whether it accepts the next one.
  std::atomic<bool> refused_{false};
  // posts(): a bit for each round. Written under the lock.
  std::atomic<uint32_t> posted_rounds_{0};
  // is_my_turn(): the word that this rank has last seen unsent, and since when. The time is stored first.
  mutable std::atomic<uint64_t> unsent_{0};
  mutable std::atomic<uint64_t> unsent_since_ns_{0};
};

}  // namespace hydrant
