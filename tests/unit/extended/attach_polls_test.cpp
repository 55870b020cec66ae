// A rank polls replies in the fence after the barrier of an attach: others may still be in that barrier.
#include "am/segment/neighbourhood.hpp"
#include "am/segment/segment_size.hpp"
#include "am/segment/segments.hpp"
#include "extended/barrier/barriers.hpp"
#include "tests/support/child_process.hpp"
#include "tests/support/fake_bootstrap.hpp"
#include "tests/unit/am/job_fixture.hpp"

#include <gasnet_config.h>
#include <memory>
#include <string>

namespace hydrant::test {
namespace {

// A store whose other ranks arrive at each fence after some polls.
class SlowStore final : public Bootstrap {
 public:
  testing::FakeBootstrap entries;

  const char* name() const noexcept override { return "slow"; }
  const JobTopology& topology() const noexcept override { return entries.stands; }
  Status put(std::string_view key, std::span<const std::byte> entry) noexcept override {
    return entries.put(key, entry);
  }
  Status fence(uint64_t deadline_ns) noexcept override { return entries.fence(deadline_ns); }
  Status fence_and_poll(uint64_t deadline_ns, PollFn poll) noexcept override {
    for (int i = 0; i < 5; ++i) poll();
    return entries.fence(deadline_ns);
  }
  Status get(Rank rank, std::string_view key, std::span<std::byte> entry, size_t* bytes,
             uint64_t deadline_ns) noexcept override {
    return entries.get(rank, key, entry, bytes, deadline_ns);
  }
  void leave(int, ExitReason, uint64_t) noexcept override {}
};

class AttachPolls : public JobFixture {
 protected:
  // The network has a message for this rank.
  void arrive(Lane lane) {
    SentMessage message;
    message.lane = lane;
    message.tag = Tag{.handler = kShort0}.pack();
    transport->arriving.push_back(message);
  }
  // Rank 0 of three on a node each, with barriers that wait for no other rank.
  static bool start() {
    auto store = std::make_unique<SlowStore>();
    store->entries.stands.size = 3;
    store->entries.stands.node_count = 3;
    job().bootstrap = std::move(store);
    hydrant_job_info.size = 1;
    const bool is_good = choose_max_segment(1) == Status::kOk && start_barriers(0) == Status::kOk;
    hydrant_job_info.size = 3;
    return is_good;
  }
  static std::string attach() {
    return attach_segments(GASNET_PAGESIZE, 0) == Status::kOk ? "" : last_error_text();
  }
};

TEST_F(AttachPolls, RepliesAreDeliveredAndRequestsWait) {
  EXPECT_EQ(testing::run_in_child([this]() -> std::string {
              if (!start()) return last_error_text();
              arrive(Lane::kReply);
              arrive(Lane::kRequest);
              if (std::string wrong = attach(); !wrong.empty()) return wrong;
              if (calls.size() != 1) return std::to_string(calls.size()) + " messages";
              return transport->arriving.size() == 1 ? "" : "the request was delivered";
            }),
            "");
}

TEST_F(AttachPolls, HandlersAskForNothingThatTheFenceHolds) {
  EXPECT_EQ(testing::run_in_child([this]() -> std::string {
              if (!start()) return last_error_text();
              std::string wrong;
              in_handler = [&wrong](gex_Token_t) {
                SegmentAddress address;
                RankLocation location;
                if (find_segment(1, &address) != Status::kOk || segments_are_known() ||
                    is_in_segment_of(1, GASNET_PAGESIZE, 1))
                  wrong = "a segment is known";
                if (find_location(1, &location) != Status::kNotReady) wrong = "a location is known";
                if (max_global_segment() != max_local_segment()) wrong = "another maximum";
              };
              arrive(Lane::kReply);
              if (std::string failed = attach(); !failed.empty()) return failed;
              return calls.size() == 1 ? wrong : "no message was delivered";
            }),
            "");
}

}  // namespace
}  // namespace hydrant::test
