// Received messages: complete ones reach their handlers, malformed ones end the job with a text, and no
// byte beyond the message is read (AddressSanitizer checks that).
#include "tests/unit/am/job_fixture.hpp"

#include <random>

namespace hydrant::test {
namespace {

using Deliver = JobFixture;
using DeliverDeathTest = JobFixture;

SentMessage message(Tag tag, size_t head_bytes, size_t cell_bytes = 0, bool has_cell = false) {
  SentMessage made;
  made.tag = tag.pack();
  made.head.resize(head_bytes);
  made.payload.resize(cell_bytes);
  made.has_cell = has_cell;
  return made;
}

SentMessage medium(uint32_t bytes, size_t head_bytes, size_t cell_bytes, bool has_cell) {
  SentMessage made = message({.handler = 202, .nargs = 1, .category = Category::kMedium},
                             head_bytes, cell_bytes, has_cell);
  write_length(made.head.data(), Category::kMedium, bytes);
  return made;
}

SentMessage deposit(void* dest, uint32_t bytes, size_t cell_bytes, uint32_t handler = 0) {
  const Tag tag = {.handler = handler,
                   .nargs = handler != 0 ? 1u : 0u,
                   .category = Category::kLong,
                   .deposit = true};
  SentMessage made =
      message(tag, head_bytes(Category::kLong, tag.nargs), cell_bytes, cell_bytes != 0);
  write_length(made.head.data(), Category::kLong, bytes);
  write_dest(made.head.data(), reinterpret_cast<uintptr_t>(dest));
  return made;
}

void arrive(const SentMessage& one) { FakeTransport::deliver(am_receiver(), one); }

TEST_F(Deliver, ShortNeedsOnlyItsOwnRoom) {
  SentMessage one = message({.handler = kShort2, .nargs = 2}, 8);
  const int32_t args[] = {-1, INT32_MIN};
  write_args(one.head.data(), Category::kShort, 2, args);
  arrive(one);
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(calls[0].args, (std::vector<int32_t>{-1, INT32_MIN}));
  EXPECT_EQ(calls[0].info.gex_srcrank, 1u);
  EXPECT_EQ(calls[0].info.gex_is_req, 1);
  EXPECT_EQ(calls[0].info.gex_is_long, 0);
  EXPECT_STREQ(calls[0].info.gex_entry->gex_name, "noted");
}

TEST_F(Deliver, MediumsInFullAndEmptyCellsArrive) {
  SentMessage one = medium(64, 8, 64, true);
  one.payload = pattern(64);
  arrive(one);
  arrive(medium(0, 8, 0, false));
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[0].payload, pattern(64));
  EXPECT_TRUE(calls[1].payload.empty());
}

TEST_F(Deliver, DepositsAreWrittenAndOnlyTheLastRunsAHandler) {
  std::vector<std::byte> memory(128);
  SentMessage piece = deposit(memory.data(), 64, 64);
  piece.payload = pattern(64);
  arrive(piece);
  EXPECT_TRUE(calls.empty());
  EXPECT_EQ(std::memcmp(memory.data(), pattern(64).data(), 64), 0);
  SentMessage last = deposit(memory.data() + 64, 64, 64, kLong1);
  last.payload = pattern(64, 9);
  arrive(last);
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(calls[0].address, memory.data() + 64);
  EXPECT_EQ(calls[0].info.gex_is_long, 1);
}

TEST_F(DeliverDeathTest, TooShortHeadsEndTheJob) {
  for (const Category category : {Category::kShort, Category::kMedium, Category::kLong}) {
    const uint32_t whole = head_bytes(category, 16);
    for (const uint32_t bytes : {0u, whole / 2, whole - 1}) {
      EXPECT_DEATH(arrive(message({.handler = 200, .nargs = 16, .category = category}, bytes)),
                   "malformed message from rank 1");
    }
  }
}

TEST_F(DeliverDeathTest, TooManyArgumentsAndInvalidCategoriesEndTheJob) {
  EXPECT_DEATH(arrive(message({.handler = kShort0, .nargs = 17}, 120)), "malformed message");
  EXPECT_DEATH(arrive(message({.handler = kShort0, .nargs = 31}, 120)), "malformed message");
  EXPECT_DEATH(arrive(message({.handler = kShort0, .category = static_cast<Category>(3)}, 120)),
               "malformed message");
}

TEST_F(DeliverDeathTest, PayloadsLongerThanTheirRoomEndTheJob) {
  EXPECT_DEATH(arrive(medium(65, 8, 64, true)), "cell of 64");
  EXPECT_DEATH(arrive(medium(UINT32_MAX, 8, 64, true)), "malformed message");
  EXPECT_DEATH(arrive(medium(1, 8, 0, false)), "malformed message");
  EXPECT_DEATH(arrive(medium(57, 64, 0, false)), "malformed message");
  EXPECT_DEATH(arrive(medium(UINT32_MAX, 240, 0, false)), "malformed message");
  std::byte memory[64];
  EXPECT_DEATH(arrive(deposit(memory, 65, 64)), "malformed message");
  EXPECT_DEATH(arrive(deposit(memory, 1, 0)), "malformed message");
}

TEST_F(DeliverDeathTest, UnregisteredHandlersEndTheJob) {
  EXPECT_DEATH(arrive(message({.handler = kUnregisteredHandler}, 0)),
               "handler 210, which is not registered");
  EXPECT_DEATH(arrive(message({.handler = 0}, 0)), "handler 0, which is not registered");
  EXPECT_DEATH(arrive(message({.handler = kShort2, .nargs = 1}, 4)),
               "1 arguments for handler 201 \\(noted\\), which is registered with 2");
}

TEST_F(DeliverDeathTest, DebugClientsHandlersOfAnotherKindEndTheJob) {
  job().debug = true;
  EXPECT_DEATH(arrive(message({.handler = kMedium1, .nargs = 1}, 4)), "not registered for");
}

// Any tag over any bytes: accepted messages read no byte beyond their room. The handlers of valid messages do
// not exist (index 0 and below 128), so those end with a text, too.
TEST_F(DeliverDeathTest, RandomMessagesEndWithAText) {
  std::mt19937 random(7);
  for (int i = 0; i < 60; ++i) {
    SentMessage one;
    Tag tag = Tag::unpack(static_cast<uint32_t>(random()));
    tag.handler = 1 + static_cast<uint32_t>(random() % 100);
    if (tag.category == Category::kLong) tag.deposit = false;  // a random destination
    one.tag = tag.pack();
    one.head.resize(random() % 121);
    for (std::byte& byte : one.head)
      byte = static_cast<std::byte>(random() % 4 == 0 ? random() : 0);
    one.has_cell = random() % 2 == 0;
    if (one.has_cell) one.payload.resize(random() % 300);
    EXPECT_DEATH(arrive(one),
                 "FATAL ERROR \\(rank 0\\): (rank 1 sent|malformed message from rank 1)");
  }
}

// An independent statement of the wire format: the message contains everything that it promises
// (docs/wire_format_am.md).
bool is_whole(const Tag& tag, const SentMessage& one) {
  const bool is_long = tag.category == Category::kLong;
  const size_t before_args = tag.category == Category::kShort ? 0 : is_long ? 12 : 4;
  const size_t head = before_args + size_t{4} * tag.nargs;
  if (tag.nargs > 16 || one.head.size() < head) return false;
  if (tag.category == Category::kShort || (is_long && !tag.deposit)) return true;
  uint32_t bytes = 0;
  std::memcpy(&bytes, one.head.data() + (is_long ? 8 : 0), 4);
  if (one.has_cell) return bytes <= one.payload.size();
  size_t begin = head;
  while (begin % 16 != 8) ++begin;
  return bytes == 0 || begin + bytes <= one.head.size();
}

// Random messages for existing handlers, with lengths around the limits: complete ones are delivered,
// and all bytes passed to the handler are readable.
TEST_F(Deliver, RandomCompleteMessagesAreDelivered) {
  std::mt19937 random(11);
  std::vector<std::byte> memory(512);
  uint32_t delivered = 0;
  for (int i = 0; i < 50000; ++i) {
    Tag tag;
    tag.category = static_cast<Category>(random() % 3);
    tag.handler = tag.category == Category::kShort    ? (random() % 2 != 0 ? kShort0 : kShort2)
                  : tag.category == Category::kMedium ? kMedium1
                                                      : kLong1;
    tag.nargs = tag.handler == kShort0 ? 0 : tag.handler == kShort2 ? 2 : 1;
    tag.deposit = tag.category == Category::kLong && random() % 2 != 0;
    SentMessage one = message(tag, random() % 130, random() % 200, random() % 2 != 0);
    for (std::byte& byte : one.head) byte = static_cast<std::byte>(random());
    const auto bytes = static_cast<uint32_t>(random() % 16 == 0 ? random() : random() % 220);
    if (tag.category != Category::kShort && one.head.size() >= 12) {
      write_length(one.head.data(), tag.category, bytes);
      if (tag.category == Category::kLong)
        write_dest(one.head.data(), reinterpret_cast<uintptr_t>(memory.data()));
    }
    // Without a deposit the handler gets only the payload's address, so it needs no payload.
    if (!is_whole(tag, one) || (tag.category == Category::kLong && bytes > memory.size())) continue;
    arrive(one);
    ++delivered;
    ASSERT_EQ(calls.size(), 1u);
    calls.clear();
  }
  EXPECT_GT(delivered, 10000u);
}

// ... and incomplete messages end with a text. As many as the time for child processes allows.
TEST_F(DeliverDeathTest, RandomIncompleteMessagesEndTheJob) {
  std::mt19937 random(13);
  for (int refused = 0; refused < 40;) {
    Tag tag = Tag::unpack(static_cast<uint32_t>(random()));
    tag.handler = kMedium1;
    SentMessage one = message(tag, random() % 60, random() % 60, random() % 2 != 0);
    for (std::byte& byte : one.head)
      byte = static_cast<std::byte>(random() % 2 == 0 ? random() % 64 : 0);
    // A complete addressed message would end with another text.
    tag.nargs &= ~Tag::kAddressed;
    one.tag &= ~Tag{.nargs = Tag::kAddressed}.pack();
    if (tag.category <= Category::kLong && is_whole(tag, one)) continue;
    EXPECT_DEATH(arrive(one), "malformed message from rank 1");
    ++refused;
  }
}

}  // namespace
}  // namespace hydrant::test
