// The memory of mailboxes (team_mailboxes.hpp): registered once per process, in blocks that teams take; and
// the memory of the ranks that this one writes to.
//
// A block is the same index on all members. Block 0 is the primordial team's. The memory lives until the
// process ends, like the transport with which it is registered, between guards.
//
// Threads: any, but for start().
#pragma once

#include "extended/collective/mailbox/team_mailboxes.hpp"
#include "firehose/base/registrar.hpp"
#include "firehose/base/status.hpp"
#include "firehose/base/thread.hpp"
#include "rdma/bootstrap/bootstrap.hpp"
#include "rdma/transport/transport.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace hydrant {

// The address of this memory, for other ranks.
struct MailboxAddress {
  static constexpr size_t kMaxBlob = 512;
  uint64_t address = 0;
  uint64_t blob_bytes = 0;  // 0: the rank has no mailboxes
  std::byte blob[kMaxBlob] = {};
};
static_assert(sizeof(MailboxAddress) <= Bootstrap::kMaxValueBytes);

// The memory of another rank.
struct MailboxPeer {
  Rank rank = 0;  // of the job
  uintptr_t address = 0;
  std::unique_ptr<std::byte[]> key;
  std::unique_ptr<MailboxPeer> next;  // list of MailboxMemory
};

class MailboxMemory {
 public:
  MailboxMemory() = default;
  // Unpins and unmaps the memory; no rank may write to it any more.
  ~MailboxMemory();
  MailboxMemory(const MailboxMemory&) = delete;
  MailboxMemory& operator=(const MailboxMemory&) = delete;

  static constexpr const char* kInstead = "HYDRANT_COLL_NET=messages needs no such memory";

  // Allocates and registers the memory of the rank, for operations of `transport`. A rank that cannot do so,
  // or whose adapter cannot write lines, or not in order, sends messages, and logs why.
  void start(const JobTopology& topology, Transport& transport) noexcept;

  const MailboxAddress& mine() const noexcept { return mine_; }
  MailboxLine* block(uint32_t index) const noexcept;

  // Sets a few free blocks aside until withdraw(). Bit i: block i.
  uint32_t offer() noexcept HYDRANT_EXCLUDES(mu_);
  void withdraw(uint32_t blocks) noexcept HYDRANT_EXCLUDES(mu_);

  // Null if either rank has no mailboxes; else valid until the process ends. Errors: kResource; those of
  // Registrar::import_key().
  Status find_peer(Rank jobrank, const MailboxAddress& address, const MailboxPeer** found) noexcept
      HYDRANT_EXCLUDES(mu_);
  // Writes words at `offset` of the peer's block. Errors: as PinnedOperations::put().
  Status write(const MailboxPeer& peer, uint32_t block, size_t offset, const uint64_t* words,
               uint32_t count) const noexcept;

 private:
  static constexpr uint32_t kBlocks = 32;

  bool is_registered() const noexcept { return mine_.blob_bytes != 0; }
  Status make(Rank rank) noexcept;

  PinnedOperations* pinned_ = nullptr;
  std::byte* memory_ = nullptr;
  size_t bytes_ = 0;
  size_t block_bytes_ = 0;
  std::unique_ptr<Registrar> registrar_;
  std::unique_ptr<std::byte[]> key_;
  MailboxAddress mine_;

  Mutex mu_;
  uint32_t used_ HYDRANT_GUARDED_BY(mu_) = 1;
  std::unique_ptr<MailboxPeer> peers_ HYDRANT_GUARDED_BY(mu_);
};

MailboxMemory& mailbox_memory() noexcept;

}  // namespace hydrant
