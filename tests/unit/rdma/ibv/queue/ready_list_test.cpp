// Arrival queues and the list of ready ones against a naive model, single-threaded: several claims are open
// at once, as with several threads or a poll inside a handler.
#include "rdma/ibv/queue/ready_list.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <random>
#include <vector>

namespace hydrant::ibv {
namespace {

struct Model {
  std::vector<std::deque<uint32_t>> arrived;  // by queue: numbers of messages not delivered yet
  std::deque<size_t> ready;
};

TEST(ReadyList, DeliversEachQueueInOrderAndTheLongestReadyFirst) {
  constexpr size_t kQueues = 5;
  for (uint32_t seed = 1; seed <= 50; ++seed) {
    std::mt19937 random(seed);
    std::vector<DeliveryQueue> queues(kQueues);
    std::vector<std::unique_ptr<ReceiveBuffer>> buffers;
    ReadyList list;
    list.open(true);
    Model model{std::vector<std::deque<uint32_t>>(kQueues), {}};
    std::vector<size_t> claimed;
    const auto index_of = [&](const DeliveryQueue& queue) {
      return static_cast<size_t>(&queue - queues.data());
    };
    const auto is_claimed = [&](size_t index) {
      return std::find(claimed.begin(), claimed.end(), index) != claimed.end();
    };
    const auto is_ready = [&](size_t index) {
      return std::find(model.ready.begin(), model.ready.end(), index) != model.ready.end();
    };
    for (int i = 0; i < 2000; ++i) {
      ASSERT_EQ(list.size(), model.ready.size());
      if (random() % 2 == 0) {
        const size_t index = random() % kQueues;
        buffers.push_back(std::make_unique<ReceiveBuffer>());
        buffers.back()->counter = static_cast<uint32_t>(i);
        list.add(queues[index], *buffers.back());
        model.arrived[index].push_back(static_cast<uint32_t>(i));
        if (!is_claimed(index) && !is_ready(index)) model.ready.push_back(index);
      } else if (claimed.empty() || random() % 3 == 0) {
        DeliveryQueue* const queue = list.claim();
        ASSERT_EQ(queue == nullptr, model.ready.empty());
        if (queue == nullptr) continue;
        ASSERT_EQ(index_of(*queue), model.ready.front());
        claimed.push_back(model.ready.front());
        model.ready.pop_front();
      } else {
        const size_t at = random() % claimed.size();
        const size_t index = claimed[at];
        DeliveryQueue& queue = queues[index];
        const bool may_go_on = random() % 2 == 0;
        while (queue.front() != nullptr) {
          ASSERT_EQ(queue.front()->counter, model.arrived[index].front());
          model.arrived[index].pop_front();
          queue.pop();
        }
        const bool has_more = !model.arrived[index].empty();
        ASSERT_EQ(list.end_turn(queue, may_go_on), has_more && may_go_on);
        if (has_more && may_go_on) continue;
        claimed.erase(claimed.begin() + static_cast<ptrdiff_t>(at));
        if (has_more) model.ready.push_back(index);
      }
    }
  }
}

}  // namespace
}  // namespace hydrant::ibv
