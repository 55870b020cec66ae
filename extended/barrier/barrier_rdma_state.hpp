// Data layout of RdmaBarrier's shared state, which the ranks of a node and the adapters of other nodes write.
// All ranks of the node map this memory, initially zero. The protocol is in barrier_rdma.hpp.
//
// Words: a name is spread over eight bytes with seven bits each. The top bit of every byte is the phase
// of the epoch, which alternates between uses of the slot. A word is complete when all eight bytes
// have the same phase. A partially written word is therefore recognised, whatever the order of its
// bytes, and the adapter only has to write each byte once. (The InfiniBand specification promises no
// more. Adapters write eight aligned bytes at once; rxe uses the kernel's memcpy, which may copy single
// bytes.)
#pragma once

#include "extended/barrier/barrier_name.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hydrant {

// Bits 0-31 id, 32-33 state, 34-55 epoch, before spreading.
namespace barrier_word {

inline constexpr uint64_t kPhases = 0x8080'8080'8080'8080;

constexpr uint64_t spread(uint64_t bits) noexcept {
  bits = (bits & 0x0000'0000'0fff'ffff) | (bits & 0x00ff'ffff'f000'0000) << 4;
  bits = (bits & 0x0000'3fff'0000'3fff) | (bits & 0x0fff'c000'0fff'c000) << 2;
  return (bits & 0x007f'007f'007f'007f) | (bits & 0x3f80'3f80'3f80'3f80) << 1;
}
constexpr uint64_t gather(uint64_t bytes) noexcept {
  bytes = (bytes & 0x007f'007f'007f'007f) | (bytes & 0x7f00'7f00'7f00'7f00) >> 1;
  bytes = (bytes & 0x0000'3fff'0000'3fff) | (bytes & 0x3fff'0000'3fff'0000) >> 2;
  return (bytes & 0x0000'0000'0fff'ffff) | (bytes & 0x0fff'ffff'0000'0000) >> 4;
}

inline constexpr uint64_t kEpochMask = kPhases | spread(uint64_t{0x3f'ffff} << 34);

// A slot is used in every second epoch, starting with epoch 1 or 2. The phase of the first use is 1,
// because the memory is initially zero.
constexpr uint64_t make(uint32_t epoch, BarrierName name) noexcept {
  const uint64_t phase = (((epoch + 1) >> 1) & 1) != 0 ? kPhases : 0;
  return phase |
         spread(uint64_t{epoch & 0x3f'ffff} << 34 | uint64_t{state_bits(name)} << 32 | name.id);
}
constexpr bool is_of(uint64_t word, uint32_t epoch) noexcept {
  return ((word ^ make(epoch, {})) & kEpochMask) == 0;
}
constexpr BarrierName name_in(uint64_t word) noexcept {
  const uint64_t bits = gather(word);
  return name_from(static_cast<uint32_t>(bits >> 32), static_cast<uint32_t>(bits));
}

}  // namespace barrier_word

struct BarrierRdmaState {
  static constexpr uint32_t kRounds = 32;

  // Progress of the node. The holder of `busy` writes it; other ranks read it as a hint.
  struct alignas(64) ProgressState {
    std::atomic<uint32_t> busy;  // lock, taken only by try
    std::atomic<uint32_t>
        finished;                // epoch of the last published result; the next one is in progress
    std::atomic<uint32_t> step;  // 0: gathers the ranks of the node; k + 1: round k
    std::atomic<uint32_t> next;  // index of the first rank not yet gathered
    std::atomic<uint32_t> sent;  // 1: round k's word is posted
    std::atomic<uint32_t> refusals;  // posts refused with kNotReady
    std::atomic<uint64_t> joined;    // join of the words gathered so far
  };
  struct alignas(64) Slot {
    std::atomic<uint64_t> word;
    std::atomic<uint64_t> processor;  // for arrivals: processor_word()
  };

  ProgressState progress_state;
  Slot results[2];                                      // by parity of the epoch
  alignas(64) std::atomic<uint64_t> watcher;            // RdmaBarrier::wait_target()
  alignas(64) std::atomic<uint64_t> words[2][kRounds];  // by parity and round; adapters write here
  // Words that leave, by parity and round: adapters that take no word with its request read them here. A
  // place is written again two epochs later, when its word has arrived.
  alignas(64) std::atomic<uint64_t> sources[2][kRounds];
  // Words that were posted and have not completed, by parity and round: counted only where adapters may write
  // a word twice. Ranks of this node write it.
  alignas(64) std::atomic<uint32_t> under_way[2][kRounds];
  // A slot for each rank of the node follows, by parity.

  Slot& arrival(uint32_t parity, uint32_t index, uint32_t ranks) noexcept {
    return reinterpret_cast<Slot*>(this + 1)[size_t{parity} * ranks + index];
  }
  static constexpr size_t word_offset(uint32_t parity, uint32_t round) noexcept;
  static constexpr size_t bytes(uint32_t ranks) noexcept;
};

constexpr size_t BarrierRdmaState::word_offset(uint32_t parity, uint32_t round) noexcept {
  return offsetof(BarrierRdmaState, words) + (size_t{parity} * kRounds + round) * sizeof(uint64_t);
}
constexpr size_t BarrierRdmaState::bytes(uint32_t ranks) noexcept {
  return sizeof(BarrierRdmaState) + size_t{2} * ranks * sizeof(Slot);
}
static_assert(sizeof(std::atomic<uint64_t>) == 8 && std::atomic<uint64_t>::is_always_lock_free);

}  // namespace hydrant
