// The bare registration calls without a cache, for comparison with a miss. Not thread-safe: one thread per
// object.
#pragma once

#include <liburing.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

namespace hydrant::bench {

// Registering costs more in a larger table: so a bare ring is just large enough for its row.
constexpr unsigned kSmallRingSlots = 256;

// io_uring registered buffers, one slot at a time.
class BareRing {
 public:
  explicit BareRing(unsigned slots = kSmallRingSlots) {
    error_ = io_uring_queue_init(8, &ring_, 0);
    if (error_ != 0) return;
    error_ = io_uring_register_buffers_sparse(&ring_, slots);
    if (error_ != 0) io_uring_queue_exit(&ring_);
  }
  BareRing(const BareRing&) = delete;
  BareRing& operator=(const BareRing&) = delete;
  ~BareRing() {
    if (error_ == 0) io_uring_queue_exit(&ring_);
  }

  // 0, or the negative errno of io_uring_setup or of the sparse table.
  int error() const { return error_; }

  // False with errno set if the kernel refused.
  bool pin(unsigned slot, void* addr, size_t len) { return update(slot, {addr, len}); }
  bool unpin(unsigned slot) { return update(slot, {nullptr, 0}); }
  // Like pin(), but retries: some kernels return the charge of a ring that was just closed with a delay.
  bool pin_patiently(unsigned slot, void* addr, size_t len) {
    for (int tries = 0; tries < 2000; ++tries) {
      if (pin(slot, addr, len)) return true;
      if (errno != ENOMEM) return false;
      usleep(1000);
    }
    errno = ENOMEM;
    return false;
  }

  // Writes [addr, addr+len) of a registered slot to a file, through the pinned pages.
  bool write_file(unsigned slot, const void* addr, size_t len, int file) {
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
    if (sqe == nullptr) return false;
    io_uring_prep_write_fixed(sqe, file, addr, static_cast<unsigned>(len), 0,
                              static_cast<int>(slot));
    if (io_uring_submit_and_wait(&ring_, 1) < 0) return false;
    io_uring_cqe* cqe = nullptr;
    if (io_uring_wait_cqe(&ring_, &cqe) != 0) return false;
    const bool whole = cqe->res == static_cast<int>(len);
    io_uring_cqe_seen(&ring_, cqe);
    return whole;
  }

 private:
  bool update(unsigned slot, iovec buffer) {
    if (error_ != 0) return false;
    __u64 tag = 0;
    const int answer = io_uring_register_buffers_update_tag(&ring_, slot, &buffer, &tag, 1);
    if (answer < 0) errno = -answer;
    return answer == 1;
  }

  io_uring ring_{};
  int error_ = 0;
};

// Pins with io_uring or mlock through the same functions. The caller chooses small numbers as slots.
class BarePins {
 public:
  BarePins(bool uring, unsigned slots) : uring_(uring), ring_(uring ? slots : 1) {}

  bool pin(unsigned slot, void* addr, size_t len) {
    return uring_ ? ring_.pin(slot, addr, len) : mlock(addr, len) == 0;
  }
  void unpin(unsigned slot, void* addr, size_t len) {
    if (uring_) {
      ring_.unpin(slot);
    } else {
      munlock(addr, len);
    }
  }

 private:
  bool uring_;
  BareRing ring_;
};

}  // namespace hydrant::bench
