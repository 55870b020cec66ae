// Which memory a network reads and writes: the client's own memory if it does not change before completion.
#include "tests/unit/extended/rma_fixture.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <functional>

namespace hydrant {
namespace {

using test::pattern;
using test::RmaFixture;

class RmaMemory : public RmaFixture {
 protected:
  size_t posted_inside(const std::vector<std::byte>& memory) const {
    return static_cast<size_t>(
        std::count_if(network->locals.begin(), network->locals.end(), [&](const void* at) {
          return std::less_equal<>()(static_cast<const void*>(memory.data()), at) &&
                 std::less<>()(at, static_cast<const void*>(memory.data() + memory.size()));
        }));
  }
};

TEST_F(RmaMemory, ClientMemoryIsPostedIfItStaysUnchanged) {
  in_new_thread([&] {
    for (const size_t bytes : {size_t{8}, size_t{100}, size_t{4096}, size_t{300001}}) {
      std::vector<std::byte> far(bytes);
      std::vector<std::byte> near = pattern(bytes, 6);
      network->locals.clear();
      gex_Event_Wait(
          gex_RMA_PutNB(team(), kPeer, far.data(), near.data(), bytes, GEX_EVENT_DEFER, 0));
      EXPECT_THAT(network->locals, ::testing::ElementsAre(near.data())) << bytes;
      EXPECT_EQ(far, near);
      network->locals.clear();
      gasnet_put_nbi_bulk(kPeer, far.data(), near.data(), bytes);
      gasnet_wait_syncnbi_puts();
      EXPECT_THAT(network->locals, ::testing::ElementsAre(near.data())) << bytes;
      std::vector<std::byte> back(bytes);
      network->locals.clear();
      gex_Event_Wait(gex_RMA_GetNB(team(), back.data(), kPeer, far.data(), bytes, 0));
      EXPECT_THAT(network->locals, ::testing::ElementsAre(back.data())) << bytes;
      EXPECT_EQ(back, far);
    }
  });
}

TEST_F(RmaMemory, CopyIsPostedIfTheSourceIsFreeAtReturn) {
  in_new_thread([&] {
    for (const size_t bytes : {size_t{8}, size_t{100}, size_t{4096}, size_t{300001}}) {
      std::vector<std::byte> far(bytes);
      const std::vector<std::byte> near = pattern(bytes, 7);
      network->locals.clear();
      gex_Event_Wait(
          gex_RMA_PutNB(team(), kPeer, far.data(), near.data(), bytes, GEX_EVENT_NOW, 0));
      EXPECT_EQ(network->locals.size(), (bytes + 4095) / 4096);
      EXPECT_EQ(posted_inside(near), 0u) << bytes;
      EXPECT_EQ(far, near);
    }
  });
}

}  // namespace
}  // namespace hydrant
