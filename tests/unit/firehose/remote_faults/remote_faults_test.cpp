// Remote pins where something fails: each allocation, each message, each registration of a history in turn.
// Whatever fails, each request is answered once, and in the end nothing is pinned or charged.
#include "tests/support/remote_pin_cluster.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <new>

namespace {
// The n-th allocation that may fail from now does so; 0: none.
std::atomic<int> g_fail_at{0};
std::atomic<int> g_allocations{0};

bool fails() {
  ++g_allocations;
  return g_fail_at != 0 && --g_fail_at == 0;
}
}  // namespace

// Replaces the library's operator. The throwing operators cannot be replaced: the library has no exceptions.
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return fails() ? nullptr : ::operator new(bytes);
}
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept {
  return fails() ? nullptr : ::operator new[](bytes);
}
void* operator new(size_t bytes, std::align_val_t align, const std::nothrow_t&) noexcept {
  return fails() ? nullptr : ::operator new(bytes, align);
}
void* operator new[](size_t bytes, std::align_val_t align, const std::nothrow_t&) noexcept {
  return fails() ? nullptr : ::operator new[](bytes, align);
}

namespace hydrant::testing {
namespace {

constexpr size_t kLongArgs = 3000;  // more than fits into a message without an allocation
constexpr int kMaxSteps = 20000;
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int kStep = 5;  // every fifth place to fail: it takes so much longer
#else
constexpr int kStep = 1;
#endif

struct Asked {
  RemoteResult result;
  int answers = 0;
  uint32_t from = 0;
};

class RemoteFaults : public ::testing::Test {
 protected:
  void TearDown() override { g_fail_at = 0; }

  static std::unique_ptr<RemotePinCluster> make_world(uint32_t flags) {
    RemotePinCluster::Settings settings;
    settings.ranks = 3;
    settings.pages = 64;
    settings.options.flags = flags;
    settings.options.merge_bytes = 1;
    settings.options.stream_bytes = 1;
    settings.options.budget_bytes = 12 * kPage;
    settings.options.max_peer_regions = 64;
    settings.options.max_firehoses = 64;
    settings.options.remote = [](void*, uint32_t, const hydrant_region_t*, hydrant_range_t,
                                 const void* args, size_t len, void* answer,
                                 size_t room) -> size_t {
      const size_t n = std::min(len, room);
      std::memcpy(answer, args, n);
      return n;
    };
    return std::make_unique<RemotePinCluster>(settings);
  }

  Asked* ask(RemotePinCluster& world, uint32_t from, uint32_t to, size_t page, bool call) {
    static const std::vector<std::byte> args(kLongArgs, std::byte{3});
    asked_.push_back(std::make_unique<Asked>());
    Asked* asked = asked_.back().get();
    asked->from = from;
    hydrant_remote_call_t with{};
    with.done = [](void* context, hydrant_pin_t pin, const hydrant_remote_outcome_t* outcome) {
      auto& of = *static_cast<Asked*>(context);
      ++of.answers;
      of.result.pin = pin;
      of.result.status = outcome->status;
      EXPECT_EQ(pin.region != nullptr, outcome->status == GASNET_OK);
      if (outcome->called != 0 && outcome->status == GASNET_OK) {
        EXPECT_LE(outcome->answer_len, kLongArgs);  // as much as there was room for in the reply
        EXPECT_GT(outcome->answer_len, 0u);
      }
    };
    with.context = asked;
    if (call) {
      with.flags = HYDRANT_REMOTE_CALL;
      with.args = args.data();
      with.args_len = args.size();
    }
    hydrant_pin_t pin{};
    asked->result.code = hydrant_remote_pin(world[from].end, to, world[to].arena.addr(page), kPage,
                                            HYDRANT_REMOTE_WRITE, &with, &pin);
    if (asked->result.code != GASNET_OK || pin.region != nullptr) ++asked->answers;
    if (pin.region != nullptr) asked->result.pin = pin;
    return asked;
  }

  void release_all() {
    for (auto& asked : asked_) {
      if (!asked->result.held()) continue;
      EXPECT_EQ(hydrant_remote_release(asked->result.pin), GASNET_OK);
      asked->result.pin = {};
    }
  }

  static void settle(RemotePinCluster& world) {
    int steps = 0;
    for (int quiet = 0; quiet < 3 && steps < kMaxSteps; ++steps) {
      const bool any = world.pending() != 0;
      if (any) world.deliver();
      int did = 0;
      for (uint32_t i = 0; i < world.size(); ++i) did += hydrant_remote_poll(world[i].end);
      quiet = any || did > 0 ? 0 : quiet + 1;
      if (quiet != 0) std::this_thread::sleep_for(std::chrono::microseconds(25));
    }
    EXPECT_LT(steps, kMaxSteps);
  }

  // Some of everything: moves with and without a call, joins, evictions, recalls, both ways.
  void live(RemotePinCluster& world) {
    asked_.clear();
    for (size_t round = 0; round < 3; ++round) {
      for (uint32_t from = 0; from < 3; ++from) {
        const uint32_t to = (from + 1) % 3;
        for (size_t i = 0; i < 3; ++i) ask(world, from, to, 4 * round + i, i == 1);
        ask(world, from, to, 4 * round, false);  // joins
        ask(world, from, (from + 2) % 3, round, true);
      }
      if (round == 1) {
        hydrant_invalidate(world[1].domain, world[1].arena.page(0), 6 * kPage);
        hydrant_remote_poll(world[1].end);
      }
      settle(world);
      release_all();
      settle(world);
    }
  }

  // Answered once each. `dead`: messages were lost, so that it takes the death of all peers.
  void expect_answers(RemotePinCluster& world, bool dead) {
    if (dead) {
      for (uint32_t i = 0; i < 3; ++i) {
        for (uint32_t peer = 0; peer < 3; ++peer) {
          if (peer != i) hydrant_remote_peer_gone(world[i].end, peer);
        }
      }
      settle(world);
      release_all();
    } else {
      for (uint32_t i = 0; i < 3; ++i) {
        EXPECT_EQ(hydrant_remote_quiet(world[i].end), GASNET_OK);
        for (uint32_t peer = 0; peer < 3; ++peer)
          hydrant_remote_evict(world[i].end, peer, 0, SIZE_MAX);
      }
      settle(world);
    }
    for (const auto& asked : asked_) EXPECT_EQ(asked->answers, 1);
    for (uint32_t i = 0; i < 3; ++i) {
      const hydrant_remote_stats_t stats = world.stats(i);
      EXPECT_EQ(stats.exports, 0u);
      EXPECT_EQ(stats.exported_bytes, 0u);
      EXPECT_EQ(stats.firehose_bytes, 0u);
      EXPECT_EQ(stats.zombies, 0u);
      hydrant_flush(world[i].domain);
      EXPECT_EQ(world[i].registrar.live(), 0u);
      EXPECT_EQ(world[i].registrar.problems(), "");
    }
    EXPECT_EQ(world.pending(), 0u);
  }

  size_t granted() const {
    size_t n = 0;
    for (const auto& asked : asked_) n += asked->result.code == GASNET_OK && asked->answers == 1;
    return n;
  }

  std::vector<std::unique_ptr<Asked>> asked_;
};

TEST_F(RemoteFaults, EachAllocationThatFails) {
  for (const uint32_t flags : {0u, HYDRANT_REMOTE_INLINE_DONE | HYDRANT_REMOTE_INLINE_REMOTE}) {
    int n = 1;
    for (bool reached = true; reached; n += kStep) {
      SCOPED_TRACE(n);
      auto world = make_world(flags);
      g_fail_at = n;
      live(*world);
      reached = g_fail_at == 0;
      g_fail_at = 0;
      expect_answers(*world, false);
      if (HasFailure()) return;
    }
    EXPECT_GT(n, 60);
  }
}

TEST_F(RemoteFaults, AllAllocationsFromSomeOnFail) {
  for (const int n : {1, 5, 17, 40, 80}) {
    SCOPED_TRACE(n);
    auto world = make_world(0);
    world->settle();
    asked_.clear();
    for (int i = 0; i < 20; ++i) {
      g_fail_at = i < n ? 0 : 1;
      ask(*world, 0, 1, static_cast<size_t>(i), i % 2 == 1);
      for (int step = 0; step < 3; ++step) {
        if (world->pending() != 0) {
          if (i >= n) g_fail_at = 1;
          world->deliver();
        }
        world->poll_all();
      }
      g_fail_at = 0;
    }
    settle(*world);
    release_all();
    settle(*world);
    expect_answers(*world, false);
  }
}

TEST_F(RemoteFaults, FailedEndpointCreationLeavesNothing) {
  RemotePinCluster world{RemotePinCluster::Settings{}};
  hydrant_messenger_t messenger{};
  messenger.size = sizeof messenger;
  messenger.max_message_bytes = 4096;
  messenger.send = [](void*, uint32_t, uint32_t, void*, const void*, size_t) { return GASNET_OK; };
  hydrant_remote_options_t options;
  hydrant_remote_options_init(&options);
  options.domain = world[0].domain;
  options.ranks = 2;
  options.messenger = &messenger;
  int refused = 0;
  for (int n = 1; n < 100; ++n) {
    hydrant_remote_t end = 77;
    g_fail_at = n;
    const int code = hydrant_remote_create(&options, &end);
    const bool reached = g_fail_at == 0;
    g_fail_at = 0;
    if (!reached) {
      ASSERT_EQ(code, GASNET_OK);
      hydrant_remote_destroy(end);
      break;
    }
    ++refused;
    EXPECT_EQ(code, GASNET_ERR_RESOURCE);
    EXPECT_EQ(end, 77u);
  }
  EXPECT_GT(refused, 0);
}

TEST_F(RemoteFaults, EachMessageMayFindNoRoom) {
  auto count = make_world(0);
  live(*count);
  uint64_t sends = 0;
  for (uint32_t i = 0; i < 3; ++i) sends += (*count)[i].sent[0] + (*count)[i].sent[1];
  ASSERT_GT(sends, 30u);
  for (int n = 1; n <= static_cast<int>(sends); n += kStep) {
    SCOPED_TRACE(n);
    auto world = make_world(0);
    world->refuse_at(n, GASNET_ERR_NOT_READY);
    live(*world);
    expect_answers(*world, false);
    if (HasFailure()) return;
  }
}

TEST_F(RemoteFaults, EachMessageThatFindsNoPeer) {
  for (int n = 1; n <= 60; n += kStep) {
    SCOPED_TRACE(n);
    auto world = make_world(0);
    world->refuse_at(n, HYDRANT_ERR_BROKEN);
    live(*world);
    expect_answers(*world, true);
    if (HasFailure()) return;
  }
}

TEST_F(RemoteFaults, EverySecondOrThirdMessageFindsNoRoom) {
  for (const int n : {2, 3, 5}) {
    SCOPED_TRACE(n);
    auto world = make_world(HYDRANT_REMOTE_INLINE_DONE);
    world->refuse_each(n);
    live(*world);
    EXPECT_GT(granted(), 20u);
    expect_answers(*world, false);
  }
}

TEST_F(RemoteFaults, EachRegistrationThatFails) {
  for (const int status :
       {GASNET_ERR_NOT_READY, HYDRANT_ERR_REFUSED, GASNET_ERR_RESOURCE, HYDRANT_ERR_BROKEN}) {
    for (uint64_t n = 1; n <= 12; ++n) {
      SCOPED_TRACE(std::to_string(status) + " at " + std::to_string(n));
      auto world = make_world(0);
      for (uint32_t i = 0; i < 3; ++i) (*world)[i].registrar.fail_pin(n, status);
      live(*world);
      expect_answers(*world, false);
      if (HasFailure()) return;
    }
  }
}

TEST_F(RemoteFaults, RegistrationsThatFailAtRandom) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE(seed);
    auto world = make_world(0);
    for (uint32_t i = 0; i < 3; ++i) (*world)[i].registrar.fail_pins(200, seed);
    world->refuse_each(7);
    live(*world);
    expect_answers(*world, false);
  }
}

// Every pin of such a peer is refused before any state is allocated for it; a table entry that is free again
// is reused.
TEST_F(RemoteFaults, PeerBeyondTheLimitCostsNoAllocation) {
  constexpr uint32_t kPlaces = 1984;
  RemotePinCluster::Settings settings;
  settings.ranks = kPlaces + 8;
  settings.present = 1;
  settings.pages = 4;
  settings.options.max_peer_regions = 1;
  hydrant_domain_t domain = 0;
  const auto ask = [](RemotePinCluster& world, uint32_t peer) {
    hydrant_pin_t pin{};
    return hydrant_remote_pin(world[0].end, peer, 16 * kPage, kPage, HYDRANT_REMOTE_WRITE, nullptr,
                              &pin);
  };
  {
    RemotePinCluster world(settings);
    for (uint32_t peer = 1; peer <= kPlaces; ++peer)
      ASSERT_EQ(ask(world, peer), GASNET_OK) << peer << ": " << hydrant_error_text();
    const int before = g_allocations;
    for (int i = 0; i < 100; ++i) {
      ASSERT_EQ(ask(world, kPlaces + 1), GASNET_ERR_RESOURCE);
      ASSERT_EQ(hydrant_pin_status(hydrant_try_remote_pin(world[0].end, kPlaces + 2, 16 * kPage,
                                                          kPage, HYDRANT_REMOTE_WRITE)),
                GASNET_ERR_RESOURCE);
    }
    EXPECT_EQ(g_allocations, before);
    EXPECT_NE(std::strstr(hydrant_error_text(), "1984 peers already"), nullptr)
        << hydrant_error_text();
    // Domains have places of their own.
    hydrant_domain_options_t options;
    hydrant_domain_options_init(&options);
    options.registrar = &world[0].registrar.table;
    options.watch = HYDRANT_WATCH_CLIENT;
    ASSERT_EQ(hydrant_domain_create(&options, &domain), GASNET_OK);
    ASSERT_EQ(hydrant_domain_destroy(domain, 0), GASNET_OK);
    world.rebuild();
    EXPECT_EQ(ask(world, kPlaces + 1), GASNET_OK) << hydrant_error_text();
  }
}

}  // namespace
}  // namespace hydrant::testing
