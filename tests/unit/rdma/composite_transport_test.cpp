// Two transports combined: which peers each of them reaches, and that a sleeping thread is woken by both.
#include "rdma/composite_transport.hpp"

#include "tests/support/recording_registrar.hpp"
#include "tests/support/refused_calls.hpp"
#include "tests/unit/rdma/shm/node_world.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <string>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

namespace hydrant::testing {
namespace {

constexpr uint64_t kPollTime = UINT64_MAX - 7;

// Ranks of other nodes: keeps what it is given, and delivers what a test has put there.
class FakeNetwork final : public NetworkTransport,
                          public MessageChannel,
                          public Notices,
                          public PinnedOperations {
 public:
  struct Seen {
    std::vector<Rank> sent;
    std::vector<Rank> cells_taken;
    std::vector<Rank> cells_dropped;
    std::vector<Rank> disconnected;
    std::atomic<uint32_t> arriving{0};
    std::atomic<uint32_t> prepared{0};
    bool has_duty = false;  // arm_events() returns false
    std::vector<Rank> put_to, got_from;
    std::atomic<bool> has_message = true;
    bool word_comes_early = false;  // right after arm_events()
    bool is_flushed = false;
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    ~Seen() { close(fd); }
    void say() {
      const uint64_t one = 1;
      EXPECT_EQ(::write(fd, &one, sizeof one), 8);
    }
  };
  explicit FakeNetwork(Seen& seen) : seen_(seen) {}

  const char* name() const noexcept override { return "far"; }
  MessageChannel& messages(Rank) noexcept override { return *this; }
  Notices& notices() noexcept override { return *this; }
  uint32_t inline_bytes() const noexcept override { return 100; }
  uint32_t cell_bytes() const noexcept override { return 1 << 20; }
  Status reserve(Rank peer, Lane, uint32_t, Outgoing* room) noexcept override {
    peer_ = peer;
    room->head = head_;
    return Status::kOk;
  }
  void commit(Outgoing&, uint32_t) noexcept override { seen_.sent.push_back(peer_); }
  void commit_with_cell(Outgoing&, uint32_t, const Cell&, uint32_t) noexcept override {
    seen_.sent.push_back(peer_);
  }
  Status take_cell(Rank peer, Lane, uint32_t, Cell* cell) noexcept override {
    seen_.cells_taken.push_back(peer);
    *cell = {.data = head_, .bytes = sizeof head_, .index = 0};
    return Status::kOk;
  }
  void drop_cell(Rank peer, Lane, const Cell&) noexcept override {
    seen_.cells_dropped.push_back(peer);
  }
  uint32_t capabilities() const noexcept override { return kPinned | kPutsBeforeMessages; }
  uint32_t depth() const noexcept override { return 7; }
  PinnedOperations* pinned() noexcept override { return this; }
  std::unique_ptr<Registrar> make_registrar() noexcept override { return nullptr; }
  uint32_t keyless_bytes() const noexcept override { return 33; }
  Status put(Rank peer, const Pinned&, const Pinned&, size_t, Completion*) noexcept override {
    seen_.put_to.push_back(peer);
    return Status::kOk;
  }
  Status get(Rank peer, const Pinned&, const Pinned&, size_t, Completion*) noexcept override {
    seen_.got_from.push_back(peer);
    return Status::kOk;
  }
  uint32_t poll(Receiver& receiver, uint32_t budget, bool) noexcept override {
    uint32_t told = 0;
    for (; told < budget && seen_.arriving != 0; ++told) {
      --seen_.arriving;
      const uint64_t value = 77;
      receiver.deliver({.from = 2,
                        .head = reinterpret_cast<const std::byte*>(&value),
                        .payload = nullptr,
                        .head_room = sizeof value});
    }
    return told;
  }
  void flush(uint64_t) noexcept override { seen_.is_flushed = true; }
  void disconnect(Rank peer) noexcept override { seen_.disconnected.push_back(peer); }

  int notice_fd() const noexcept override { return seen_.has_message ? seen_.fd : -1; }
  void take_notices() noexcept override {
    uint64_t count = 0;
    (void)!::read(seen_.fd, &count, sizeof count);
  }
  bool arm_events() noexcept override {
    ++seen_.prepared;
    if (seen_.word_comes_early) seen_.say();
    return !seen_.has_duty;
  }
  uint64_t next_poll_ns() const noexcept override { return kPollTime; }

 private:
  Seen& seen_;
  Rank peer_ = 0;
  alignas(64) std::byte head_[4096] = {};
};

// Ranks 0 and 1 share a node, 2 and 3 another.
struct CompositeTransportTest : ::testing::Test {
  CompositeTransportTest() {
    JobTopology place;
    place.rank = 0;
    place.size = 4;
    place.node_count = 2;
    place.node_ranks = {0, 1};
    near = pair.a.transport.get();
    EXPECT_EQ(CompositeTransport::open(std::move(pair.a.transport),
                                       std::make_unique<FakeNetwork>(seen), place, &both),
              Status::kOk);
  }
  void send(Rank to) {
    Outgoing room;
    ASSERT_EQ(both->messages(to).reserve(to, Lane::kRequest, 8, &room), Status::kOk);
    std::memset(room.head, static_cast<int>(to), 8);
    both->messages(to).commit(room, 5);
  }

  FakeNetwork::Seen seen;
  Pair pair;
  Transport* near = nullptr;
  std::unique_ptr<Transport> both;
  Inbox inbox;
};

TEST_F(CompositeTransportTest, EachPeerIsReachedByItsOwn) {
  for (const Rank to : {3u, 1u, 2u}) send(to);
  EXPECT_EQ(seen.sent, (std::vector<Rank>{3, 2}));
  Inbox there;
  EXPECT_EQ(pair.b.transport->poll(there, 10, false), 1u);
  Cell cell;
  Outgoing room;
  ASSERT_EQ(both->messages(1).take_cell(1, Lane::kReply, 64, &cell), Status::kOk);
  ASSERT_EQ(both->messages(1).reserve(1, Lane::kReply, 8, &room), Status::kOk);
  both->messages(1).commit_with_cell(room, 1, cell, 64);
  EXPECT_EQ(pair.b.transport->poll(there, 10, false), 1u);
  ASSERT_EQ(both->messages(2).take_cell(2, Lane::kReply, 64, &cell), Status::kOk);
  ASSERT_EQ(both->messages(2).reserve(2, Lane::kReply, 8, &room), Status::kOk);
  both->messages(2).commit_with_cell(room, 1, cell, 64);
  EXPECT_EQ(seen.sent.size(), 3u);
  ASSERT_EQ(both->messages(3).take_cell(3, Lane::kReply, 64, &cell), Status::kOk);
  both->messages(3).drop_cell(3, Lane::kReply, cell);
  EXPECT_EQ(seen.cells_taken, (std::vector<Rank>{2, 3}));
  EXPECT_EQ(seen.cells_dropped, (std::vector<Rank>{3}));
  both->disconnect(3);
  EXPECT_EQ(seen.disconnected, (std::vector<Rank>{3}));
  both->flush(0);
  EXPECT_TRUE(seen.is_flushed);
}

// For clients that use the adapter within a node, too (HYDRANT_PATH=nic); not a capability of such peers.
TEST_F(CompositeTransportTest, PinnedOperationsUseTheFarTransport) {
  const PinnedOperations::Operation list[2] = {};
  for (const Rank peer : {Rank{1}, Rank{3}}) {
    EXPECT_EQ(both->pinned()->put(peer, {}, {}, 8, nullptr), Status::kOk);
    EXPECT_EQ(both->pinned()->get(peer, {}, {}, 8, nullptr), Status::kOk);
    EXPECT_EQ(both->pinned()->put_list(peer, list), 2u);
    EXPECT_EQ(both->pinned()->get_list(peer, list), 2u);
  }
  EXPECT_EQ(seen.put_to, (std::vector<Rank>{1, 1, 1, 3, 3, 3}));
  EXPECT_EQ(seen.got_from, seen.put_to);
  EXPECT_EQ(both->peer_capabilities(1) & Transport::kPinned, 0u);
  both->disconnect(1);
  EXPECT_EQ(seen.disconnected, (std::vector<Rank>{1}));
}

TEST_F(CompositeTransportTest, CapabilitiesArePerPeer) {
  EXPECT_STREQ(both->name(), "shm+far");
  EXPECT_EQ(&both->messages(1), &near->messages(1));
  EXPECT_EQ(both->messages(2).inline_bytes(), 100u);
  EXPECT_EQ(both->peer_capabilities(0), near->capabilities());
  EXPECT_EQ(both->peer_capabilities(1), near->capabilities());
  EXPECT_EQ(both->peer_capabilities(3), Transport::kPinned | Transport::kPutsBeforeMessages);
  EXPECT_EQ(both->capabilities(), near->capabilities() | both->peer_capabilities(3));
  EXPECT_EQ(both->depth(), 7u);
  EXPECT_EQ(both->pinned()->keyless_bytes(), 33u);
  std::string there(8, '.');
  ASSERT_EQ(both->memory().add_segment(1, 0x10000, there.size(), there.data()), Status::kOk);
  EXPECT_EQ(both->memory().mapped(1, 0x10000, 8), there.data());
  EXPECT_EQ(both->memory().mapped(2, 0x10000, 8), nullptr);
  EXPECT_EQ(both->memory().write(2, 0x10000, "x", 1), Status::kUnsupported);
  EXPECT_NE(both->memory().shared_block(1), nullptr);
  EXPECT_EQ(both->memory().shared_block(2), nullptr);
}

TEST_F(CompositeTransportTest, NeitherUsesUpEveryPoll) {
  seen.arriving = 100;
  for (int i = 0; i < 5; ++i)
    ASSERT_EQ(pair.b.try_send(0, Lane::kRequest, 1, uint64_t{1}), Status::kOk);
  uint32_t from_near = 0;
  inbox.then = [&](const Incoming& message) { from_near += message.from == 1 ? 1 : 0; };
  // Ten events in each of two polls: five of them are the near one's, whichever is first.
  EXPECT_EQ(both->poll(inbox, 10, false), 10u);
  EXPECT_EQ(both->poll(inbox, 10, false), 10u);
  EXPECT_EQ(from_near, 5u);
}

TEST_F(CompositeTransportTest, NetworkEventEndsASleep) {
  const uint64_t late = in_seconds(100);
  // (The first sleep may end at once, as others have been woken before.)
  both->sleeping().wake();
  both->sleeping().sleep(late);
  const uint32_t before = seen.prepared;
  std::thread sender([&] {
    while (seen.prepared == before) usleep(1000);
    usleep(20'000);
    seen.arriving = 1;
    seen.say();
  });
  uint32_t got = 0;
  for (int i = 0; i < 100 && got == 0; ++i) {
    both->sleeping().sleep(late);
    got = both->poll(inbox, 10, false);
  }
  sender.join();
  EXPECT_EQ(got, 1u);
  EXPECT_LT(now_ns(), late);
}

TEST_F(CompositeTransportTest, NetworkEventEndsAnAnnouncedSleep) {
  Sleeping::Announcement announcement;
  for (int i = 0; i < 20; ++i) {
    while (!both->sleeping().announce_sleep(&announcement)) {
    }
    EXPECT_EQ(announcement.deadline_ns, kPollTime);
    seen.say();
    EXPECT_TRUE(both->sleeping().sleep_announced(announcement, in_seconds(100)));
    both->sleeping().end_sleep();
  }
  seen.has_duty = true;
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(both->sleeping().announce_sleep(&announcement));
  seen.has_duty = false;
  seen.has_message = false;
  while (!both->sleeping().announce_sleep(&announcement)) {
  }
  EXPECT_LT(announcement.deadline_ns, in_seconds(1)) << "a nap";
}

TEST_F(CompositeTransportTest, AThreadThatCouldNotBeMadeIsMadeLater) {
  const std::string wrong = hydrant::testing::RefusedCalls::run(
      {{"clone3", SYS_clone3}}, [&](hydrant::testing::RefusedCalls& calls) -> std::string {
        const auto deadline = [&] {
          Sleeping::Announcement announcement;
          while (!both->sleeping().announce_sleep(&announcement)) {
          }
          both->sleeping().end_sleep();
          return announcement.deadline_ns;
        };
        calls.refuse(0, 0, 1, EAGAIN);
        if (deadline() == kPollTime) return "there is a thread";
        if (calls.allow() != 1) return "no thread was wanted";
        return hydrant::testing::wait_until([&] { return deadline() == kPollTime; }) ? "" : "naps";
      });
  if (wrong == hydrant::testing::RefusedCalls::kNoFilter) GTEST_SKIP() << wrong;
  EXPECT_EQ(wrong, "");
}

TEST_F(CompositeTransportTest, EventBeforeTheSleepIsNotMissed) {
  seen.word_comes_early = true;
  const uint64_t late = in_seconds(100);
  for (int i = 0; i < 50; ++i) both->sleeping().sleep(late);
  EXPECT_LT(now_ns(), late);
}

TEST_F(CompositeTransportTest, RankWithWorkDoesNotSleep) {
  seen.has_duty = true;
  const uint64_t late = in_seconds(100);
  for (int i = 0; i < 3; ++i) both->sleeping().sleep(late);
  EXPECT_LT(now_ns(), late);
}

TEST_F(CompositeTransportTest, WithoutEventsSleepsAreShort) {
  seen.has_message = false;
  const uint64_t late = in_seconds(100);
  for (int i = 0; i < 10; ++i) both->sleeping().sleep(late);
  EXPECT_LT(now_ns(), late);
}

TEST_F(CompositeTransportTest, LocalMessageEndsASleep) {
  const uint64_t late = in_seconds(100);
  both->sleeping().wake();
  both->sleeping().sleep(late);
  std::thread sender([&] {
    usleep(20'000);
    (void)pair.b.try_send(0, Lane::kRequest, 1, uint64_t{1});
  });
  uint32_t got = 0;
  for (int i = 0; i < 100 && got == 0; ++i) {
    both->sleeping().sleep(late);
    got = both->poll(inbox, 10, false);
  }
  sender.join();
  EXPECT_EQ(got, 1u);
}

}  // namespace
}  // namespace hydrant::testing
