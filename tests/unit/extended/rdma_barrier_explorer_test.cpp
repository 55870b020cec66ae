// Every interleaving of RDMA barriers in small jobs.
#include "tests/unit/extended/rdma_barrier_job.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace hydrant {
namespace {

using test::BarrierJob;
using test::RdmaNetwork;

// Steps: a rank arrives, checks or drives; a word, or a byte of it, arrives. Explores all states of a
// number of barriers.
class Explorer {
 public:
  // With a turn of 0 any rank posts, otherwise only posters, because no time passes.
  Explorer(uint32_t size, uint32_t per_node, uint32_t barriers, uint32_t bytes,
           uint64_t turn_ns = 0)
      : size_(size), per_node_(per_node), barriers_(barriers), bytes_(bytes), turn_ns_(turn_ns) {}

  // Returns the number of states.
  size_t run() {
    BarrierJob first(size_, per_node_);
    State begin = keep(first, std::vector<uint32_t>(size_), std::vector<uint32_t>(size_));
    std::deque<State> todo{begin};
    seen_.insert(begin.text());
    while (!todo.empty() && !::testing::Test::HasFailure()) {
      const State state = todo.front();
      todo.pop_front();
      size_t successors = 0;
      for (Rank rank = 0; rank < size_; ++rank) {
        for (uint32_t what = 0; what < 3; ++what) {
          State next;
          if (!step(state, rank, what, &next)) continue;
          if (next.text() == state.text()) continue;
          ++successors;
          if (seen_.insert(next.text()).second) todo.push_back(next);
        }
      }
      if (successors == 0) {
        ++ends_;
        for (Rank rank = 0; rank < size_; ++rank)
          EXPECT_EQ(state.finished[rank], barriers_) << "stuck: rank " << rank;
      }
      if (seen_.size() > 3'000'000) ADD_FAILURE() << "too many states";
    }
    EXPECT_EQ(ends_, 1u);
    return seen_.size();
  }

 private:
  struct State {
    std::vector<std::string> states;
    std::vector<std::deque<RdmaNetwork::Sent>> queues;  // addresses are stored as offsets
    std::vector<std::string> offsets;
    std::vector<uint32_t> started;
    std::vector<uint32_t> finished;
    std::string text() const {
      std::string all;
      for (const std::string& state : states) all += state;
      for (size_t i = 0; i < queues.size(); ++i) {
        all += '|' + offsets[i];
        for (const auto& sent : queues[i])
          all += std::to_string(sent.word) + ',' + std::to_string(sent.done) + ';';
      }
      for (Rank rank = 0; rank < started.size(); ++rank)
        all += ' ' + std::to_string(started[rank]) + '-' + std::to_string(finished[rank]);
      return all;
    }
  };

  // In odd barriers ranks have different names, in even ones the same name.
  static BarrierName name_of(Rank rank, uint32_t barrier) {
    return {NameState::kNamed, barrier % 2 != 0 ? rank % 2 + 1 : 5};
  }
  BarrierName all_of(uint32_t barrier) const {
    BarrierName all;
    for (Rank rank = 0; rank < size_; ++rank) all = join(all, name_of(rank, barrier));
    return all;
  }

  size_t state_bytes() const { return BarrierRdmaState::bytes(per_node_); }
  State keep(BarrierJob& job, std::vector<uint32_t> started, std::vector<uint32_t> finished) const {
    State state{{}, job.network.queues(), {}, std::move(started), std::move(finished)};
    for (uint32_t node = 0; node < job.network.nodes(); ++node) {
      for (uint32_t index = 0; index < per_node_; ++index) {
        // The processor of a rank is not part of the state.
        for (const uint32_t parity : {0u, 1u})
          job.network.shared(node).arrival(parity, index, per_node_).processor.store(0);
      }
      state.states.emplace_back(reinterpret_cast<const char*>(&job.network.shared(node)),
                                state_bytes());
    }
    // Replace an address by its offset from the shared state of its node.
    for (size_t i = 0; i < state.queues.size(); ++i) {
      BarrierRdmaState& shared = job.network.shared(static_cast<uint32_t>(i % job.network.nodes()));
      std::string offsets;
      for (auto& sent : state.queues[i]) {
        sent.first = static_cast<uint32_t>(sent.word % 8);
        const auto offset = sent.place - &shared.words[0][0];
        offsets += std::to_string(offset) + ':';
        sent.place = reinterpret_cast<std::atomic<uint64_t>*>(uintptr_t(offset));
      }
      state.offsets.push_back(offsets);
    }
    return state;
  }

  bool step(const State& from, Rank rank, uint32_t what, State* to) {
    if (what == 0 && (from.started[rank] != from.finished[rank] || from.started[rank] == barriers_))
      return false;
    if (what == 1 && from.started[rank] == from.finished[rank]) return false;
    BarrierJob job(size_, per_node_, 0, {.turn_ns = turn_ns_});
    for (uint32_t node = 0; node < job.network.nodes(); ++node)
      std::memcpy(static_cast<void*>(&job.network.shared(node)), from.states[node].data(),
                  state_bytes());
    job.network.queues() = from.queues;
    for (size_t i = 0; i < from.queues.size(); ++i) {
      BarrierRdmaState& shared = job.network.shared(static_cast<uint32_t>(i % job.network.nodes()));
      for (auto& sent : job.network.queues()[i])
        sent.place = &shared.words[0][0] + reinterpret_cast<uintptr_t>(sent.place);
    }
    RdmaBarrier engine(job.network.config_of(rank, from.started[rank]));
    std::vector<uint32_t> started = from.started;
    std::vector<uint32_t> finished = from.finished;
    if (what == 0) {
      ++started[rank];
      engine.start(name_of(rank, started[rank]), false);
    } else if (what == 1) {
      BarrierName all;
      if (engine.finish(&all)) {
        ++finished[rank];
        EXPECT_EQ(all, all_of(finished[rank]));
        for (Rank other = 0; other < size_; ++other) EXPECT_GE(started[other], finished[rank]);
      }
    } else {
      // A word from this rank to any node for which one is under way.
      bool any = false;
      for (uint32_t node = 0; node < job.network.nodes() && !any; ++node) {
        auto& queue = job.network.queues()[size_t{rank} * job.network.nodes() + node];
        if (queue.empty()) continue;
        any = job.network.deliver(rank, node * per_node_, bytes_);
      }
      if (!any) return false;
    }
    *to = keep(job, std::move(started), std::move(finished));
    return true;
  }

  const uint32_t size_;
  const uint32_t per_node_;
  const uint32_t barriers_;
  const uint32_t bytes_;
  const uint64_t turn_ns_;
  std::set<std::string> seen_;
  size_t ends_ = 0;
};

TEST(RdmaBarrierExplorer, TwoNodesOfOne) { EXPECT_GT(Explorer(2, 1, 5, 8).run(), 50u); }
TEST(RdmaBarrierExplorer, TwoNodesOfOneWithPartialWords) {
  EXPECT_GT(Explorer(2, 1, 5, 3).run(), 50u);
}
TEST(RdmaBarrierExplorer, TwoNodesOfTwo) { EXPECT_GT(Explorer(4, 2, 3, 8).run(), 300u); }
TEST(RdmaBarrierExplorer, TwoNodesOfTwoWherePostersPost) {
  EXPECT_GT(Explorer(4, 2, 3, 8, RdmaBarrier::kTurnNs).run(), 300u);
}
TEST(RdmaBarrierExplorer, ThreeNodesOfOne) { EXPECT_GT(Explorer(3, 1, 3, 8).run(), 300u); }

}  // namespace
}  // namespace hydrant
