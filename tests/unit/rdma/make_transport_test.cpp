// The transport of a rank: refused settings with their reasons, and the fence before neighbours share memory.
#include "rdma/make_transport.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <unistd.h>

namespace hydrant {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class CountingBootstrap final : public Bootstrap {
 public:
  explicit CountingBootstrap(const JobTopology& place) : place_(place) {}
  const char* name() const noexcept override { return "test"; }
  const JobTopology& topology() const noexcept override { return place_; }
  Status put(std::string_view, std::span<const std::byte>) noexcept override { return Status::kOk; }
  Status fence(uint64_t) noexcept override {
    ++fences;
    return fence_answers;
  }
  Status get(Rank, std::string_view, std::span<std::byte>, size_t*, uint64_t) noexcept override {
    return fail(Status::kBroken, "endpoint addresses are not queried here");
  }
  void leave(int, ExitReason, uint64_t) noexcept override {}

  uint32_t fences = 0;
  Status fence_answers = Status::kOk;

 private:
  const JobTopology place_;
};

std::string host_name() {
  char name[256] = "";
  EXPECT_EQ(gethostname(name, sizeof name), 0);
  return name;
}

class MakeTransport : public ::testing::Test {
 protected:
  // No machine has this device, and libraries without verbs do not search for it.
  void SetUp() override { ASSERT_EQ(setenv("HYDRANT_IBV_PORTS", "nosuchdevice", 1), 0); }
  void TearDown() override {
    for (const char* name : {"HYDRANT_IBV_PORTS", "HYDRANT_TRANSPORT", "HYDRANT_INJECT"})
      EXPECT_EQ(unsetenv(name), 0);
  }
  // Rank 0 of so many, on its node with the first ones.
  static JobTopology place(Rank size, std::vector<Rank> here, uint32_t nodes) {
    JobTopology made;
    made.size = size;
    made.node_count = nodes;
    made.node_ranks = std::move(here);
    return made;
  }
  Status make(CountingBootstrap& bootstrap) {
    Injection injection;
    EXPECT_EQ(read_injection(&injection), Status::kOk);
    const Status status = make_transport(bootstrap, mu_, true, injection, &transport_);
    EXPECT_EQ(transport_, nullptr);
    return status;
  }

 private:
  Mutex mu_;
  std::unique_ptr<Transport> transport_;
};

TEST_F(MakeTransport, OneRankNeedsNone) {
  ASSERT_EQ(setenv("HYDRANT_TRANSPORT", "ibv", 1), 0);
  CountingBootstrap bootstrap(place(1, {0}, 1));
  EXPECT_EQ(make(bootstrap), Status::kOk);
  EXPECT_EQ(bootstrap.fences, 0U);
}

TEST_F(MakeTransport, SharedMemoryAloneDoesNotReachOtherNodes) {
  ASSERT_EQ(setenv("HYDRANT_TRANSPORT", "shm", 1), 0);
  CountingBootstrap bootstrap(place(5, {0, 1}, 3));
  EXPECT_EQ(make(bootstrap), Status::kUnsupported);
  EXPECT_THAT(last_error_text(), AllOf(HasSubstr("reaches the 2 ranks of this node"),
                                       HasSubstr("5 on 3 nodes"), HasSubstr("auto or ibv")));
  EXPECT_EQ(bootstrap.fences, 0U);
}

TEST_F(MakeTransport, NetworkIsInjectedOverSharedMemoryOnly) {
  ASSERT_EQ(setenv("HYDRANT_INJECT", "delay=7us", 1), 0);
  CountingBootstrap apart(place(2, {0}, 2));
  EXPECT_EQ(make(apart), Status::kBadArg);
  EXPECT_THAT(last_error_text(), HasSubstr("HYDRANT_INJECT puts a network over shared memory"));
  ASSERT_EQ(setenv("HYDRANT_TRANSPORT", "ibv", 1), 0);
  CountingBootstrap together(place(2, {0, 1}, 1));
  EXPECT_EQ(make(together), Status::kBadArg);
}

// Its neighbours would wait for ever without it: the fence is of the whole job.
TEST_F(MakeTransport, SingleRankNodesTakePartInTheSetupFence) {
  CountingBootstrap bootstrap(place(3, {0}, 2));
  EXPECT_EQ(make(bootstrap), Status::kUnsupported);
  EXPECT_THAT(last_error_text(),
              HasSubstr("rank 0 on " + host_name() +
                        " reaches ranks on other nodes (3 ranks, 2 nodes) by verbs: "));
  EXPECT_EQ(bootstrap.fences, 1U);
  bootstrap.fence_answers = Status::kBroken;
  EXPECT_EQ(make(bootstrap), Status::kBroken);
}

TEST_F(MakeTransport, VerbsOnlyTransportsShareNoMemory) {
  ASSERT_EQ(setenv("HYDRANT_TRANSPORT", "ibv", 1), 0);
  CountingBootstrap bootstrap(place(2, {0, 1}, 1));
  EXPECT_EQ(make(bootstrap), Status::kUnsupported);
  EXPECT_THAT(last_error_text(),
              HasSubstr("rank 0 on " + host_name() +
                        " is to use verbs within the node (HYDRANT_TRANSPORT=ibv; left out, the 2 "
                        "ranks share memory): "));
  EXPECT_EQ(bootstrap.fences, 1U) << "neighbours without the setting are in this fence";
}

// The networks of the nodes are compared behind it.
TEST_F(MakeTransport, VerbsOnlyTransportsOfSeveralNodesHaveAFence) {
  ASSERT_EQ(setenv("HYDRANT_TRANSPORT", "ibv", 1), 0);
  CountingBootstrap bootstrap(place(2, {0}, 2));
  EXPECT_EQ(make(bootstrap), Status::kUnsupported);
  EXPECT_EQ(bootstrap.fences, 1U);
}

}  // namespace
}  // namespace hydrant
