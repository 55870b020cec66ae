// The memory of mailboxes over adapters that write lines, and over those that cannot.
#include "extended/collective/mailbox/mailbox_memory.hpp"

#include "am/job/job.hpp"
#include "extended/collective/mailbox/mailbox_choice.hpp"
#include "tests/unit/extended/barrier/barrier_memory_transport.hpp"

#include <gtest/gtest.h>

#include <memory>

namespace hydrant {
namespace {

// Rank 0 of three, none of which shares memory with another.
class MailboxMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto bootstrap = std::make_unique<testing::FakeBootstrap>();
    bootstrap->stands.size = 3;
    bootstrap->stands.node_ranks = {0, 1, 2};
    job().bootstrap = std::move(bootstrap);
    hydrant_job_info.rank = 0;
    hydrant_job_info.size = 3;
    auto network = std::make_unique<test::BarrierMemoryTransport>();
    transport = network.get();
    ASSERT_EQ(job().use(std::move(network)), Status::kOk);
  }
  void TearDown() override {
    EXPECT_EQ(job().use(nullptr), Status::kOk);
    job().bootstrap.reset();
  }
  test::BarrierMemoryTransport* transport = nullptr;
};

TEST_F(MailboxMemoryTest, RankRegistersWhatPeersWrite) {
  transport->max_keyless_bytes = sizeof(MailboxLine);
  EXPECT_TRUE(wants_mailboxes());
  MailboxMemory memory;
  memory.start(job().topology(), *transport);
  EXPECT_EQ(transport->records.pinned.size(), 1u);
  EXPECT_NE(memory.mine().blob_bytes, 0u);
  EXPECT_NE(memory.offer(), 0u);
}

// The job's choice does not depend on the adapter. Only the edges of this rank have no mailboxes.
TEST_F(MailboxMemoryTest, RankWhoseAdapterWritesNoLinesHasNone) {
  transport->max_keyless_bytes = sizeof(MailboxLine) - 1;
  EXPECT_TRUE(wants_mailboxes());
  MailboxMemory memory;
  memory.start(job().topology(), *transport);
  EXPECT_TRUE(transport->records.pinned.empty());
  EXPECT_EQ(memory.mine().blob_bytes, 0u);
  EXPECT_EQ(memory.offer(), 0u);
  const MailboxAddress theirs = {.address = 4096, .blob_bytes = 16};
  const MailboxPeer* peer = nullptr;
  EXPECT_EQ(memory.find_peer(1, theirs, &peer), Status::kOk);
  EXPECT_EQ(peer, nullptr);
}

TEST_F(MailboxMemoryTest, RankWhoseAdapterMayWriteALineTwiceHasNone) {
  transport->max_keyless_bytes = sizeof(MailboxLine);
  for (const PutOrder order : {PutOrder::kUnordered, PutOrder::kRelaxed}) {
    transport->order = order;
    EXPECT_TRUE(wants_mailboxes());
    MailboxMemory memory;
    memory.start(job().topology(), *transport);
    EXPECT_EQ(memory.mine().blob_bytes, 0u);
  }
}

}  // namespace
}  // namespace hydrant
