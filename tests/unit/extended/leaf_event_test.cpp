// Local completions of implicit operations: other threads complete pieces while the thread counts more.
#include "extended/rma/leaf_event.hpp"

#include "extended/rma/common/count_pieces.hpp"
#include "extended/rma/common/rma_thread.hpp"
#include "tests/unit/extended/rma_fixture.hpp"

namespace hydrant::test {
namespace {

using LeafEvents = RmaFixture;

// ThreadSanitizer sees an assignment to a field that completions read.
TEST_F(LeafEvents, CountWhilePiecesComplete) {
  in_new_thread([] {
    for (int round = 0; round < 20; ++round) {
      CompletionCounter* const counter = LeafEvent(GEX_EVENT_GROUP).count(1);
      ASSERT_NE(counter, nullptr);
      std::thread completes([counter] { count_done(*counter); });
      EXPECT_EQ(LeafEvent(GEX_EVENT_GROUP).count(1), counter);
      completes.join();
      count_done(*counter);
      EXPECT_TRUE(counter->all_done());
      EXPECT_EQ(RmaThread::mine()->under_way(), 0U);
    }
  });
}

}  // namespace
}  // namespace hydrant::test
