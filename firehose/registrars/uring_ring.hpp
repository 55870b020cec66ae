// One io_uring used as a table of registered buffers: slots are taken and given back, buffers are
// registered and cleared, and data moves through them. Knows nothing of other rings, of budgets or of
// error texts: it answers minus an errno. uring_registrar.hpp chooses between rings.
//
// A registration is a run of neighbouring slots, one per piece of at most 1 GiB (the kernel's limit for
// one buffer). Each run carries a generation, so that a key used twice is noticed.
//
// Charges given back late: on kernels that keep a cleared buffer charged for a while (6.1: about a
// second) a run is registered with a tag, and the kernel posts a completion with that tag when it lets
// go. The tag is the number of bytes charged, so that the completion says by itself what came back.
//
// Threads: all methods but construction and destruction, any thread. The kernel serialises
// registrations on one ring; idle() lets callers choose another.
#pragma once

#include "firehose/base/memory_range.hpp"
#include "firehose/base/thread.hpp"
#include "firehose/registrars/uring_forks.hpp"
#include "firehose/registrars/uring_slots.hpp"

#include <liburing.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <sys/types.h>

namespace hydrant {

inline constexpr size_t kUringPieceBytes = size_t{1} << 30;
inline constexpr uint32_t kUringMaxSlots = 16384;
// Set in the user data of submissions, never in a tag.
inline constexpr uint64_t kUringTicketBit = uint64_t{1} << 63;

// How much a ring is in use: the grounds for choosing one.
struct UringLoad {
  uint32_t users = 0;  // threads inside a registration or waiting for one
  uint32_t slots = 0;  // taken
  uint64_t bytes = 0;  // registered, in steps of 64 KiB
};

class UringRing {
 public:
  // `tagged`: charges come back late, see above. Null on failure, with *error = minus an errno.
  // Cost: about 0.1 ms, most of it the kernel's.
  static std::unique_ptr<UringRing> open(uint32_t slots, bool tagged, int* error) noexcept;

  // Clears all slots, waits until the kernel has let go, and closes. In another process than the one
  // that opened the ring it only closes the descriptor.
  ~UringRing();
  UringRing(const UringRing&) = delete;
  UringRing& operator=(const UringRing&) = delete;

  // Promises room for a registration of `len` bytes and marks the ring as in use; false if it is full, or
  // if `only_if_idle` and another thread uses it. Every success is followed by one register_run().
  bool claim(size_t len, bool only_if_idle) noexcept;
  // Registers `range`, as long as the claim was. `charge_bytes` is what pending_bytes() will count once it
  // is cleared. 0, or minus an errno; -EXFULL if no run of free slots is long enough. The claim is over.
  int register_run(MemoryRange range, uint64_t charge_bytes, UringRun* run) noexcept;

  // Takes the run out of the caller's hands: from here on nobody else can clear it. False if `run` is
  // not a live registration of exactly `range`.
  bool begin_unregister(MemoryRange range, UringRun run) noexcept;
  // Clears what begin_unregister() gave: `slots` slots from `first`, of `bytes` bytes together as
  // load_bytes() counts them. Neighbouring runs may go in one call. 0 or minus an errno; on failure
  // the slots are lost.
  int finish_unregister(uint32_t first, uint32_t slots, uint64_t bytes) noexcept;
  static uint32_t slots_for(size_t len) noexcept {
    return static_cast<uint32_t>((len + kUringPieceBytes - 1) / kUringPieceBytes);
  }
  static uint64_t load_bytes(size_t len) noexcept;

  // Bytes of cleared buffers that the kernel has not given back yet. Takes in what it has reported.
  // Cost: one load when nothing is pending; never a wait, a system call only after an overflow.
  uint64_t pending_bytes() noexcept;

  // Moves [within) of a live registration to (to_file) or from `fd` at `offset`, through the pinned
  // pages. `*moved` counts the bytes done, also on failure. 0, or minus an errno: -ESTALE if `run` is no
  // live registration that covers `within`, -ENODATA at the end of the file, -ETIME if the file made
  // no progress until the time limit. One move at a time per ring; others wait.
  int move(UringRun run, MemoryRange within, int fd, uint64_t offset, bool to_file,
           uint64_t timeout_ns, uint64_t* moved) noexcept;

  // What the kernel allocated for the ring's queues; newer kernels charge it to the account. The table of
  // slots is not in it.
  uint64_t memory_bytes() const noexcept;
  UringLoad load() const noexcept;
  uint32_t slots() const noexcept { return slots_.size(); }
  bool tagged() const noexcept { return tagged_; }

  // For the probe, on an empty ring that nobody else knows yet.
  void set_tagged(bool tagged) noexcept { tagged_ = tagged; }

  // Only close(2), so that the child of a fork does not keep the parent's pins. The object is dead then.
  // Does nothing where the fork handlers have closed it.
  void close_in_child() noexcept;

 private:
  struct Piece {
    uint32_t slot = 0;
    MemoryRange range;
  };

  UringRing() noexcept = default;
  int set_up(uint32_t slots, bool tagged) noexcept;
  int update(uint32_t first, uint32_t count, MemoryRange range, uint64_t tag) noexcept;
  int clear(uint32_t first, uint32_t count) noexcept;
  void claim_completions() noexcept;
  void release_completions() noexcept { completions_claimed_.clear(std::memory_order_release); }
  // Only with completions claimed:
  void reap() noexcept;
  void take_back(uint64_t tag) noexcept;
  bool find_piece(UringRun run, MemoryRange within, Piece* piece) noexcept;
  int move_piece(const Piece& piece, int fd, uint64_t offset, bool to_file,
                 uint64_t deadline_ns) noexcept;
  int wait_for(uint64_t ticket, uint64_t deadline_ns, int* result) noexcept;
  int cancel(uint64_t ticket) noexcept;

  io_uring ring_{};
  RingDescriptor descriptor_;
  bool tagged_ = false;
  bool opened_ = false;

  UringSlots slots_;
  // UringLoad packed: users, slots and units of bytes, so that one locked instruction changes all three.
  // Relaxed: it promises slots by counting, and else only steers choices; bitmap and records order data.
  std::atomic<uint64_t> load_{0};
  // Added to before a tagged run is cleared, taken from when its tag comes back.
  std::atomic<uint64_t> pending_{0};

  // One move at a time.
  Mutex move_mu_;
  // Who may take completions. A flag beside the mutex, so that pending_bytes() never waits for a move.
  std::atomic_flag completions_claimed_;
  // Guarded by completions_claimed_.
  uint64_t next_ticket_ = 0;
  uint32_t overflow_seen_ = 0;
};

}  // namespace hydrant
