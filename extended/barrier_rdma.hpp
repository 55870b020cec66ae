// The barrier of a job on several nodes: the ranks of a node meet in memory that they share, and one word
// per round goes from node to node by RDMA. "Nodes" are whatever shares a board; a rank may be one alone.
//
// In epoch e (every barrier is one) a rank stores its word among the arrivals of its node. Whoever finds
// that all have come takes the node through ceil(log2 n) rounds of dissemination: in round k it has the join
// of what it knows written into mailbox k of the node that stands 2^k behind, waits for its own mailbox k,
// and joins. After the last round it publishes the result, which every rank of the node waits for. All of
// that is one machine per node, on the board; any rank of the node may drive it, in start(), finish() or
// drive(), under a lock that is only tried.
//
// Why it is right:
//  * Two parities are enough. Everything on a board (arrivals, mail, results) is kept by parity of the
//    epoch, and is written for e+2 only by, or for, somebody who has finished e+1. Then all have started
//    e+1, so all have finished e: each has read its result, before that its node had read its mail, and
//    before that the arrivals. One would not do: a node may be in e+1 while its neighbour still reads mail
//    of e.
//  * Mail of e cannot overtake mail of e+2, though other ranks send it by other queue pairs: e+2 is sent
//    only after the receiver has read e (above). Repeated packets change nothing: a responder acknowledges a
//    write that it has done and does not do it again (C9-105 of the specification).
//  * One writer per epoch and round: what posts a word holds the lock, and notes that it is posted before it
//    lets go.
//  * A word that is read is whole: barrier_board.hpp.
//  * What a rank did before start() is seen by who passes: each hand-over is a release read by an acquire
//    (arrival, lock, result), and an adapter reads what it sends, and writes what it got, after what it was
//    posted after.
//  * Nobody comes in vain. A rank that finds the lock taken leaves; so the holder looks once more after it
//    has let go. Arrival, try and release are sequentially consistent: either the rank gets the lock, or the
//    holder sees it.
//  * A rank that is stopped while it holds the lock stops its node, as one that had not come would. One that
//    dies ends the job, as always.
//
// Who has to be awake: nobody for the ranks of the node. For each word of mail but the last of a node, some
// rank of the receiving node has to look (wait, try, or poll between notify and wait): its answer is the
// next round. So with two nodes, which have one round, nobody has to poll once all have notified. Two things
// beside: a post that the transport refuses (its queue is full, or this rank has never sent to that node
// before, and connects) is repeated by the next look of any rank of this node; and connecting needs a poll
// of the first rank of the other node.
//
// An adapter's write wakes nobody. One rank of each node, the watcher, waits with short sleeps
// (WaitsFor::kAdapter) and rouses the others.
//
// Cost: three locked instructions to arrive, two per step of the machine; a look that finds nothing reads
// two lines.
//
// Threads: as BarrierEngine. Idea: Mellor-Crummey and Scott, "Algorithms for scalable synchronization on
// shared-memory multiprocessors", 1991, section 3.3.
#pragma once

#include "extended/barrier_board.hpp"
#include "extended/barrier_engine.hpp"
#include "firehose/base/status.hpp"
#include "rdma/transport.hpp"

#include <atomic>
#include <cstdint>
#include <vector>

namespace hydrant {

// How words leave for other nodes. Never waits, runs no handlers.
class BarrierMail {
 public:
  // Has `word` written into mail[parity][round] of the board of the node that stands 2^round behind. kOk: it
  // will be there, whatever this rank does. Others: not sent, to be tried again: whoever implements it ends
  // the job if that cannot help.
  virtual Status post(uint32_t parity, uint32_t round, uint64_t word) noexcept = 0;

 protected:
  ~BarrierMail() = default;
};

class RdmaBarrier final : public BarrierEngine {
 public:
  struct Place {
    uint32_t nodes = 1;
    std::vector<Rank> ranks = {0};   // of this node
    uint32_t index = 0;              // of this one among them
    std::vector<Rank> sources;       // by round: the first rank of the node that mail comes from
    BarrierBoard* board = nullptr;   // zeroed, or left behind by an engine of the same epoch
    BarrierMail* mail = nullptr;     // may be null if nodes is 1
    Transport* transport = nullptr;  // whose sleepers are to be roused; null: nobody sleeps
    uint32_t epoch = 0;              // that this rank has finished
  };
  explicit RdmaBarrier(Place place);

  // Rounds among so many nodes.
  static constexpr uint32_t rounds_of(uint32_t nodes) noexcept {
    uint32_t rounds = 0;
    for (uint64_t reach = 1; reach < nodes; reach *= 2) ++rounds;
    return rounds;
  }

  const char* name() const noexcept override { return "RDMADISSEM"; }
  void start(BarrierName mine, bool no_names) noexcept override;
  bool finish(BarrierName* all) noexcept override;
  uint32_t drive() noexcept override;
  bool needs_driving() const noexcept override { return rounds_ != 0; }
  bool ready() const noexcept override;
  // Makes this rank the watcher if there is none in this epoch: to be asked by those who will wait until the
  // barrier is over.
  WaitsFor waits_for() const noexcept override;
  void find_missing(std::vector<Rank>* missing) const override;

  uint32_t epoch() const noexcept { return epoch_.load(std::memory_order_relaxed); }

 private:
  using Word = std::atomic<uint64_t>;

  uint32_t ranks_here() const noexcept { return static_cast<uint32_t>(place_.ranks.size()); }
  BarrierBoard::Place& arrival(uint32_t parity, uint32_t index) const noexcept {
    return place_.board->arrival(parity, index, ranks_here());
  }
  bool has_result(uint32_t epoch, uint64_t* word) const noexcept;
  bool can_advance() const noexcept;
  bool try_lock() noexcept;
  uint32_t advance(bool has_just_come) noexcept;
  uint32_t advance_locked(bool* published) noexcept;
  bool gather(uint32_t epoch, uint32_t* steps) noexcept;
  bool exchange_mail(uint32_t epoch, uint32_t* steps) noexcept;
  void publish(uint32_t epoch) noexcept;
  void rouse_others() noexcept;

  const Place place_;
  const uint32_t rounds_;
  // Relaxed: what other threads see of it is a guess.
  std::atomic<uint32_t> epoch_;
  // The last post of this rank was refused: only to try again would tell more.
  std::atomic<bool> refused_{false};
};

}  // namespace hydrant
