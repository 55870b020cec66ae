// Pins memory with io_uring registered buffers: true long-term pins by the kernel, on any Linux machine
// from 5.19 on, without a network card. Data can be moved through the pinned pages themselves.
//
// What it can pin: memory that this process may write, anonymous, private or from a memfd. The kernel
// pins every buffer for writing, so read-only memory is refused for every right, and so is, on newer
// kernels, a shared mapping of a file on disk.
//
// Rings. One ring's registrations are serialised by a lock in the kernel, and pinning huge pages scans
// what the ring has registered (64 KiB of a huge page: 1 us beside 256 buffers, 115 us beside 16384;
// small pages: no difference). Hence many small rings, made when they are wanted: the first 32 have 256
// slots, the next 16 have 1024, then 8 of 4096 and 8 of 16384. A pin goes to a ring that no thread is
// using and that holds little; large pins keep to rings of their own, so that unpinning a small one
// never waits behind them. Ranges over 1 GiB take neighbouring slots of one ring, at most 64.
// Beside the kernel's call a pin and its unpin take about 0.1 us together, half of it locked instructions.
//
// Descriptors. Each use of a ring first checks that the descriptor is still its own. That adds 0.16 us to a
// pin and its unpin, which take 0.63 us for 4 KiB (decision 0032). When the program has closed it, nothing of
// the program is touched: pins made through that ring stay pinned, unpin() returns kPending until the last of
// them ends, new pins take new rings, losses() grows, and one warning is logged. The check does not notice a
// program that closes the ring between the check and the use, within about 0.1 us.
//
// Charge: RLIMIT_MEMLOCK, per user across processes, whole huge pages (huge_pages.hpp); on newer
// kernels (seen with 6.18) each ring's queues are charged, too: 12 KiB for the first, 8 KiB for others.
// A limited account has no more rings than a sixteenth of it pays for, at least one, and they are not
// in max_charge_bytes. Kernels that release a charge late are detected at creation; unpin() returns
// kPending on them.
#pragma once

#include "firehose/base/registrar.hpp"

#include <memory>

namespace hydrant {

struct UringOptions {
  // Slots of every ring, 1 to 16384; 0 means growing as described above.
  uint32_t ring_slots = 0;
  uint32_t max_rings = 64;  // 1 to 64; each is a descriptor and a few pages of kernel memory
  // A ring that holds more than this is taken only if there is no other: guess from the scan above,
  // 16384 small pages cost a huge page's pin about 0.1 ms.
  uint64_t crowded_bytes = uint64_t{64} << 20;
  // Pins at least this long go to rings of their own.
  uint64_t large_bytes = uint64_t{1} << 20;
  // As if the kernel released charges late, whatever the probe finds: for tests.
  bool assume_late_charges = false;
};

class UringRegistrar : public Registrar {
 public:
  // Moves `within`, a part of the live registration `key`, to (to_file) or from `fd` at `offset`. Short
  // transfers are continued; the end of a file before all is read is kBadArg.
  // Errors: kBadArg (stale key, outside the registration, end of file, bad descriptor); kNotReady (30 s
  // without progress); kBroken (the I/O or io_uring_enter() failed; the text has the errno).
  // Threads: any; moves on one ring take turns. Cost: system calls; made for proofs, not for speed.
  virtual Status move(const std::byte* key, MemoryRange within, int fd, uint64_t offset,
                      bool to_file) noexcept = 0;

  // Facts found at creation, for display.
  virtual bool charge_comes_back_late() const noexcept = 0;
  virtual bool knows_huge_pages() const noexcept = 0;
  // Rings open now.
  virtual uint32_t rings() const noexcept = 0;
};

// Opens the first ring and probes whether io_uring is allowed, whether pinning works, whether this process is
// charged, and when a charge is released.
// Errors: kUnsupported (io_uring absent, forbidden or too old, or no page can be locked: the text
// says what to change); kResource (out of memory or descriptors); kBadArg (options).
// Cost: about two milliseconds.
std::unique_ptr<UringRegistrar> make_uring_registrar(const UringOptions& options,
                                                     Status* status) noexcept;

}  // namespace hydrant
