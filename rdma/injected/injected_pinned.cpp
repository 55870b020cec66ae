// Starts operations between pinned memory, and checks their keys at both ends before data moves, as an
// adapter does.
#include "rdma/injected/injected_transport.hpp"
#include "rdma/transport/spin_lock.hpp"

#include <cstring>
#include <new>

namespace hydrant {
namespace {

// The rights that an operation needs at either end.
constexpr Access local_access(bool is_put) noexcept {
  return is_put ? Access::kLocalRead : Access::kLocalWrite;
}
constexpr Access remote_access(bool is_put, bool is_atomic) noexcept {
  if (is_atomic) return Access::kRemoteAtomic;
  return is_put ? Access::kRemoteWrite : Access::kRemoteRead;
}

// Pauses between the load and the store of an atomic operation: long enough for a processor's instruction on
// the same word to be lost, as it is with some adapters.
constexpr int kPausesBeforeStore = 16;

MemoryRange local_range(const void* local, size_t bytes) noexcept {
  return {reinterpret_cast<uintptr_t>(local), bytes};
}

}  // namespace

Status InjectedTransport::open_pins() noexcept {
  {
    const MutexLock lock(mu_);
    pinned_ends_.reset(new (std::nothrow) PinnedEnds[depth_]);
    if (pinned_ends_ == nullptr)
      return fail(Status::kResource, "no memory for the injected network");
    for (uint32_t i = depth_; i-- != 0;) free_ends(&pinned_ends_[i]);
  }
  has_atomics_ = there_.shared_block(self_) != nullptr;
  return InjectedPins::open({.bytes = network_.pin_bytes, .is_fake = network_.pins_are_fake}, mu_,
                            &pins_);
}

void InjectedTransport::free_ends(PinnedEnds* ends) noexcept {
  ends->next = free_ends_;
  free_ends_ = ends;
}

Status InjectedTransport::put(Rank peer, const Pinned& remote, const Pinned& local, size_t bytes,
                              Completion* completion) noexcept {
  DelayedOperation operation{.is_put = true, .bytes = bytes, .completion = completion};
  return begin_pinned(peer, operation, remote, local);
}

Status InjectedTransport::get(Rank peer, const Pinned& remote, const Pinned& local, size_t bytes,
                              Completion* completion) noexcept {
  DelayedOperation operation{.bytes = bytes, .completion = completion};
  return begin_pinned(peer, operation, remote, local);
}

Status InjectedTransport::start_atomic(Rank peer, const Pinned& remote, const Pinned& local,
                                       const Atomic& what, Completion* completion) noexcept {
  if (!has_atomics_)
    return fail_literal(Status::kUnsupported, "this transport has no atomic operations");
  if (remote.addr % sizeof(uint64_t) != 0)
    return fail(Status::kBadArg, "an atomic operation on the word at %#zx, which is not aligned",
                static_cast<size_t>(remote.addr));
  DelayedOperation operation{.bytes = sizeof(uint64_t), .completion = completion};
  return begin_pinned(peer, operation, remote, local, &what);
}

Status InjectedTransport::begin_pinned(Rank peer, DelayedOperation& operation, const Pinned& remote,
                                       const Pinned& local, const Atomic* what) noexcept {
  const size_t bytes = operation.bytes;
  const bool is_inlined = operation.is_put && bytes <= kKeylessBytes;
  const char* const kind = operation.is_put ? "put" : "get";
  if (remote.key == nullptr || (local.key == nullptr && !is_inlined)) {
    return fail(Status::kBadArg, "a %s of %zu bytes: the remote or the local memory has no key",
                kind, bytes);
  }
  for (const uintptr_t addr : {remote.addr, local.addr}) {
    if (MemoryRange{addr, bytes}.valid()) continue;
    return fail(Status::kBadArg, "a %s of pinned memory: [%#zx, +%zu) is empty or wraps around",
                kind, static_cast<size_t>(addr), bytes);
  }
  operation.remote = remote.addr;
  operation.local = reinterpret_cast<void*>(local.addr);
  const InjectedKey remote_key = InjectedKey::load(remote.key);
  if (remote_key.kind != InjectedKey::kImported)
    return fail_literal(Status::kRefused, "this is no key of a peer's memory");
  const InjectedKey local_key = is_inlined ? InjectedKey{} : InjectedKey::load(local.key);
  Pair* pair = pair_with(peer);
  if (pair == nullptr) return Status::kBadArg;

  const MutexLock lock(mu_);
  const uint64_t now = clock_();
  if (const Status admitted = admit(*pair, now); admitted != Status::kOk) return admitted;
  if (!is_inlined) {
    const MemoryRange range = local_range(operation.local, bytes);
    const Status allowed = pins_->check_local(local_key, range, local_access(operation.is_put));
    if (allowed != Status::kOk) return allowed;
  }
  if (!pair->is_reached) {
    // The peer's records are never mapped here, so test whether the kernel may copy from it.
    std::byte byte;
    const Status reached = there_.get(peer, remote_key.record, &byte, 1, nullptr);
    if (reached != Status::kOk) return reached;
    pair->is_reached = true;
  }
  PinnedEnds& ends = *free_ends_;
  free_ends_ = ends.next;
  ends.remote = remote_key;
  ends.local = local_key;
  ends.is_inlined = is_inlined;
  ends.is_atomic = what != nullptr;
  if (what != nullptr) ends.what = *what;
  if (is_inlined) {
    std::memcpy(ends.inlined, operation.local, bytes);
    operation.local = ends.inlined;
  }
  operation.ends = &ends;
  start(*pair, operation, now);
  return Status::kOk;
}

// Checks the keys of both ends when the operation arrives.
Status InjectedTransport::check_keys(const DelayedOperation& operation) noexcept {
  const PinnedEnds& ends = *operation.ends;
  if (!ends.is_inlined) {
    const MemoryRange range = local_range(operation.local, operation.bytes);
    const Status allowed = pins_->check_local(ends.local, range, local_access(operation.is_put));
    if (allowed != Status::kOk) return allowed;
  }
  InjectedPins::RecordBytes record;
  const Status read =
      there_.get(operation.pair->peer, ends.remote.record, &record, sizeof record, nullptr);
  if (read == Status::kUnsupported)
    return fail_literal(Status::kRefused, "a peer's key whose record is not there");
  if (read != Status::kOk) return read;
  return InjectedPins::check_remote(ends.remote, record, {operation.remote, operation.bytes},
                                    remote_access(operation.is_put, ends.is_atomic));
}

// ---- atomic operations ----

// The lock is in the block that all ranks of the node share, which this network hides from its clients.
std::atomic<uint32_t>& InjectedTransport::adapter_lock(Rank peer) const noexcept {
  return *static_cast<std::atomic<uint32_t>*>(static_cast<void*>(there_.shared_block(peer)));
}

// Locks the adapter of `peer` for one operation. The lock of a rank that has failed is taken over.
bool InjectedTransport::try_lock_adapter(Rank peer) noexcept {
  std::atomic<uint32_t>& lock = adapter_lock(peer);
  uint32_t holder = 0;
  if (lock.compare_exchange_strong(holder, self_ + 1, std::memory_order_acquire)) return true;
  const Pair* const pair = pair_with(holder - 1);
  return pair != nullptr && pair->is_lost &&
         lock.compare_exchange_strong(holder, self_ + 1, std::memory_order_acquire);
}

// kNotReady: the peer's adapter is at work for another rank.
Status InjectedTransport::change_word(const DelayedOperation& operation) noexcept {
  const Rank peer = operation.pair->peer;
  const Atomic& what = operation.ends->what;
  if (!try_lock_adapter(peer)) return Status::kNotReady;
  uint64_t old = 0;
  Status status = there_.get(peer, operation.remote, &old, sizeof old, nullptr);
  for (int i = 0; i < kPausesBeforeStore; ++i) pause();
  const bool is_add = what.kind == Atomic::Kind::kFetchAdd;
  const uint64_t word = is_add ? old + what.operand : what.operand;
  if (status == Status::kOk && (is_add || old == what.expected))
    status = there_.put(peer, operation.remote, &word, sizeof word, nullptr);
  adapter_lock(peer).store(0, std::memory_order_release);
  if (status == Status::kOk) std::memcpy(operation.local, &old, sizeof old);
  return status;
}

}  // namespace hydrant
