// Puts and gets whose work request is made once, over the fake, which shows what is posted.
#include "tests/unit/rdma/ibv/ibv_world.hpp"
#include "tests/unit/rdma/ibv/verbs_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <thread>

namespace hydrant {
namespace {

using fake_verbs::Call;
using fake_verbs::last_posted;
using fake_verbs::LastPosted;
using ::testing::HasSubstr;
using testing::IbvWorld;
using testing::kTarget;
using testing::PinnedMemory;
using testing::Told;

constexpr size_t kPreparedBytes = 65536;

class IbvPersistent : public testing::VerbsTest {
 protected:
  // Two ranks that have talked, and memory of both.
  struct Pair {
    explicit Pair(const IbvTransport::Options& options = IbvWorld::single())
        : world(2, options),
          here(*world[0].transport, Access::kLocalWrite, kPreparedBytes),
          there(*world[1].transport, kTarget, kPreparedBytes) {
      world.connect(0, 1);
      (void)there.for_peer();
    }
    std::unique_ptr<PinnedOperations::PersistentRequest> prepare(bool is_put, size_t bytes) {
      IbvTransport& transport = *world[0].transport;
      return is_put ? transport.pinned()->make_persistent_put(1, there.address() + 5,
                                                              here.address() + 3, bytes)
                    : transport.pinned()->make_persistent_get(1, there.address() + 5,
                                                              here.address() + 3, bytes);
    }
    Status start(PinnedOperations::PersistentRequest& operation, Told* told) {
      return operation.start(there.imported.data(), here.key.data(), told);
    }
    // Started, and over.
    Status carry_out(PinnedOperations::PersistentRequest& operation) {
      Told told;
      const Status begun = world.insist([&] { return start(operation, &told); });
      if (begun != Status::kOk) return begun;
      EXPECT_TRUE(world.until([&] { return told.times != 0; }));
      EXPECT_EQ(told.times, 1U);
      return told.status;
    }
    // Registered again: the old key is invalid.
    static void pin_anew(PinnedMemory& memory, Access access) {
      const MemoryRange range{memory.address(), kPreparedBytes};
      ASSERT_EQ(memory.registrar->unpin(range, memory.key.data()), UnpinResult::kDone);
      ASSERT_EQ(memory.registrar->pin(range, access, memory.key.data()), Status::kOk);
    }
    IbvWorld world;
    PinnedMemory here;
    PinnedMemory there;
  };
  static void fill(PinnedMemory& memory, size_t seed) {
    for (size_t i = 0; i < kPreparedBytes; ++i)
      memory.data.get()[i] = static_cast<std::byte>(i * 7 + i / 253 + seed);
  }
};

TEST_F(IbvPersistent, EveryLengthMovesAgainAndAgain) {
  Pair pair;
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{8}, size_t{256}, size_t{257},
                             size_t{4096}, kPreparedBytes - 16}) {
    const auto put = pair.prepare(true, bytes);
    const auto get = pair.prepare(false, bytes);
    ASSERT_NE(put, nullptr);
    ASSERT_NE(get, nullptr);
    for (size_t round = 0; round < 3; ++round) {
      fill(pair.here, round + bytes);
      std::memset(pair.there.data.get(), 0, kPreparedBytes);
      ASSERT_EQ(pair.carry_out(*put), Status::kOk) << last_error_text();
      const std::byte* const target = pair.there.data.get() + 5;
      EXPECT_EQ(std::memcmp(target, pair.here.data.get() + 3, bytes), 0) << bytes;
      EXPECT_EQ(target[-1], std::byte{0});
      EXPECT_EQ(target[bytes], std::byte{0});
      std::memset(pair.here.data.get(), 0, kPreparedBytes);
      ASSERT_EQ(pair.carry_out(*get), Status::kOk);
      EXPECT_EQ(std::memcmp(target, pair.here.data.get() + 3, bytes), 0) << bytes;
      EXPECT_EQ(pair.here.data.get()[3 + bytes], std::byte{0});
    }
  }
}

TEST_F(IbvPersistent, PostedRequestEqualsThePreparedOne) {
  Pair pair;
  for (const bool is_put : {true, false}) {
    for (const size_t bytes : {size_t{64}, size_t{4096}}) {
      const auto operation = pair.prepare(is_put, bytes);
      const uint64_t posts = fake_verbs::traffic().posts;
      ASSERT_EQ(pair.carry_out(*operation), Status::kOk);
      const LastPosted first = last_posted();
      const bool is_inline = is_put && bytes <= pair.world[0].transport->pinned()->keyless_bytes();
      EXPECT_EQ(first.request.opcode, is_put ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ);
      EXPECT_EQ(first.request.send_flags,
                unsigned{IBV_SEND_SIGNALED} | (is_inline ? unsigned{IBV_SEND_INLINE} : 0U));
      EXPECT_EQ(first.request.wr.rdma.remote_addr, pair.there.address() + 5);
      EXPECT_EQ(first.piece.addr, pair.here.address() + 3);
      EXPECT_EQ(first.piece.length, bytes);
      ASSERT_EQ(pair.carry_out(*operation), Status::kOk);
      const LastPosted second = last_posted();
      EXPECT_EQ(second.at, first.at);
      EXPECT_NE(second.request.wr_id, first.request.wr_id);
      EXPECT_EQ(second.request.wr.rdma.rkey, first.request.wr.rdma.rkey);
      EXPECT_EQ(fake_verbs::traffic().posts, posts + 2);
      // An operation of another kind uses its own request, and leaves this one unchanged.
      Told told;
      ASSERT_EQ(pair.world[0].transport->pinned()->get(1, pair.there.for_peer(), pair.here.local(),
                                                       9, &told),
                Status::kOk);
      EXPECT_NE(last_posted().at, first.at);
      ASSERT_TRUE(pair.world.until([&] { return told.times != 0; }));
      ASSERT_EQ(pair.carry_out(*operation), Status::kOk);
      EXPECT_EQ(last_posted().piece.length, bytes);
    }
  }
}

// Memory that was recalled and pinned again has other keys, at the same address.
TEST_F(IbvPersistent, StartUsesTheCurrentKeys) {
  Pair pair;
  for (const bool is_put : {true, false}) {
    const auto operation = pair.prepare(is_put, 4096);
    for (size_t round = 0; round < 4; ++round) {
      fill(is_put ? pair.here : pair.there, round);
      ASSERT_EQ(pair.carry_out(*operation), Status::kOk) << last_error_text();
      EXPECT_EQ(std::memcmp(pair.there.data.get() + 5, pair.here.data.get() + 3, 4096), 0);
      if (round % 2 == 0) Pair::pin_anew(pair.there, kTarget);
      if (round >= 1) Pair::pin_anew(pair.here, Access::kLocalWrite);
      (void)pair.there.for_peer();
    }
  }
}

TEST_F(IbvPersistent, StaleKeyIsRefused) {
  Pair pair;
  const auto operation = pair.prepare(true, 4096);
  const std::array<std::byte, 64> stale = pair.there.imported;
  Pair::pin_anew(pair.there, kTarget);
  Told told;
  ASSERT_EQ(operation->start(stale.data(), pair.here.key.data(), &told), Status::kOk);
  ASSERT_TRUE(pair.world.until([&] { return told.times != 0; }));
  EXPECT_EQ(told.status, Status::kRefused);
  EXPECT_EQ(pair.start(*operation, &told), Status::kBroken);
}

TEST_F(IbvPersistent, MemoryWithoutAKeyIsABadArgument) {
  Pair pair;
  const auto put = pair.prepare(true, 4096);
  const auto inlined = pair.prepare(true, 8);
  const auto get = pair.prepare(false, 8);
  const std::byte* const remote = pair.there.imported.data();
  EXPECT_EQ(put->start(nullptr, pair.here.key.data(), nullptr), Status::kBadArg);
  EXPECT_EQ(put->start(remote, nullptr, nullptr), Status::kBadArg);
  EXPECT_THAT(last_error_text(), HasSubstr("has no key"));
  EXPECT_EQ(get->start(remote, nullptr, nullptr), Status::kBadArg);
  EXPECT_EQ(inlined->start(nullptr, nullptr, nullptr), Status::kBadArg);
  Told told;
  fill(pair.here, 1);
  EXPECT_EQ(inlined->start(remote, nullptr, &told), Status::kOk);
  ASSERT_TRUE(pair.world.until([&] { return told.times != 0; }));
  EXPECT_EQ(std::memcmp(pair.there.data.get() + 5, pair.here.data.get() + 3, 8), 0);
}

TEST_F(IbvPersistent, MayBeDeletedWhileInFlight) {
  Pair pair;
  fill(pair.here, 3);
  auto operation = pair.prepare(true, 4096);
  Told told;
  fake_verbs::hold(true);
  ASSERT_EQ(pair.start(*operation, &told), Status::kOk);
  operation.reset();
  pair.world.poll_all();
  EXPECT_EQ(told.times, 0U);
  fake_verbs::hold(false);
  ASSERT_TRUE(pair.world.until([&] { return told.times != 0; }));
  EXPECT_EQ(told.status, Status::kOk);
  EXPECT_EQ(std::memcmp(pair.there.data.get() + 5, pair.here.data.get() + 3, 4096), 0);
}

TEST_F(IbvPersistent, StartsAreLimitedByTheQueue) {
  IbvTransport::Options options = IbvWorld::single();
  options.send_depth = 16;
  Pair pair(options);
  const auto operation = pair.prepare(true, 512);
  for (uint32_t round = 0; round < 3; ++round) {
    fake_verbs::hold(true);
    std::array<Told, 17> told;
    size_t taken = 0;
    for (; taken < told.size(); ++taken) {
      const Status status = pair.start(*operation, &told.at(taken));
      if (status == Status::kNotReady) break;
      ASSERT_EQ(status, Status::kOk);
    }
    EXPECT_GE(taken, 8U);
    ASSERT_LT(taken, 16U);
    fake_verbs::hold(false);
    ASSERT_TRUE(pair.world.until([&] { return told.at(taken - 1).times != 0; }));
    for (size_t i = 0; i < taken; ++i) {
      EXPECT_EQ(told.at(i).times, 1U) << i;
      EXPECT_EQ(told.at(i).status, Status::kOk) << i;
    }
    EXPECT_EQ(told.at(taken).times, 0U);
  }
}

TEST_F(IbvPersistent, DeadPeerIsReported) {
  Pair pair;
  const auto operation = pair.prepare(true, 4096);
  Told before;
  fake_verbs::hold(true);
  ASSERT_EQ(pair.start(*operation, &before), Status::kOk);
  pair.world[0].transport->disconnect(1);
  pair.world.poll_all();
  Told after;
  EXPECT_EQ(pair.start(*operation, &after), Status::kBroken);
  EXPECT_THAT(last_error_text(), HasSubstr("rank 1 is gone"));
  fake_verbs::hold(false);
  ASSERT_TRUE(pair.world.until([&] { return before.times != 0; }));
  EXPECT_EQ(before.status, Status::kBroken);
  EXPECT_EQ(before.times, 1U);
  EXPECT_EQ(after.times, 0U);
}

TEST_F(IbvPersistent, RejectedRequestCompletesWithThePeersFailure) {
  for (const bool is_put : {true, false}) {
    Pair pair;
    const auto operation = pair.prepare(is_put, is_put ? 8 : 4096);
    Told told;
    fake_verbs::fail_call(Call::kPostSend, ENOMEM);
    ASSERT_EQ(pair.start(*operation, &told), Status::kOk);
    ASSERT_TRUE(pair.world.until([&] { return told.times != 0; }));
    EXPECT_EQ(told.status, Status::kBroken);
    EXPECT_EQ(told.times, 1U);
    EXPECT_EQ(pair.start(*operation, &told), Status::kBroken);
  }
}

// flush() after a completion posts no request for another one.
TEST_F(IbvPersistent, FlushAfterACompletionPostsNothing) {
  for (const bool is_put : {true, false}) {
    Pair pair;
    IbvTransport& transport = *pair.world[0].transport;
    transport.flush(now_ns() + 1'000'000'000);
    const auto operation = pair.prepare(is_put, 512);
    ASSERT_EQ(pair.carry_out(*operation), Status::kOk);
    const uint64_t posts = fake_verbs::traffic().posts;
    transport.flush(now_ns() + 1'000'000'000);
    EXPECT_EQ(fake_verbs::traffic().posts, posts) << (is_put ? "put" : "get");
  }
}

TEST_F(IbvPersistent, OperationOfSeveralRequestsIsNotPersistent) {
  IbvWorld world(2);
  IbvTransport& transport = *world[0].transport;
  EXPECT_EQ(transport.pinned()->make_persistent_put(1, 4096, 4096, 8), nullptr) << "not connected";
  world.connect(0, 1);
  const size_t most = transport.port().max_message_bytes;
  EXPECT_NE(transport.pinned()->make_persistent_put(1, 4096, 4096, most), nullptr);
  EXPECT_EQ(transport.pinned()->make_persistent_put(1, 4096, 4096, most + 1), nullptr);
  EXPECT_EQ(transport.pinned()->make_persistent_get(1, 4096, 4096, most + 1), nullptr);
  EXPECT_EQ(transport.pinned()->make_persistent_get(2, 4096, 4096, 8), nullptr)
      << "there is no such rank";
}

TEST_F(IbvPersistent, ThreadsStartTheirOwnAtOnce) {
  IbvTransport::Options options = IbvWorld::single();
  options.single_threaded = false;
  Pair pair(options);
  constexpr uint32_t kThreads = 3;
  const uint64_t deadline = testing::in_seconds(60);
  std::atomic<uint32_t> right{0};
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      struct Flag : Completion {
        std::atomic<bool> is_over{false};
      };
      IbvTransport& transport = *pair.world[0].transport;
      testing::Inbox inbox;
      const size_t at = t * size_t{4096};
      auto* const word = static_cast<uint32_t*>(static_cast<void*>(pair.here.data.get() + at));
      const auto put = transport.pinned()->make_persistent_put(1, pair.there.address() + at,
                                                               pair.here.address() + at, 2048);
      const auto get = transport.pinned()->make_persistent_get(1, pair.there.address() + at,
                                                               pair.here.address() + at, 2048);
      const auto finish = [&](PinnedOperations::PersistentRequest& operation) {
        Flag flag;
        flag.done = [](Completion& completion, Status) noexcept {
          static_cast<Flag&>(completion).is_over.store(true, std::memory_order_release);
        };
        Status status = Status::kNotReady;
        while ((status = operation.start(pair.there.imported.data(), pair.here.key.data(),
                                         &flag)) == Status::kNotReady &&
               now_ns() < deadline)
          (void)transport.poll(inbox, 10, false);
        while (status == Status::kOk && !flag.is_over.load(std::memory_order_acquire) &&
               now_ns() < deadline)
          (void)transport.poll(inbox, 10, false);
      };
      for (uint32_t round = 1; round <= 200; ++round) {
        *word = round * kThreads + t;
        finish(*put);
        *word = 0;
        finish(*get);
        if (*word == round * kThreads + t) ++right;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, kThreads * 200);
}

}  // namespace
}  // namespace hydrant
