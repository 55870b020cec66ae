// Memory pinned for the injected network: the equivalent of an adapter's table of registrations, and the
// registrar that writes it.
//
// A registration is a record of 32 bytes in its owner's memory. Peers read the record before they move data,
// and so detect a dead or foreign key, another range or a missing right where an adapter would. Unpinning
// clears the record. No two registrations have the same number, so a reused record never matches an old key.
//
// Pages are locked in memory (mlock, counted, because it does not nest), and made writable for a right that
// writes; memory that cannot be is refused. Pins hold no references to pages: after the program has mapped
// other pages at an address, an adapter uses the old ones, and this network the new ones. Pages that other
// code of this process has locked lose that lock with their last pin here.
//
// Threads: any; pins and unpins exclude each other while the kernel works, and checks take no lock. Cost: a
// lock and an mlock; fake pins make no system call. Charge: the full length of every registration.
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
  // The most registrations at once.
  static constexpr uint32_t kMax = 1 << 16;

  struct Limits {
    uint64_t bytes = 0;    // most bytes pinned at once; 0: the kernel's limit
    bool is_fake = false;  // pages are neither locked nor checked
  };
  // The record that peers read. All zero: no registration.
  struct alignas(32) Record {
    std::atomic<uint64_t> nonce{0};
    std::atomic<uint64_t> addr{0};
    std::atomic<uint64_t> len{0};
    std::atomic<uint64_t> access{0};
  };
  // A copy of a record, as read from a peer.
  struct RecordBytes {
    uint64_t nonce = 0;
    uint64_t addr = 0;
    uint64_t len = 0;
    uint64_t access = 0;
  };
  static_assert(sizeof(Record) == 32 && sizeof(RecordBytes) == sizeof(Record));

  // The transport holds `wire` while it copies data; callers of this class do not hold it. An unpin locks it
  // once, so that no copy uses the pages when they are released.
  // Errors: kResource.
  static Status open(const Limits& limits, Mutex& wire,
                     std::unique_ptr<InjectedPins>* pins) noexcept;
  ~InjectedPins();
  InjectedPins(const InjectedPins&) = delete;
  InjectedPins& operator=(const InjectedPins&) = delete;

  // Null, with a text, if memory is short. The registrar must not outlive this object; its pins end with it.
  std::unique_ptr<Registrar> make_registrar() noexcept;

  // Checks that a key of this rank permits `what` on all of `range` now. Errors: kRefused.
  Status check_local(const InjectedKey& key, MemoryRange range, Access what) const noexcept;
  // As check_local() for an imported key, with `record` as read from the peer.
  static Status check_remote(const InjectedKey& key, const RecordBytes& record, MemoryRange range,
                             Access what) noexcept;

 private:
  class Handle;
  // Private part of a registration, not visible to peers.
  struct Slot {
    uint32_t owner;  // the registrar that pinned it
    uint32_t next;   // in the list of free slots
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
  // Returns an errno. Pages that are no longer mapped have lost their lock already.
  int release_pages(MemoryRange range) noexcept HYDRANT_REQUIRES(mu_);
  // The registration of a key of this rank if it is alive and has exactly this range; else null.
  Record* find(const InjectedKey& key, MemoryRange range) const noexcept;
  int end_registration(uint32_t index) noexcept HYDRANT_REQUIRES(mu_);
  uint64_t next_nonce() noexcept HYDRANT_REQUIRES(mu_);

  const Limits limits_;
  Mutex& wire_;
  RegistrarTraits traits_;
  bool can_populate_ = false;
  Record* records_ = nullptr;  // kMax records; pages are allocated on first use
  std::unique_ptr<Slot[]> slots_;

  Mutex mu_;
  uint32_t used_ HYDRANT_GUARDED_BY(mu_) = 0;  // records used so far, at most
  uint32_t free_ HYDRANT_GUARDED_BY(mu_) = kNoSlot;
  uint32_t owners_ HYDRANT_GUARDED_BY(mu_) = 0;
  uint64_t pinned_bytes_ HYDRANT_GUARDED_BY(mu_) = 0;
  uint64_t nonce_state_ HYDRANT_GUARDED_BY(mu_) = 0;
  std::unique_ptr<InjectedPageCounts> page_counts_
      HYDRANT_GUARDED_BY(mu_);  // made by the first pin
  pid_t process_ = 0;
  bool is_child_ = false;  // in the child of a fork, where no transport copies
};

}  // namespace hydrant
