// The memory of the shared states of barriers, and the endpoint addresses by which nodes find each other's.
#include "extended/barrier/barrier_rdma_memory.hpp"

#include "am/job/job.hpp"
#include "tests/support/guards.hpp"
#include "tests/unit/extended/barrier/barrier_memory_transport.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace hydrant {
namespace {

using testing::FakeBootstrap;
using Value = FakeBootstrap::Value;

constexpr const char* kAddressKey = "barrier-board";

class BarrierRdmaMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto bootstrap = std::make_unique<FakeBootstrap>();
    auto network = std::make_unique<test::BarrierMemoryTransport>();
    store = bootstrap.get();
    transport = network.get();
    job().bootstrap = std::move(bootstrap);
    ASSERT_EQ(job().use(std::move(network)), Status::kOk);
    rdma_memory =
        std::make_unique<BarrierRdmaMemory>(*store, *transport, [](Rank, const char*) noexcept {});
  }
  void TearDown() override {
    rdma_memory.reset();
    EXPECT_TRUE(transport->records.pinned.empty());
    EXPECT_EQ(transport->records.dropped, transport->records.keys.size());
    EXPECT_EQ(job().use(nullptr), Status::kOk);
    job().bootstrap.reset();
  }
  // Rank 0 of three on one machine, each of which counts as a node.
  void be_flat() {
    store->stands.size = 3;
    store->stands.node_ranks = {0, 1, 2};
  }
  // Rank 0, alone on the first of two nodes.
  void be_alone_on_a_node() {
    store->stands.size = 2;
    store->stands.node_count = 2;
    store->stands.leaders = {0, 1};
  }
  void expect_guarded_boards() {
    ASSERT_EQ(rdma_memory->make(), Status::kOk) << last_error_text();
    ASSERT_EQ(transport->records.pinned.size(), 1u);
    const MemoryRange pinned = transport->records.pinned[0];
    const auto first = reinterpret_cast<uintptr_t>(rdma_memory->config(0).shared);
    Guarded at;
    ASSERT_TRUE(find_guarded(first, &at));
    EXPECT_STREQ(at.label.what, "shared memory of barriers");
    EXPECT_EQ(pinned, (MemoryRange{at.start, at.bytes}));
    for (uint32_t which = 0; which < BarrierRdmaMemory::kBarriers; ++which) {
      const MemoryRange shared{reinterpret_cast<uintptr_t>(rdma_memory->config(which).shared),
                               BarrierRdmaState::bytes(1)};
      EXPECT_TRUE(pinned.covers(shared)) << which;
    }
    testing::expect_guards(at);
    rdma_memory.reset();
    EXPECT_FALSE(find_guarded(first, &at));
  }
  void set_entry(Rank rank, const Value& entry) { store->set(rank, kAddressKey, entry); }

  FakeBootstrap* store = nullptr;
  test::BarrierMemoryTransport* transport = nullptr;
  std::unique_ptr<BarrierRdmaMemory> rdma_memory;
};

TEST_F(BarrierRdmaMemoryTest, MemoryOfOneRankHasGuards) {
  be_flat();
  expect_guarded_boards();
}

TEST_F(BarrierRdmaMemoryTest, MemoryOfANodeHasGuards) {
  be_alone_on_a_node();
  expect_guarded_boards();
}

TEST_F(BarrierRdmaMemoryTest, WordsAreWrittenToThePublishedAddresses) {
  be_flat();
  ASSERT_EQ(rdma_memory->make(), Status::kOk) << last_error_text();
  const Value blob = {std::byte{1}, std::byte{2}, std::byte{3}};
  set_entry(1, test::address_entry(0x10000, 0x20000, static_cast<uint32_t>(blob.size()), blob));
  set_entry(2, test::address_entry(0x30000, 0x40000, 1, blob));
  ASSERT_EQ(rdma_memory->connect(), Status::kOk) << last_error_text();
  const test::BarrierMemoryRecords& records = transport->records;
  ASSERT_EQ(records.keys.size(), 2u);
  EXPECT_EQ(records.keys[0], blob);
  EXPECT_EQ(records.keys[1], Value{std::byte{1}});
  EXPECT_EQ(rdma_memory->config(1).writer->post(1, 0, 77), Status::kOk);
  EXPECT_EQ(rdma_memory->config(0).writer->post(0, 1, 78), Status::kOk);
  ASSERT_EQ(records.words.size(), 2u);
  EXPECT_EQ(records.words[0].peer, 1u);
  EXPECT_EQ(records.words[0].at, 0x20000 + BarrierRdmaState::word_offset(1, 0));
  EXPECT_EQ(records.words[0].key, 0u);
  EXPECT_EQ(records.words[0].word, 77u);
  EXPECT_FALSE(records.words[0].has_local_key);
  EXPECT_EQ(records.words[1].peer, 2u);
  EXPECT_EQ(records.words[1].at, 0x30000 + BarrierRdmaState::word_offset(0, 1));
  EXPECT_EQ(records.words[1].key, 1u);
}

// The choice of the barrier must not depend on the adapter: nodes would choose differently.
TEST_F(BarrierRdmaMemoryTest, AdapterThatTakesNoWordReadsItInRegisteredMemory) {
  be_flat();
  transport->max_keyless_bytes = 0;
  EXPECT_EQ(BarrierRdmaMemory::obstacle(*store, transport), "");
  ASSERT_EQ(rdma_memory->make(), Status::kOk) << last_error_text();
  const Value blob = {std::byte{1}};
  set_entry(1, test::address_entry(0x10000, 0x20000, 1, blob));
  set_entry(2, test::address_entry(0x30000, 0x40000, 1, blob));
  ASSERT_EQ(rdma_memory->connect(), Status::kOk) << last_error_text();
  ASSERT_EQ(transport->records.pinned.size(), 1u);
  const MemoryRange pinned = transport->records.pinned[0];
  BarrierRdmaState* const shared = rdma_memory->config(1).shared;
  for (const uint32_t parity : {0u, 1u}) {
    EXPECT_EQ(rdma_memory->config(1).writer->post(parity, 1, 77 + parity), Status::kOk);
    const test::BarrierMemoryRecords::Word& word = transport->records.words.back();
    EXPECT_TRUE(word.has_local_key);
    EXPECT_EQ(word.from, reinterpret_cast<uintptr_t>(&shared->sources[parity][1]));
    EXPECT_TRUE(pinned.covers({word.from, sizeof(uint64_t)}));
    EXPECT_EQ(word.word, 77 + parity);
  }
}

// An adapter that writes a word twice would put the one of epoch e over that of e + 2.
TEST_F(BarrierRdmaMemoryTest, WordWaitsForItsPredecessorWhereAdaptersMayWriteItTwice) {
  be_flat();
  transport->order = PutOrder::kUnordered;
  ASSERT_EQ(rdma_memory->make(), Status::kOk) << last_error_text();
  const Value blob = {std::byte{1}};
  set_entry(1, test::address_entry(0x10000, 0x20000, 1, blob));
  set_entry(2, test::address_entry(0x30000, 0x40000, 1, blob));
  ASSERT_EQ(rdma_memory->connect(), Status::kOk) << last_error_text();
  BarrierWordWriter& writer = *rdma_memory->config(1).writer;
  ASSERT_EQ(writer.post(0, 1, 77), Status::kOk);
  EXPECT_EQ(writer.post(0, 1, 79), Status::kNotReady);
  EXPECT_EQ(transport->records.words.size(), 1u);
  EXPECT_EQ(writer.post(1, 1, 78), Status::kOk) << "another place";
  EXPECT_EQ(rdma_memory->config(0).writer->post(0, 1, 77), Status::kOk) << "another barrier";
  Completion& first = *transport->completions.front();
  first.done(first, Status::kOk);
  EXPECT_EQ(writer.post(0, 1, 79), Status::kOk);
  EXPECT_EQ(writer.post(0, 1, 81), Status::kNotReady);
}

// The adapter that takes a word is what writes it twice.
TEST_F(BarrierRdmaMemoryTest, WordWaitsForItsPredecessorWhereAnotherNodesAdapterMayWriteItTwice) {
  be_flat();
  ASSERT_EQ(rdma_memory->make(), Status::kOk) << last_error_text();
  BarrierWordWriter& writer = *rdma_memory->config(1).writer;
  const Value blob = {std::byte{1}};
  set_entry(1, test::address_entry(0x10000, 0x20000, 1, blob));
  set_entry(2, test::address_entry(0x30000, 0x40000, 1, blob, PutOrder::kUnordered));
  ASSERT_EQ(rdma_memory->connect(), Status::kOk) << last_error_text();
  ASSERT_EQ(writer.post(0, 1, 77), Status::kOk);
  EXPECT_EQ(writer.post(0, 1, 79), Status::kNotReady);
  Completion& first = *transport->completions.front();
  first.done(first, Status::kOk);
  EXPECT_EQ(writer.post(0, 1, 79), Status::kOk);
}

TEST_F(BarrierRdmaMemoryTest, WordsAreNotCountedWhereAdaptersKeepTheOrder) {
  be_flat();
  ASSERT_EQ(rdma_memory->make(), Status::kOk) << last_error_text();
  const Value blob = {std::byte{1}};
  set_entry(1, test::address_entry(0x10000, 0x20000, 1, blob));
  set_entry(2, test::address_entry(0x30000, 0x40000, 1, blob));
  ASSERT_EQ(rdma_memory->connect(), Status::kOk) << last_error_text();
  for (const uint64_t word : {77u, 79u})
    EXPECT_EQ(rdma_memory->config(1).writer->post(0, 1, word), Status::kOk);
  EXPECT_EQ(transport->completions[0], transport->completions[1]);
}

TEST_F(BarrierRdmaMemoryTest, RelaxedAdaptersSendMessages) {
  be_flat();
  EXPECT_EQ(BarrierRdmaMemory::obstacle(*store, transport), "");
  transport->order = PutOrder::kRelaxed;
  EXPECT_NE(BarrierRdmaMemory::obstacle(*store, transport).find("HYDRANT_IBV_ORDER"),
            std::string::npos);
}

TEST_F(BarrierRdmaMemoryTest, MalformedAddressesAreRejected) {
  be_alone_on_a_node();
  ASSERT_EQ(rdma_memory->make(), Status::kOk) << last_error_text();
  EXPECT_EQ(rdma_memory->connect(), Status::kNotReady);
  const Value good = test::address_entry(0x10000, 0x20000, 1, {});
  for (const size_t bytes : {size_t{0}, size_t{8}, good.size() - 1}) {
    set_entry(1, Value(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(bytes)));
    EXPECT_EQ(rdma_memory->connect(), Status::kBroken) << bytes;
    EXPECT_NE(std::string(last_error_text()).find("unexpected size"), std::string::npos);
  }
  for (const uint32_t blob_bytes : {513u, UINT32_MAX}) {
    set_entry(1, test::address_entry(0x10000, 0x20000, blob_bytes, {}));
    EXPECT_EQ(rdma_memory->connect(), Status::kBroken) << blob_bytes;
  }
  set_entry(1, test::address_entry(0x10000, 0x20000, 0, {}));
  EXPECT_EQ(rdma_memory->connect(), Status::kBadArg) << "the registrar refuses the key";
}

}  // namespace
}  // namespace hydrant
