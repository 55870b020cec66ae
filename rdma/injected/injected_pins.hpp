// Memory that is pinned for the injected network: what an adapter's table of registrations is, and the
// registrar that writes it.
//
// A registration is a record of 32 bytes in its owner's memory, which peers read before they move anything:
// that is how a dead or foreign key, another range or a right that is missing is found out where an adapter
// would find it out. Unpinning clears the record. No two registrations have the same number, so a record that
// is used again says nothing for keys from before.
//
// Pages are locked in memory (mlock, counted: it does not nest), and made writable for a right that writes:
// memory that cannot be is refused. Nothing holds the pages themselves: an adapter goes on with those of old
// when the program maps others at that address, this one sees the new ones. Pages that somebody else in this
// process has locked lose that lock with their last pin here.
//
// Threads: any; pins and unpins take turns, for as long as the kernel needs, and checks lock nothing. Cost: a
// lock and an mlock, or nothing in the kernel for pins that are none. Charge: every registration, whole.
#pragma once

#include "firehose/base/memory_range.hpp"
#include "firehose/base/registrar.hpp"
#include "firehose/base/thread.hpp"
#include "rdma/injected/injected_keys.hpp"
#include "rdma/injected/injected_page_counts.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <sys/types.h>

namespace hydrant {

class InjectedPins {
 public:
  // Registrations at once.
  static constexpr uint32_t kMax = 1 << 16;

  struct Limits {
    uint64_t bytes = 0;    // pinned at once; 0: what the kernel allows
    bool is_fake = false;  // nothing is locked, nor looked at
  };
  // What peers read. All zero: no registration.
  struct alignas(32) Record {
    std::atomic<uint64_t> nonce{0};
    std::atomic<uint64_t> addr{0};
    std::atomic<uint64_t> len{0};
    std::atomic<uint64_t> access{0};
  };
  // A copy of one, as it comes from a peer.
  struct RecordBytes {
    uint64_t nonce = 0;
    uint64_t addr = 0;
    uint64_t len = 0;
    uint64_t access = 0;
  };
  static_assert(sizeof(Record) == 32 && sizeof(RecordBytes) == sizeof(Record));

  // `wire` is held by whoever copies, and by none who calls here: what is unpinned is let go when nobody is
  // at it.
  // Errors: kResource.
  static Status open(const Limits& limits, Mutex& wire,
                     std::unique_ptr<InjectedPins>* pins) noexcept;
  ~InjectedPins();
  InjectedPins(const InjectedPins&) = delete;
  InjectedPins& operator=(const InjectedPins&) = delete;

  // Null without memory, with a text. This object outlives it, and what it has pinned does not.
  std::unique_ptr<Registrar> make_registrar() noexcept;

  // Whether a key of this rank allows `what` with all of `range`, now. Errors: kRefused.
  Status check_local(const InjectedKey& key, MemoryRange range, Access what) const noexcept;
  // The same for an imported key, when `there` is what its record reads.
  static Status check_remote(const InjectedKey& key, const RecordBytes& there, MemoryRange range,
                             Access what) noexcept;

 private:
  class Handle;
  // Not seen by peers.
  struct Slot {
    uint32_t owner;  // which registrar's
    uint32_t next;   // of those that are free
  };
  static constexpr uint32_t kNoSlot = UINT32_MAX;

  InjectedPins(const Limits& limits, Mutex& wire) noexcept;
  Status init() noexcept;

  Status pin(uint32_t owner, MemoryRange range, Access access, std::byte* key) noexcept;
  UnpinResult unpin(uint32_t owner, MemoryRange range, const std::byte* key) noexcept;
  Status export_key(MemoryRange range, const std::byte* key, std::byte* blob) noexcept;
  void unpin_all(uint32_t owner) noexcept;
  void forget_in_child() noexcept HYDRANT_NO_TSA;

  Status admit(MemoryRange range, Access access) noexcept HYDRANT_REQUIRES(mu_);
  Status lock_pages(MemoryRange range, Access access) noexcept;
  // An errno; what is not mapped any more took its lock with it.
  int release_pages(MemoryRange range) noexcept HYDRANT_REQUIRES(mu_);
  // The registration of a key of this rank, if it is alive and of just this range.
  Record* find(const InjectedKey& key, MemoryRange range) const noexcept;
  int end_registration(uint32_t index) noexcept HYDRANT_REQUIRES(mu_);
  uint64_t next_nonce() noexcept HYDRANT_REQUIRES(mu_);

  const Limits limits_;
  Mutex& wire_;
  RegistrarTraits traits_;
  bool can_populate_ = false;
  Record* records_ = nullptr;  // kMax of them, touched as they are needed
  std::unique_ptr<Slot[]> slots_;

  Mutex mu_;
  uint32_t used_ HYDRANT_GUARDED_BY(mu_) = 0;  // of the records, at the most so far
  uint32_t free_ HYDRANT_GUARDED_BY(mu_) = kNoSlot;
  uint32_t owners_ HYDRANT_GUARDED_BY(mu_) = 0;
  uint64_t pinned_bytes_ HYDRANT_GUARDED_BY(mu_) = 0;
  uint64_t nonce_state_ HYDRANT_GUARDED_BY(mu_) = 0;
  std::unique_ptr<InjectedPageCounts> page_counts_
      HYDRANT_GUARDED_BY(mu_);  // made by the first pin
  pid_t process_ = 0;
  bool is_child_ = false;  // of a fork: no wire moves anything here
};

}  // namespace hydrant
