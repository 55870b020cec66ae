// The two ends of a ring: one writer and one reader, in different processes. OutRing is private to the writer
// and InRing to the reader; they share RingControl and the lines (node_layout.hpp).
//
// A message is k consecutive lines. The writer stores its first word last, and that word contains the
// message's position. The reader thus detects a message by that word alone, and no index is shared per
// message. The reader publishes its position only every quarter of the ring.
//
// A stale payload line could look like a message one lap later. The reader therefore zeroes the first word in
// each further line of a message after use. The writer zeroes those of the lines that it skips at the ring's
// end.
#pragma once

#include "rdma/shm/doorbell.hpp"
#include "rdma/shm/memory/node_layout.hpp"
#include "rdma/transport/spin_lock.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace hydrant::shm {

// Hints to the processor, measured in decisions 0017 and 0018. A writer that has polled this often since its
// last message of several lines probably has a waiting receiver. It then pushes the later lines of a message
// out of its cache. In a flood of messages this would only slow the writer down.
inline constexpr uint32_t kPollsOfWaiter = 4;
inline void push(const std::byte* line) noexcept {
#if defined(__x86_64__)
  // cldemote; a no-op on processors that do not know it, and on assemblers that do not.
  asm volatile(".byte 0x0f, 0x1c, 0x00" ::"a"(line) : "memory");
#else
  (void)line;
#endif
}

inline std::atomic<uint64_t>& first_word(std::byte* line) noexcept {
  return *static_cast<std::atomic<uint64_t>*>(static_cast<void*>(line));
}

constexpr uint32_t lines_of(uint32_t bytes) noexcept {
  return (bytes + static_cast<uint32_t>(sizeof(uint64_t)) + kLineBytes - 1) / kLineBytes;
}

// ---- the writer's end ----
// Threads: one at a time: hold `lock` from has_room() to publish().
class alignas(kLineBytes) OutRing {
 public:
  enum class State : uint32_t { kUnopened, kOpen, kClosed };

  // False before open() and after close(), so the fast path needs no other check.
  bool has_room(uint32_t lines) const noexcept {
    return (position_ & mask_) + lines <= mask_ + 1 && limit_ - position_ >= lines;
  }

  // Reads the reader's position, and skips the end of the ring if the message does not fit there.
  enum class Room : uint32_t { kYes, kNo, kCorrupt };
  Room make_room(uint32_t lines) noexcept;

  std::byte* head() const noexcept { return line(position_) + sizeof(uint64_t); }
  uint32_t position() const noexcept { return position_; }

  // Sends the message. `polls` is the number of polls of this process so far. False: the reader does not poll
  // this ring; call ring_doorbell() then.
  bool publish(uint32_t lines, uint32_t tag, uint32_t cell_plus_1, uint32_t polls) noexcept {
    const uint64_t word = MessageWord::make(position_, lines, tag, cell_plus_1);
    // Pairs with the acquire in InRing::peek(): the message is visible once its first word is.
    first_word(line(position_)).store(word, std::memory_order_release);
    if (lines > 1) prepare_next(lines, polls);
    position_ += lines;
    if (confirm_) [[unlikely]] {
      // The locked instructions of this process and the reader's exchange on the same word have one total
      // order: the later one sees the effects before the earlier one.
      return control_->poll_state.fetch_add(0, std::memory_order_acq_rel) != kIdle;
    }
    // The processor may perform the load before its store is visible. A reader that goes idle therefore
    // executes a membarrier on it before its own last check of the ring. This fence holds back the compiler
    // only.
    std::atomic_signal_fence(std::memory_order_seq_cst);
    return control_->poll_state.load(std::memory_order_relaxed) != kIdle;
  }

  // Rings the doorbell of `area`, the reader's, for the ring from node rank `from`, unless it has been rung.
  void ring_doorbell(RankArea& area, uint32_t from) noexcept {
    if (control_->poll_state.exchange(kPolled, std::memory_order_acq_rel) != kIdle) return;
    set_doorbell(area, from, lane_);
  }

  void open(std::byte* lines, RingControl& control, bool confirm) noexcept;
  void close() noexcept;
  void name(uint32_t to, Lane lane) noexcept {
    to_ = to;
    lane_ = lane;
  }

  State state() const noexcept { return state_; }
  uint32_t to() const noexcept { return to_; }
  Lane lane() const noexcept { return lane_; }

  SpinLock lock;

 private:
  std::byte* line(uint32_t position) const noexcept {
    return lines_ + size_t{position & mask_} * kLineBytes;
  }
  // The reader has the lines of the last lap in its cache. This prefetches those of the next message,
  // expected to be as long as this one. The first line is not prefetched, because the reader polls it all the
  // time.
  void prepare_next(uint32_t lines, uint32_t polls) noexcept {
    const bool receiver_waits = polls - polls_ >= kPollsOfWaiter;
    polls_ = polls;
    if (receiver_waits) {
      for (uint32_t i = 1; i < lines; ++i) push(line(position_ + i));
    }
    for (uint32_t i = 1; i < lines; ++i) __builtin_prefetch(line(position_ + lines + i), 1);
  }

  bool confirm_ = false;  // read poll_state with a locked instruction
  std::byte* lines_ = nullptr;
  RingControl* control_ = nullptr;
  uint32_t position_ = 0;
  uint32_t limit_ = 0;  // position of the first line that the reader may still use
  uint32_t mask_ = 0;
  uint32_t polls_ = 0;  // polls of this process when it sent the last message of several lines
  State state_ = State::kUnopened;
  uint32_t to_ = 0;
  Lane lane_ = Lane::kRequest;
};
static_assert(sizeof(OutRing) == kLineBytes);

// ---- the reader's end ----
// Threads: one at a time, between enter() and leave(); peek(): any.
class alignas(kLineBytes) InRing {
 public:
  // The next message's first word; zero if there is none.
  uint64_t peek() const noexcept {
    const uint32_t position = position_.load(std::memory_order_relaxed);
    const uint64_t word = first_word(line(position)).load(std::memory_order_acquire);
    return MessageWord::is_at(word, position) ? word : 0;
  }
  // True for a message of one line without a cell: such a word passes is_sane().
  static constexpr bool is_plain(uint64_t word) noexcept {
    constexpr uint64_t kMask =
        ~(MessageWord::kTagMask | uint64_t{0xffff} << MessageWord::kPositionShift);
    return (word & kMask) == uint64_t{1} << MessageWord::kLinesShift;
  }
  // False if the message would extend beyond the ring. peek() has returned `word`.
  bool is_sane(uint64_t word) const noexcept {
    const uint32_t lines = MessageWord::lines(word);
    const uint32_t left = mask_ + 1 - (position() & mask_);
    if ((word & MessageWord::kSkip) != 0) return lines == left && lines < kMaxMessageLines;
    return lines - 1 < std::min(left, kMaxMessageLines) && (word & MessageWord::kReserved) == 0;
  }

  uint32_t position() const noexcept { return position_.load(std::memory_order_relaxed); }
  std::byte* line() const noexcept { return line(position()); }

  // Releases the message of `lines` lines at the ring's position.
  void take(uint32_t lines) noexcept {
    const uint32_t position = position_.load(std::memory_order_relaxed);
    for (uint32_t i = 1; i < lines; ++i) {
      first_word(line(position + i)).store(0, std::memory_order_relaxed);
    }
    advance(position + lines);
  }
  // As take(), for a message that is_plain().
  void take_plain() noexcept { advance(position_.load(std::memory_order_relaxed) + 1); }
  // Skips the lines at the ring's end; the writer has zeroed them.
  void skip(uint32_t lines) noexcept { advance(position() + lines); }

  // The thread that enters a ring receives its messages; other threads go on to the next ring. In the
  // single-threaded mode this keeps a handler that polls out of the ring that it was called from.
  bool enter(bool threaded) noexcept HYDRANT_NO_TSA {
    if (threaded) return busy_.try_lock();
    if (inside_) return false;
    inside_ = true;
    return true;
  }
  void leave(bool threaded) noexcept HYDRANT_NO_TSA {
    if (threaded) {
      busy_.unlock();
    } else {
      inside_ = false;
    }
  }

  // True once open() is complete; any thread.
  bool is_open() const noexcept { return control_.load(std::memory_order_acquire) != nullptr; }
  void open(std::byte* lines, RingControl& control, Lane lane) noexcept;
  std::atomic<uint32_t>& poll_state() const noexcept {
    return control_.load(std::memory_order_relaxed)->poll_state;
  }

  // Position at the last review() of unused rings.
  std::atomic<uint32_t> seen{0};
  // Bit per chunk of the writer's cells: set once reserve_cells() has found its memory.
  uint32_t known_chunks = 0;
  // The writer has exited, or its memory is corrupt.
  std::atomic<bool> lost{false};

 private:
  std::byte* line(uint32_t position) const noexcept {
    return lines_ + size_t{position & mask_} * kLineBytes;
  }
  void advance(uint32_t position) noexcept {
    position_.store(position, std::memory_order_relaxed);
    if (position - published_ < quarter_) return;
    published_ = position;
    // Pairs with the acquire in OutRing::make_room(): all lines before `position` were read, and zeroed.
    control_.load(std::memory_order_relaxed)->taken.store(position, std::memory_order_release);
  }

  std::byte* lines_ = nullptr;
  std::atomic<RingControl*> control_{nullptr};
  // Written between enter() and leave(); relaxed, because peek() by other threads is only a hint.
  std::atomic<uint32_t> position_{0};
  uint32_t published_ = 0;
  uint32_t mask_ = 0;
  uint32_t quarter_ = 0;
  SpinLock busy_;
  bool inside_ = false;
};
static_assert(sizeof(InRing) == kLineBytes);

}  // namespace hydrant::shm
