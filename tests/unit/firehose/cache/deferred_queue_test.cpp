#include "firehose/cache/deferred_queue.hpp"

#include "tests/unit/firehose/cache/parts_fixture.hpp"

#include <deque>

namespace hydrant {
namespace {

using testing::Random;

// Random pushes, attempts and completions against a deque of numbers, in first-come, first-served order.
TEST(DeferredQueueModel, KeepsTheOrderOfADeque) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    Random random(seed);
    DeferredQueue queue;
    std::deque<std::unique_ptr<DeferredPin>> all;
    std::deque<DeferredPin*> model;
    const auto push = [&] {
      all.push_back(std::make_unique<DeferredPin>());
      queue.push(all.back().get());
      model.push_back(all.back().get());
    };
    for (int step = 0; step < 300; ++step) {
      switch (random.below(4)) {
        case 0: {
          DeferredPin* pin = queue.pop();
          ASSERT_EQ(pin, model.empty() ? nullptr : model.front()) << "seed " << seed;
          if (pin == nullptr) break;
          model.pop_front();
          queue.finish();
          break;
        }
        case 1: {
          DeferredList taken;
          DeferredList again;
          queue.take_all(&taken);
          std::deque<DeferredPin*> kept;
          while (DeferredPin* pin = taken.pop()) {
            ASSERT_EQ(pin, model.front()) << "seed " << seed;
            model.pop_front();
            if (random.below(3) == 0) {
              queue.finish();
            } else {
              again.push(pin);
              kept.push_back(pin);
            }
            // A callback defers another pin meanwhile: it stands behind all that were taken.
            if (random.below(8) == 0) push();
          }
          queue.requeue(&again);
          model.insert(model.begin(), kept.begin(), kept.end());
          break;
        }
        default: push();
      }
      ASSERT_EQ(queue.empty(), model.empty()) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace hydrant
