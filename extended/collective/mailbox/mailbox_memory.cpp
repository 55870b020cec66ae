// Allocates, registers and hands out the memory of mailboxes, and writes into that of other ranks through
// PinnedOperations::put(). mailbox_team.cpp uses it.
#include "extended/collective/mailbox/mailbox_memory.hpp"

#include "firehose/base/errno_text.hpp"
#include "firehose/base/log.hpp"
#include "firehose/base/planted_defect.hpp"
#include "rdma/transport/guarded_memory.hpp"

#include <bit>
#include <cerrno>
#include <new>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

namespace hydrant {
namespace {

// Completion of a write. No thread waits for it, and the transport itself detects a lost peer.
void note_failure(Completion&, Status status) noexcept {
  if (status == Status::kOk) return;
  static constinit RateLimit limit(RateLimit::kSecond);
  log_warning(limit, "a line for another rank's mailbox was not written (%s)", status_name(status));
}
// All writes share this completion, because it has no state.
constinit Completion completion = {.done = note_failure};

}  // namespace

MailboxMemory& mailbox_memory() noexcept {
  // Lives as long as the process, because threads may be using it at process exit.
  alignas(MailboxMemory) static std::byte place[sizeof(MailboxMemory)];
  static MailboxMemory* const all = new (place) MailboxMemory;
  return *all;
}

MailboxMemory::~MailboxMemory() {
  for (const MailboxPeer* peer = peers_.get(); peer != nullptr; peer = peer->next.get())
    registrar_->drop_import(peer->key.get());
  if (key_ != nullptr)
    (void)registrar_->unpin({reinterpret_cast<uintptr_t>(memory_), bytes_}, key_.get());
  if (memory_ != nullptr && !release_guarded(memory_)) (void)munmap(memory_, bytes_);
}

Status MailboxMemory::make(Rank rank) noexcept {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  std::byte* start = nullptr;
  Status status =
      reserve_guarded(bytes_, page, GuardSize::kMin, {.what = "mailboxes", .rank = rank}, &start);
  if (status != Status::kOk) return status;
  memory_ = start;
  // Shared: a fork must not copy registered pages.
  if (mmap(start, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_ANONYMOUS, -1, 0) ==
      MAP_FAILED)
    return fail(Status::kResource, "cannot map the memory: %s", errno_text(errno));
  registrar_ = pinned_->make_registrar();
  if (registrar_ == nullptr) return Status::kUnsupported;
  const RegistrarTraits& traits = registrar_->traits();
  const MemoryRange range{reinterpret_cast<uintptr_t>(memory_), bytes_};
  if (!traits.exports || traits.export_bytes > MailboxAddress::kMaxBlob ||
      bytes_ % traits.granule_bytes != 0 || range.addr % traits.granule_bytes != 0)
    return fail(Status::kUnsupported, "%s pins units of %zu bytes with key blobs of %u bytes",
                traits.name, traits.granule_bytes, traits.export_bytes);
  key_.reset(new (std::nothrow) std::byte[traits.key_bytes]);
  if (key_ == nullptr) return fail(Status::kResource, "no memory for a key");
  status = registrar_->pin(range, Access::kLocalWrite | Access::kRemoteWrite, key_.get());
  if (status != Status::kOk) {
    key_.reset();
    return status;
  }
  size_t blob_bytes = sizeof mine_.blob;
  status = registrar_->export_key(range, key_.get(), mine_.blob, &blob_bytes);
  if (status != Status::kOk) return status;
  mine_.address = range.addr;
  mine_.blob_bytes = blob_bytes;
  return Status::kOk;
}

void MailboxMemory::start(const JobTopology& topology, Transport& transport) noexcept {
  pinned_ = transport.pinned();
  // Such a rank could read lines, but not write them: its edges have no mailboxes in either direction.
  if (pinned_->keyless_bytes() < sizeof(MailboxLine)) {
    log_info("small reductions between nodes send messages: %s writes at most %u bytes at once",
             transport.name(), pinned_->keyless_bytes());
    return;
  }
  // A line that is sent again after its reader has cleared it would be taken for the next one. To clear it
  // later is no remedy while the memory passes from team to team.
  if (pinned_->put_order() != PutOrder::kOrdered && !has_defect(Defect::kUnorderedLines)) {
    log_info("small reductions between nodes send messages: %s does not keep the order of puts",
             transport.name());
    return;
  }
  block_bytes_ = TeamMailboxes::bytes_of(topology.size);
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  bytes_ = (kBlocks * block_bytes_ + page - 1) / page * page;
  if (make(topology.rank) != Status::kOk)
    log_warning(
        "small reductions between nodes send messages, as there are no mailboxes of %zu bytes: %s; "
        "%s",
        bytes_, last_error_text(), kInstead);
}

MailboxLine* MailboxMemory::block(uint32_t index) const noexcept {
  return static_cast<MailboxLine*>(static_cast<void*>(memory_ + index * block_bytes_));
}

uint32_t MailboxMemory::offer() noexcept {
  if (!is_registered()) return 0;
  // A few more than one: members may have different blocks in use.
  constexpr int kOffered = 4;
  const MutexLock lock(mu_);
  uint32_t offered = 0;
  while (std::popcount(offered) < kOffered && ~used_ != 0) {
    const uint32_t lowest = ~used_ & (used_ + 1);
    offered |= lowest;
    used_ |= lowest;
  }
  return offered;
}

void MailboxMemory::withdraw(uint32_t blocks) noexcept {
  const MutexLock lock(mu_);
  used_ &= ~blocks;
}

Status MailboxMemory::find_peer(Rank jobrank, const MailboxAddress& address,
                                const MailboxPeer** found) noexcept {
  *found = nullptr;
  if (!is_registered() || address.blob_bytes == 0) return Status::kOk;
  const MutexLock lock(mu_);
  const MailboxPeer* known = peers_.get();
  while (known != nullptr && known->rank != jobrank) known = known->next.get();
  *found = known;
  if (known != nullptr) return Status::kOk;
  std::unique_ptr<MailboxPeer> made(new (std::nothrow) MailboxPeer);
  if (made != nullptr)
    made->key.reset(new (std::nothrow) std::byte[registrar_->traits().key_bytes]);
  if (made == nullptr || made->key == nullptr)
    return fail(Status::kResource, "no memory for the key of rank %u", jobrank);
  const Status status = registrar_->import_key(address.blob, address.blob_bytes, made->key.get());
  if (status != Status::kOk) return status;
  made->rank = jobrank;
  made->address = address.address;
  made->next = std::move(peers_);
  peers_ = std::move(made);
  *found = peers_.get();
  return Status::kOk;
}

Status MailboxMemory::write(const MailboxPeer& peer, uint32_t block, size_t offset,
                            const uint64_t* words, uint32_t count) const noexcept {
  return pinned_->put(peer.rank,
                      {.addr = peer.address + block * block_bytes_ + offset, .key = peer.key.get()},
                      {.addr = reinterpret_cast<uintptr_t>(words), .key = nullptr},
                      count * sizeof *words, &completion);
}

}  // namespace hydrant
