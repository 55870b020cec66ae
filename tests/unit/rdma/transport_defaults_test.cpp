// A network that implements nothing but the pure functions of Transport and MessageChannel.
#include "rdma/transport/transport.hpp"

#include <gtest/gtest.h>

#include <cstring>

namespace hydrant::testing {
namespace {

class Minimal final : public Transport, public MessageChannel {
 public:
  const char* name() const noexcept override { return "minimal"; }
  MessageChannel& messages(Rank) noexcept override { return *this; }
  uint32_t inline_bytes() const noexcept override { return 1000; }
  Status reserve(Rank, Lane, uint32_t, Outgoing* room) noexcept override {
    if (is_full) return Status::kNotReady;
    room->head = head;
    return Status::kOk;
  }
  void commit(Outgoing&, uint32_t tag) noexcept override { sent = tag; }
  uint32_t poll(Receiver&, uint32_t, bool) noexcept override { return 0; }

  bool is_full = false;
  alignas(8) std::byte head[1000] = {};
  uint32_t sent = 0;
};

TEST(TransportDefaults, MessagesNeedNoCellsAndNoPost) {
  Minimal network;
  MessageChannel& channel = network.messages(1);
  EXPECT_EQ(channel.cell_bytes(), 0u);
  EXPECT_EQ(channel.payload_bytes(), 1000 - MessageChannel::kMaxHeadBytes);
  Cell cell;
  EXPECT_EQ(channel.take_cell(1, Lane::kRequest, 8, &cell), Status::kUnsupported);
  EXPECT_EQ(channel.post(1, Lane::kRequest, 7, "head", 4), Status::kOk);
  EXPECT_EQ(network.sent, 7u);
  EXPECT_EQ(std::memcmp(network.head, "head", 4), 0);
  network.is_full = true;
  EXPECT_EQ(channel.post(1, Lane::kRequest, 8, "more", 4), Status::kNotReady);
  EXPECT_EQ(network.sent, 7u);
}

TEST(TransportDefaults, MemoryIsNotReached) {
  Minimal network;
  EXPECT_EQ(network.capabilities(), 0u);
  EXPECT_EQ(network.pinned(), nullptr);
  MemoryAccess& memory = network.memory();
  EXPECT_EQ(memory.collective_blocks(1), nullptr);
  EXPECT_EQ(memory.reserve_collective_block(0), Status::kUnsupported);
  char word[8] = {};
  EXPECT_EQ(memory.put(1, 0x10000, word, 8, nullptr), Status::kUnsupported);
  EXPECT_EQ(memory.mapped(1, 0x10000, 8), nullptr);
}

// No wake-up comes, so each sleep ends by itself.
TEST(TransportDefaults, ThreadsNap) {
  Minimal network;
  Sleeping& sleeping = network.sleeping();
  sleeping.sleep(UINT64_MAX);
  static bool was_asked = false;
  sleeping.sleep(UINT64_MAX, {.holds = [](const void*) noexcept { return was_asked = true; }});
  EXPECT_TRUE(was_asked);
  Sleeping::Announcement announcement;
  ASSERT_TRUE(sleeping.announce_sleep(&announcement));
  EXPECT_FALSE(sleeping.sleep_announced(announcement, UINT64_MAX));
  sleeping.end_sleep();
}

}  // namespace
}  // namespace hydrant::testing
