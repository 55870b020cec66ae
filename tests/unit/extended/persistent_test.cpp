// Persistent operations between pinned memory: the network's request is prepared once, each start uses
// the current pins, and an idle operation holds no resources.
#include <hydrant/persistent.h>

#include "tests/unit/extended/pinned_hit_fixture.hpp"

#include <algorithm>

namespace hydrant {
namespace {

using test::pattern;

class Persistent : public test::PinnedHitFixture {
 protected:
  hydrant_operation_t make(bool is_put, size_t bytes) {
    hydrant_operation_t made = nullptr;
    EXPECT_EQ(is_put ? hydrant_put_init(team(), kPeer, far_, near_, bytes, &made)
                     : hydrant_get_init(team(), kPeer, far_, near_, bytes, &made),
              GASNET_OK);
    return made;
  }
  // Fills the source with new data and the target with other data.
  void renew(bool is_put, size_t bytes, unsigned seed) {
    wanted_ = pattern(bytes, seed);
    std::copy(wanted_.begin(), wanted_.end(), is_put ? near_ : far_);
    std::fill_n(is_put ? far_ : near_, bytes + 1, std::byte{0x33});
  }
  bool has_come(bool is_put, size_t bytes) const {
    const std::byte* const to = is_put ? far_ : near_;
    return std::equal(wanted_.begin(), wanted_.end(), to) && to[bytes] == std::byte{0x33};
  }
  std::vector<std::byte> wanted_;
};

TEST_F(Persistent, RequestIsPreparedOnceAndRestarted) {
  in_new_thread([&] {
    warm();
    for (const size_t bytes : {size_t{1}, size_t{64}, size_t{65}, size_t{4096}, size_t{200000}}) {
      for (const bool is_put : {true, false}) {
        const uint64_t prepared = loop->prepared;
        const uint64_t again = loop->again;
        const uint64_t before = hits();
        hydrant_operation_t operation = make(is_put, bytes);
        for (unsigned round = 0; round < 5; ++round) {
          renew(is_put, bytes, round);
          ASSERT_EQ(hydrant_start(operation), GASNET_OK);
          // An operation that has read its source at return holds no local pin.
          EXPECT_EQ(holds(), is_put && bytes <= loop->inline_bytes_without_key ? 0u : 1u);
          EXPECT_EQ(hydrant_start(operation), GASNET_ERR_BAD_ARG) << "it is under way";
          ASSERT_EQ(hydrant_wait(operation), GASNET_OK);
          EXPECT_TRUE(has_come(is_put, bytes)) << bytes;
          EXPECT_EQ(holds(), 0u) << "an idle operation holds nothing";
        }
        EXPECT_EQ(loop->prepared, prepared + 1) << bytes;
        EXPECT_EQ(loop->again, again + 5) << bytes;
        EXPECT_EQ(hits(), before + 5);
        EXPECT_EQ(hydrant_operation_free(&operation), GASNET_OK);
        EXPECT_EQ(loop->prepared_alive, 0u);
      }
    }
    EXPECT_EQ(loop->without_key, 0u);
  });
}

// The firehose was given up, or the target's memory was replaced: an old key must not be used.
TEST_F(Persistent, StartUsesTheCurrentPins) {
  in_new_thread([&] {
    warm();
    constexpr size_t kBytes = 8192;
    const uint64_t refused = refused_operation_count();
    for (const bool is_put : {true, false}) {
      hydrant_operation_t operation = make(is_put, kBytes);
      const uint64_t again = loop->again;
      for (unsigned round = 0; round < 9; ++round) {
        if (round % 3 == 1) {
          EXPECT_EQ(hydrant_evict(kPeer, far_, kArea), GASNET_OK);
        }
        if (round % 3 == 2) {
          ASSERT_EQ(mmap(far_, kArea, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
                    far_);
        }
        for (unsigned time = 0; time < 3; ++time) {
          renew(is_put, kBytes, round * 3 + time);
          ASSERT_EQ(hydrant_start(operation), GASNET_OK);
          ASSERT_EQ(hydrant_wait(operation), GASNET_OK);
          EXPECT_TRUE(has_come(is_put, kBytes)) << round;
        }
      }
      EXPECT_GE(loop->again, again + 9) << "new pins are used again";
      EXPECT_EQ(hydrant_operation_free(&operation), GASNET_OK);
    }
    EXPECT_EQ(refused_operation_count(), refused);
  });
}

// The memory of both ends is released while the operation is under way: no deregistration before its end.
TEST_F(Persistent, OperationUnderWayHoldsItsMemory) {
  loop->puts_are_ordered = false;  // messages overtake it
  for (const bool is_put : {true, false}) {
    in_new_thread([&] {
      warm();
      hydrant_operation_t operation = make(is_put, 4096);
      const uint64_t refused = refused_operation_count();
      const uint64_t recalled = statistics().recalled;
      renew(is_put, 4096, 5);
      ASSERT_EQ(hydrant_start(operation), GASNET_OK);
      EXPECT_EQ(hydrant_invalidate(the_firehose.domain, far_, kArea), GASNET_OK);
      EXPECT_EQ(hydrant_invalidate(the_firehose.domain, near_, kArea), GASNET_OK);
      loop->late_polls = 250;
      ASSERT_EQ(hydrant_wait(operation), GASNET_OK);
      EXPECT_TRUE(has_come(is_put, 4096));
      EXPECT_EQ(loop->late_polls, 0u);
      EXPECT_GT(statistics().recalled, recalled) << "while it waited";
      EXPECT_EQ(refused_operation_count(), refused);
      EXPECT_EQ(hydrant_operation_free(&operation), GASNET_OK);
      for (int polls = 0; statistics().zombies != 0 && polls < 100; ++polls) poll_all();
      EXPECT_EQ(statistics().zombies, 0u);
    });
  }
}

// Several times, so that no state of an earlier refusal remains.
TEST_F(Persistent, OperationRefusedAfterThePostUsesMessages) {
  in_new_thread([&] {
    warm();
    for (const size_t bytes : {size_t{8}, size_t{3000}, size_t{100000}}) {
      for (const bool is_put : {true, false}) {
        hydrant_operation_t operation = make(is_put, bytes);
        for (unsigned round = 0; round < 5; ++round) {
          renew(is_put, bytes, round);
          const uint64_t refused = refused_operation_count();
          const uint64_t before = hits();
          ASSERT_EQ(hydrant_start(operation), GASNET_OK);
          loop->refused_from_now = round % 2;
          ASSERT_EQ(hydrant_wait(operation), GASNET_OK);
          EXPECT_TRUE(has_come(is_put, bytes)) << bytes;
          EXPECT_EQ(refused_operation_count(), refused + round % 2);
          EXPECT_EQ(hits(), before + 1);
          EXPECT_EQ(holds(), 0u);
        }
        EXPECT_EQ(hydrant_operation_free(&operation), GASNET_OK);
      }
    }
  });
}

TEST_F(Persistent, OperationNotAcceptedIsRetriedOrUsesMessages) {
  in_new_thread([&] {
    warm();
    for (const Status refusal : {Status::kRefused, Status::kNotReady}) {
      for (const bool is_put : {true, false}) {
        constexpr size_t kBytes = 4096;
        hydrant_operation_t operation = make(is_put, kBytes);
        for (unsigned round = 0; round < 3; ++round) {
          renew(is_put, kBytes, round);
          loop->refusal = round == 1 ? refusal : Status::kOk;
          loop->refused_call = loop->calls + 1;
          const uint64_t before = hits();
          ASSERT_EQ(hydrant_start(operation), GASNET_OK) << status_name(refusal);
          ASSERT_EQ(hydrant_wait(operation), GASNET_OK);
          loop->refusal = Status::kOk;
          EXPECT_TRUE(has_come(is_put, kBytes)) << status_name(refusal);
          EXPECT_EQ(hits(), before + 1);
          EXPECT_EQ(holds(), 0u);
        }
        EXPECT_EQ(hydrant_operation_free(&operation), GASNET_OK);
      }
    }
  });
}

TEST_F(Persistent, DeadPeerIsAnError) {
  in_new_thread([&] {
    warm();
    hydrant_operation_t operation = make(true, 4096);
    ASSERT_EQ(hydrant_start(operation), GASNET_OK);
    ASSERT_EQ(hydrant_wait(operation), GASNET_OK);
    // Under way.
    loop->breakage = Status::kBroken;
    loop->broken_completion = loop->completions + 1;
    ASSERT_EQ(hydrant_start(operation), GASNET_OK);
    EXPECT_EQ(hydrant_wait(operation), HYDRANT_ERR_BROKEN);
    EXPECT_EQ(holds(), 0u);
    // Before the post.
    loop->refusal = Status::kBroken;
    loop->refused_call = loop->calls + 1;
    loop->refused_calls = 1000;
    EXPECT_EQ(hydrant_start(operation), HYDRANT_ERR_BROKEN);
    EXPECT_EQ(holds(), 0u);
    loop->refusal = Status::kOk;
    EXPECT_EQ(hydrant_wait(operation), GASNET_OK) << "it was not started";
    EXPECT_EQ(hydrant_operation_free(&operation), GASNET_OK);
  });
}

TEST_F(Persistent, FreeWaitsForTheOperation) {
  in_new_thread([&] {
    warm();
    hydrant_operation_t operation = make(true, 4096);
    for (unsigned round = 0; round < 2; ++round) {
      renew(true, 4096, round);
      ASSERT_EQ(hydrant_start(operation), GASNET_OK);
      if (round == 0) {
        ASSERT_EQ(hydrant_wait(operation), GASNET_OK);
      }
    }
    EXPECT_EQ(hydrant_operation_free(&operation), GASNET_OK);
    EXPECT_EQ(operation, nullptr);
    EXPECT_TRUE(has_come(true, 4096));
    EXPECT_EQ(loop->prepared_alive, 0u);
    EXPECT_EQ(holds(), 0u);
  });
}

TEST_F(Persistent, WorksWithoutAPreparedRequest) {
  loop->prepares = false;
  in_new_thread([&] {
    warm();
    for (const size_t bytes : {size_t{8}, size_t{64}, size_t{4096}, size_t{5} << 17}) {
      for (const bool is_put : {true, false}) {
        hydrant_operation_t operation = make(is_put, bytes);
        const uint64_t before = hits();
        for (unsigned round = 0; round < 3; ++round) {
          renew(is_put, bytes, round);
          ASSERT_EQ(hydrant_start(operation), GASNET_OK);
          ASSERT_EQ(hydrant_wait(operation), GASNET_OK);
          EXPECT_TRUE(has_come(is_put, bytes)) << bytes;
        }
        EXPECT_EQ(hits(), before + 3);
        EXPECT_EQ(hydrant_operation_free(&operation), GASNET_OK);
      }
    }
    EXPECT_EQ(loop->again, 0u);
  });
}

// Started in one thread and awaited in another; the threads have ended.
TEST_F(Persistent, AnyThreadMayStartIt) {
  hydrant_operation_t operation = nullptr;
  in_new_thread([&] {
    warm();
    operation = make(true, 4096);
  });
  for (unsigned round = 0; round < 4; ++round) {
    in_new_thread([&] {
      renew(true, 4096, round);
      ASSERT_EQ(hydrant_start(operation), GASNET_OK);
      ASSERT_EQ(hydrant_wait(operation), GASNET_OK);
      EXPECT_TRUE(has_come(true, 4096));
    });
  }
  in_new_thread([&] { EXPECT_EQ(hydrant_operation_free(&operation), GASNET_OK); });
  EXPECT_EQ(loop->prepared_alive, 0u);
}

}  // namespace
}  // namespace hydrant
