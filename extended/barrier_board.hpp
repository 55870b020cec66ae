// What the ranks of one node, and the adapters of other nodes, write for RdmaBarrier: memory that all ranks
// of the node map, zero at first. Nothing here acts; the protocol is in barrier_rdma.hpp.
//
// Words. A name travels in eight bytes of seven bits each; the top bit of every byte is the epoch's phase,
// which changes from one use of the place to the next. A word counts as there when all eight bytes have the
// phase, so one that is seen half written, in whatever order its bytes arrive, is not there yet: nothing is
// asked of an adapter but that it writes each byte once. (The specification of InfiniBand promises no more
// than that. Adapters write eight aligned bytes at once; rxe copies with the kernel's memcpy, which may copy
// bytewise.)
#pragma once

#include "extended/barrier_name.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hydrant {

// Bits 0-31 id, 32-33 state, 34-55 epoch, before they are spread.
namespace board_word {

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

// A place is used in every second epoch, from epoch 1 or 2 on: the phase is 1 then, and memory zero before.
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

}  // namespace board_word

struct BarrierBoard {
  static constexpr uint32_t kRounds = 32;

  // How far the node is; written by whoever holds `busy`, and looked at by others who guess.
  struct alignas(64) Drive {
    std::atomic<uint32_t> busy;  // only ever tried
    std::atomic<uint32_t>
        finished;  // the epoch whose result was published last; the next one is driven
    std::atomic<uint32_t> step;  // 0: ranks of the node are gathered; k + 1: round k
    std::atomic<uint32_t> next;  // ... the first that is not gathered yet, by its index on the node
    std::atomic<uint32_t> sent;  // ... round k's word is posted
    std::atomic<uint64_t> joined;  // a word, of what was gathered so far
  };
  struct alignas(64) Place {
    std::atomic<uint64_t> word;
    std::atomic<uint64_t> processor;  // of an arrival: processor_word()
  };

  Drive drive;
  Place results[2];                                    // by parity of the epoch
  alignas(64) std::atomic<uint64_t> watcher;           // RdmaBarrier::waits_for()
  alignas(64) std::atomic<uint64_t> mail[2][kRounds];  // by parity and round; adapters write here
  // Behind it: a place for each rank of the node, by parity.

  Place& arrival(uint32_t parity, uint32_t index, uint32_t ranks) noexcept {
    return reinterpret_cast<Place*>(this + 1)[size_t{parity} * ranks + index];
  }
  static constexpr size_t mail_offset(uint32_t parity, uint32_t round) noexcept;
  static constexpr size_t bytes(uint32_t ranks) noexcept;
};

constexpr size_t BarrierBoard::mail_offset(uint32_t parity, uint32_t round) noexcept {
  return offsetof(BarrierBoard, mail) + (size_t{parity} * kRounds + round) * sizeof(uint64_t);
}
constexpr size_t BarrierBoard::bytes(uint32_t ranks) noexcept {
  return sizeof(BarrierBoard) + size_t{2} * ranks * sizeof(Place);
}
static_assert(sizeof(std::atomic<uint64_t>) == 8 && std::atomic<uint64_t>::is_always_lock_free);

}  // namespace hydrant
