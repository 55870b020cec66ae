// A job whose ranks share one process and meet in RDMA barriers. Words arrive when the test delivers them.
#pragma once

#include "tests/unit/extended/rdma_network.hpp"

#include <memory>
#include <vector>

namespace hydrant::test {

class BarrierJob {
 public:
  struct Options {
    uint64_t turn_ns = RdmaBarrier::kTurnNs;
    Sleeping* sleeping = nullptr;
  };
  BarrierJob(uint32_t size, uint32_t per_node, uint32_t epoch = 0)
      : BarrierJob(size, per_node, epoch, Options{}) {}
  BarrierJob(uint32_t size, uint32_t per_node, uint32_t epoch, Options options)
      : network(size, per_node, 8) {
    network.turn_ns = options.turn_ns;
    network.sleeping = options.sleeping;
    for (uint32_t node = 0; node < network.nodes(); ++node)
      network.shared(node).progress_state.finished.store(epoch);
    for (Rank rank = 0; rank < size; ++rank)
      ranks.push_back(std::make_unique<RdmaBarrier>(network.config_of(rank, epoch)));
  }
  void start(Rank rank, BarrierName name = {}) { ranks[rank]->start(name, false); }
  bool finish(Rank rank) {
    BarrierName all;
    return ranks[rank]->finish(&all);
  }
  // Tests for the result without driving the barrier.
  bool finish_without_help(Rank rank) {
    const uint32_t epoch = ranks[rank]->epoch();
    const uint32_t node = network.node_of(rank);
    return barrier_word::is_of(network.shared(node).results[epoch & 1].word.load(), epoch);
  }
  void deliver_all() {
    for (Rank rank = 0; rank < ranks.size(); ++rank) {
      while (network.deliver(0, rank)) {
      }
    }
  }
  RdmaNetwork network;
  std::vector<std::unique_ptr<RdmaBarrier>> ranks;
};

}  // namespace hydrant::test
