// The caches that a monitor notifies, alone: which functions are called, and for how long.
#include "firehose/watch/monitor_clients.hpp"

#include "tests/support/sizes.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

namespace hydrant {
namespace {

using testing::kPage;

constexpr MemoryRange kRange{16 * kPage, 2 * kPage};

// A client that counts its calls.
struct Counting {
  int forgotten = 0;
  int unmapped = 0;
  int vouched = 0;
  int free_hits_ended = 0;
  int wanted = 0;
  MemoryRange last{};
  bool has_pinned = false;

  hydrant_monitor_client_t client() {
    hydrant_monitor_client_t made{};
    made.context = this;
    made.forget = [](void* self, uintptr_t addr, size_t len) {
      ++of(self).forgotten;
      of(self).last = {addr, len};
    };
    made.forget_vouched = [](void* self) { ++of(self).vouched; };
    made.pinned = [](void* self, uintptr_t, size_t) { return of(self).has_pinned ? 1 : 0; };
    return made;
  }
  static Counting& of(void* self) { return *static_cast<Counting*>(self); }
};

TEST(MonitorClients, WithoutAFunctionOfItsOwnForgetIsCalled) {
  const auto clients = std::make_unique<MonitorClients>();
  Counting plain;
  Counting rich;
  ASSERT_EQ(clients->subscribe(plain.client()), 0);
  const int number = clients->subscribe(rich.client());
  ASSERT_EQ(number, 1);
  ASSERT_TRUE(clients->set_unmapped(
      number, [](void* self, uintptr_t, size_t) { ++Counting::of(self).unmapped; }));
  ASSERT_TRUE(
      clients->set_end_free_hits(number, [](void* self) { ++Counting::of(self).free_hits_ended; }));
  ASSERT_TRUE(clients->set_wanted(number, [](void* self) { ++Counting::of(self).wanted; }));
  EXPECT_FALSE(clients->set_wanted(2, nullptr));
  EXPECT_FALSE(clients->set_wanted(-1, nullptr));

  clients->forget(kRange);
  EXPECT_EQ(plain.forgotten, 1);
  EXPECT_EQ(rich.forgotten, 1);
  EXPECT_EQ(rich.last, kRange);
  clients->forget_unmapped(kRange);
  EXPECT_EQ(plain.forgotten, 2);
  EXPECT_EQ(rich.unmapped, 1);
  clients->end_free_hits();
  EXPECT_EQ(plain.forgotten, 3);
  EXPECT_EQ(plain.last, MonitorClients::kAllMemory);
  EXPECT_EQ(rich.free_hits_ended, 1);
  clients->notify_wanted();
  EXPECT_EQ(rich.wanted, 1);
  clients->forget_vouched();
  EXPECT_EQ(plain.vouched + rich.vouched, 2);
  EXPECT_EQ(rich.forgotten, 1);

  EXPECT_FALSE(clients->have_pinned(kRange));
  rich.has_pinned = true;
  EXPECT_TRUE(clients->have_pinned(kRange));
  EXPECT_FALSE(clients->have_pinned({kPage, 0})) << "an invalid range";
  clients->unsubscribe(number);
  EXPECT_FALSE(clients->have_pinned(kRange));
  EXPECT_FALSE(clients->set_wanted(number, nullptr));

  // The next client with this number has none of the functions.
  Counting next;
  ASSERT_EQ(clients->subscribe(next.client()), number);
  clients->forget_unmapped(kRange);
  EXPECT_EQ(next.forgotten, 1);
  clients->notify_wanted();
  EXPECT_EQ(next.wanted, 0);
}

TEST(MonitorClients, AreLimitedInNumber) {
  const auto clients = std::make_unique<MonitorClients>();
  Counting counting;
  int subscribed = 0;
  while (clients->subscribe(counting.client()) == subscribed) ++subscribed;
  EXPECT_EQ(subscribed, 64);
  clients->unsubscribe(64);  // no such number: no effect
  clients->unsubscribe(-1);
  clients->forget(kRange);
  EXPECT_EQ(counting.forgotten, 64);
  clients->unsubscribe(17);
  EXPECT_EQ(clients->subscribe(counting.client()), 17);
  clients->forget(kRange);
  EXPECT_EQ(counting.forgotten, 128);
}

TEST(MonitorClients, NoneIsCalledAfterItHasLeft) {
  const auto clients = std::make_unique<MonitorClients>();
  struct Listener {
    std::atomic<bool> is_there{false};
    std::atomic<int> late{0};
  };
  Listener listener;
  hydrant_monitor_client_t client{};
  client.context = &listener;
  client.forget = [](void* self, uintptr_t, size_t) {
    auto& at = *static_cast<Listener*>(self);
    if (!at.is_there) ++at.late;
  };
  std::atomic<bool> ends{false};
  std::vector<std::thread> notifiers;
  for (int i = 0; i < 2; ++i) {
    notifiers.emplace_back([&] {
      while (!ends) clients->forget(kRange);
    });
  }
  for (int round = 0; round < 2000; ++round) {
    listener.is_there = true;
    const int number = clients->subscribe(client);
    ASSERT_EQ(number, 0);
    clients->unsubscribe(number);
    listener.is_there = false;
  }
  ends = true;
  for (std::thread& each : notifiers) each.join();
  EXPECT_EQ(listener.late, 0);
}

}  // namespace
}  // namespace hydrant
