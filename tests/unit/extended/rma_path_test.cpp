// Puts and gets distinguish two kinds of peers.
#include "extended/rma/common/rma_path.hpp"

#include "tests/unit/extended/rma_fixture.hpp"

#include <gmock/gmock.h>

namespace hydrant::test {
namespace {

// A network whose capabilities with each rank are settings of the test.
class MixedNetwork final : public LoopNetwork {
 public:
  uint32_t of_rank[3] = {};
  uint32_t peer_capabilities(Rank peer) const noexcept override { return of_rank[peer]; }
};

class RmaPath : public RmaFixture {
 protected:
  std::unique_ptr<LoopNetwork> make_network() override {
    auto made = std::make_unique<MixedNetwork>();
    mixed = made.get();
    return made;
  }
  void TearDown() override {
    for (uint32_t& capabilities : mixed->of_rank) capabilities = 0;
    choose({});
    RmaFixture::TearDown();
  }

  MixedNetwork* mixed = nullptr;
};

TEST_F(RmaPath, EachOfTwoKindsOfPeersHasItsPaths) {
  mixed->of_rank[2] = Transport::kOneSided;
  choose({});
  EXPECT_FALSE(paths(1).direct);
  EXPECT_TRUE(paths(2).direct);
}

TEST_F(RmaPath, AThirdKindOfPeerIsRefused) {
  mixed->of_rank[1] = Transport::kOneSided;
  mixed->of_rank[2] = Transport::kOneSided | Transport::kCompletesAtOnce;
  EXPECT_EQ(choose_paths(), Status::kUnsupported);
  EXPECT_THAT(last_error_text(),
              ::testing::HasSubstr("third kind of peer: capabilities 0x3 with rank 2"));
}

}  // namespace
}  // namespace hydrant::test
