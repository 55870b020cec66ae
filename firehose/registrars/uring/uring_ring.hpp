// A single io_uring used as a table of registered buffers: takes and frees slots, registers and clears
// buffers, moves data through them. Independent of other rings, budgets and error texts:
// returns negative errno. uring_registrar.hpp chooses between rings.
//
// A registration is a run of adjacent slots, one per piece of at most 1 GiB (the kernel's limit for a
// buffer). Each run has a generation, which detects a key that is used twice.
//
// Late charges: some kernels keep a cleared buffer charged for a while (6.1: about a second). A run is then
// registered with a tag, and the kernel posts a completion with that tag when it returns the charge. The tag
// is the number of charged bytes.
//
// A lost ring: the program has closed the descriptor, and may have opened another file under its number, or
// the system refuses both calls that tell (fcntl() and fstat(); see FileIdentity). The
// ring's mappings keep it alive and its memory pinned, but it can no longer register, clear or move. When its
// last registration ends, the mappings are removed, and a few milliseconds later the kernel unpins
// everything. Then the ring can be reopened. The descriptor is checked before each use.
//
// Threads: any, except for construction and destruction. The kernel serialises registrations on one ring;
// load() lets callers choose another.
#pragma once

#include "firehose/base/memory_range.hpp"
#include "firehose/base/thread.hpp"
#include "firehose/registrars/uring/uring_forks.hpp"
#include "firehose/registrars/uring/uring_slots.hpp"

#include <liburing.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <sys/types.h>

namespace hydrant {

inline constexpr size_t kUringPieceBytes = size_t{1} << 30;
inline constexpr uint32_t kUringMaxSlots = 16384;
inline constexpr uint64_t kUringUnitBytes = uint64_t{1} << 16;
// Set in the user data of submissions, never in a tag.
inline constexpr uint64_t kUringTicketBit = uint64_t{1} << 63;

// Slots and bytes that a registration takes of a ring.
struct UringSize {
  uint32_t slots = 0;
  uint64_t bytes = 0;  // in steps of kUringUnitBytes

  static constexpr UringSize of(size_t len) noexcept {
    return {static_cast<uint32_t>((len + kUringPieceBytes - 1) / kUringPieceBytes),
            (len + kUringUnitBytes - 1) / kUringUnitBytes * kUringUnitBytes};
  }
  constexpr UringSize& operator+=(const UringSize& more) noexcept {
    slots += more.slots;
    bytes += more.bytes;
    return *this;
  }
};

// A failed call of the ring: a negative errno, and the system call that failed.
struct UringFailure {
  int error = 0;
  const char* call = "";
};

// True for a negative errno that another attempt may not meet.
constexpr bool uring_try_again(int error) noexcept {
  return error == -EINTR || error == -EAGAIN || error == -EBUSY;
}

// How a move ended.
enum class UringMoveCause : uint8_t {
  kNone,        // all was moved
  kStaleKey,    // the run is not a live registration that covers the range
  kRingLost,    // the program has closed the ring's descriptor
  kRingHidden,  // the system does not let the ring's descriptor be checked
  kEndOfFile,   // the file ended before all was read
  kNoProgress,  // the transfer was cancelled at the time limit
  kFile,        // the transfer failed with `error`
  kCall,        // io_uring_enter() failed with `error`
};
struct UringMoveEnd {
  UringMoveCause cause = UringMoveCause::kNone;
  int error = 0;       // a negative errno, or 0
  uint64_t moved = 0;  // bytes done, also on failure
};

// How busy a ring is; UringPool chooses by it.
struct UringLoad {
  uint32_t users = 0;  // threads inside a registration or waiting for one
  UringSize taken;
  uint32_t free_slots = 0;
};

class UringRing {
 public:
  // `tagged`: charges return late, see above. Null on failure, with *failure.
  // Cost: about 0.1 ms, most of it in the kernel.
  static std::unique_ptr<UringRing> open(uint32_t slots, bool tagged,
                                         UringFailure* failure) noexcept;

  // Clears all slots, waits until the kernel has unpinned them, and closes. In a process other than the one
  // that opened the ring it only closes the descriptor.
  ~UringRing();
  UringRing(const UringRing&) = delete;
  UringRing& operator=(const UringRing&) = delete;

  // Reserves room for a registration of `len` bytes and marks the ring as in use. False if it is full, or if
  // `only_if_idle` and another thread uses it. Each success must be followed by one register_run().
  bool claim(size_t len, bool only_if_idle) noexcept;
  // Registers `range`, whose length is that of the claim, and ends the claim. `charge_bytes` is added to
  // pending_bytes() once the run is cleared. 0 or a negative errno; -EXFULL if no run of free slots is long
  // enough.
  int register_run(MemoryRange range, uint64_t charge_bytes, UringRun* run) noexcept;

  // Takes the exclusive right to clear the run. False if `run` is not a live registration of exactly `range`.
  bool begin_unregister(MemoryRange range, UringRun run) noexcept;
  // Clears runs after begin_unregister(), from slot `first` on. Adjacent runs may share one call, with the
  // sum of their sizes. 0 or a negative errno; on failure the memory stays pinned until the slots are
  // registered again. -EBADF: the ring is lost, and the bytes are pending until it has drained.
  int finish_unregister(uint32_t first, const UringSize& size) noexcept;

  // Bytes of cleared buffers that the kernel still charges. Processes its completions first.
  // Cost: one load if zero; never waits; a system call only after an overflow.
  uint64_t pending_bytes() noexcept;

  // Moves [within) of a live registration to (to_file) or from `fd` at `offset`, through the pinned pages.
  // What may pass (uring_try_again()) is tried again until there was no progress for `timeout_ns`; any other
  // error ends the move at once. At its end nothing is queued, and the kernel does not touch the memory any
  // more, except through a lost ring, which cannot be told to stop. Waits for a transfer that cannot be
  // cancelled, without a limit. One move at a time per ring; others wait.
  UringMoveEnd move(UringRun run, MemoryRange within, int fd, uint64_t offset, bool to_file,
                    uint64_t timeout_ns) noexcept;

  // Memory that the kernel allocated for the ring's queues, without the slot table. Newer kernels charge it
  // to the account.
  uint64_t memory_bytes() const noexcept;
  UringLoad load() const noexcept;
  bool tagged() const noexcept { return tagged_; }

  bool is_lost() const noexcept { return lost_.load(std::memory_order_acquire); }
  // Checks the descriptor, and unmaps a lost ring that has drained. True for one caller only, when the loss
  // is detected; *hidden is then set if the system does not let the descriptor be checked, so that it may be
  // open. Cost: a system call, 0.09 us.
  bool claim_loss(bool* hidden) noexcept;
  // Reopens a lost ring that has drained; -EBUSY for any other. Earlier keys stay stale.
  UringFailure reopen() noexcept;

  // For the probe, on an empty ring that no other thread knows yet.
  void set_tagged(bool tagged) noexcept { tagged_ = tagged; }

  // Only closes the descriptor, so that the child of a fork does not keep the parent's pins. The object is
  // unusable afterwards. No effect if the fork handlers have closed it.
  void close_in_child() noexcept;

 private:
  struct Piece {
    uint32_t slot = 0;
    MemoryRange range;
  };

  UringRing() noexcept = default;
  UringFailure set_up(uint32_t slots, bool tagged) noexcept;
  UringFailure make(uint32_t slots, bool tagged) noexcept;
  void shut() noexcept;
  bool is_usable() noexcept;
  void end_if_drained() noexcept;
  // -EBADF if the descriptor no longer names the ring.
  int update_table(uint32_t first, const iovec* pieces, const __u64* tags, uint32_t n) noexcept;
  int update(uint32_t first, uint32_t count, MemoryRange range, uint64_t tag) noexcept;
  int clear(uint32_t first, uint32_t count) noexcept;
  void claim_completions() noexcept;
  void release_completions() noexcept { completions_claimed_.clear(std::memory_order_release); }
  // Require: completions are claimed.
  void reap() noexcept;
  void release_update(uint64_t tag) noexcept;
  bool find_piece(UringRun run, MemoryRange within, Piece* piece) noexcept;
  UringMoveEnd move_piece(const Piece& piece, int fd, uint64_t offset, bool to_file,
                          uint64_t deadline_ns) noexcept;
  int submit(uint64_t deadline_ns) noexcept;
  int wait_for(uint64_t ticket, uint64_t deadline_ns, int* result) noexcept;
  int end_transfer(uint64_t ticket, int cause, uint64_t deadline_ns, int* result) noexcept;
  void cancel(uint64_t ticket) noexcept;

  io_uring ring_{};
  RingDescriptor descriptor_;
  bool tagged_ = false;
  bool opened_ = false;  // once shared, changes only with completions claimed and load_ 0
  // Set when the descriptor was found to name another file. reopen() clears it, with release, while load_
  // gives it exclusive use of the ring.
  std::atomic<bool> lost_{false};
  std::atomic<bool> hidden_{false};  // written before lost_
  std::atomic<bool> loss_taken_{false};

  UringSlots slots_;
  // Users and what is taken, packed into one word, so that one locked instruction changes all of it.
  // Relaxed: it reserves slots by counting and guides choices; bitmap and records order the data.
  std::atomic<uint64_t> load_{0};
  // Increased before a tagged run is cleared, decreased when its tag arrives. In a lost ring: bytes that are
  // unpinned with its mappings.
  std::atomic<uint64_t> pending_{0};

  // Serialises moves.
  Mutex move_mu_;
  // Held by the thread that reaps completions. Separate from the mutex: pending_bytes() never waits for a
  // move.
  std::atomic_flag completions_claimed_;
  // Guarded by completions_claimed_.
  uint64_t next_ticket_ = 0;
  uint32_t overflow_seen_ = 0;
};

}  // namespace hydrant
