// The porting path: a transport of which only the messages are left.
#include "rdma/injected/send_only_transport.hpp"

#include "tests/unit/rdma/shm/node_world.hpp"

namespace hydrant::testing {
namespace {

using Piece = MemoryAccess::Piece;

TEST(SendOnly, HidesAllMemory) {
  Pair pair;
  std::string there(8, '.');
  ASSERT_EQ(pair.a.transport->memory().add_segment(1, 0x10000, there.size(), there.data()),
            Status::kOk);
  SendOnlyTransport only(std::move(pair.a.transport));
  EXPECT_EQ(only.capabilities(), 0u);
  EXPECT_EQ(only.depth(), 0u);
  EXPECT_EQ(only.memory().mapped(1, 0x10000, 8), nullptr);
  EXPECT_EQ(only.memory().shared_block(1), nullptr);
  EXPECT_EQ(only.memory().add_segment(1, 0x20000, there.size(), there.data()), Status::kOk);
  EXPECT_EQ(only.memory().mapped(1, 0x20000, 8), nullptr);
  char word[8] = {};
  const Piece piece{word, 0x10000, 8};
  EXPECT_EQ(only.memory().write(1, 0x10000, word, 8), Status::kUnsupported);
  EXPECT_EQ(only.memory().put(1, 0x10000, word, 8, nullptr), Status::kUnsupported);
  EXPECT_EQ(only.memory().get(1, 0x10000, word, 8, nullptr), Status::kUnsupported);
  EXPECT_EQ(only.memory().put_pieces(1, {&piece, 1}), Status::kUnsupported);
  EXPECT_EQ(only.memory().get_pieces(1, {&piece, 1}), Status::kUnsupported);
  EXPECT_EQ(there, "........");
}

TEST(SendOnly, MessagesPassThrough) {
  Pair pair;
  const uint32_t inline_bytes = pair.a.transport->messages(1).inline_bytes();
  const uint32_t cell_bytes = pair.a.transport->messages(1).cell_bytes();
  SendOnlyTransport only(std::move(pair.a.transport));
  EXPECT_EQ(only.messages(1).inline_bytes(), inline_bytes);
  EXPECT_EQ(only.messages(1).cell_bytes(), cell_bytes);
  Outgoing room;
  ASSERT_EQ(only.messages(1).reserve(1, Lane::kRequest, 8, &room), Status::kOk);
  std::memcpy(room.head, "directly", 8);
  only.messages(1).commit(room, 42);
  Cell cell;
  ASSERT_EQ(only.messages(1).take_cell(1, Lane::kRequest, 100, &cell), Status::kOk);
  only.messages(1).drop_cell(1, Lane::kRequest, cell);
  ASSERT_EQ(only.messages(1).take_cell(1, Lane::kReply, 16, &cell), Status::kOk);
  ASSERT_EQ(only.messages(1).reserve(1, Lane::kReply, 8, &room), Status::kOk);
  std::memcpy(cell.data, "sixteen letters.", 16);
  only.messages(1).commit_with_cell(room, 43, cell, 16);
  ASSERT_EQ(pair.poll_b(), 2u);
  ASSERT_EQ(pair.inbox.letters.size(), 2u);
  EXPECT_EQ(pair.inbox.letters[0].payload, "sixteen letters.");  // replies are delivered first
  EXPECT_EQ(pair.inbox.letters[0].tag, 43u);
  EXPECT_EQ(pair.inbox.letters[1].head.substr(0, 8), "directly");
  ASSERT_EQ(pair.b.try_send(0, Lane::kRequest, 44, 1), Status::kOk);
  Inbox inbox;
  EXPECT_EQ(only.poll(inbox, 10, true), 0u);
  EXPECT_EQ(only.poll(inbox, 10, false), 1u);
  only.sleeping().wake();
  only.sleeping().sleep(now_ns() + 1);
  only.sleeping().wake_peer(1);
  only.disconnect(1);
  EXPECT_EQ(only.poll(inbox, 10, false), 0u);
  EXPECT_EQ(only.messages(1).reserve(1, Lane::kRequest, 8, &room), Status::kBroken);
}

}  // namespace
}  // namespace hydrant::testing
