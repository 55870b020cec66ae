// The memory that the processes of a node share, byte by byte: one memory file (memfd) with this layout. It
// has fixed widths and offsets only; docs/wire_format_shm.md draws it and argues the order of loads and
// stores.
//
//   NodeHeader | RankArea × ranks | RingControl × lanes × pairs | ring lines × pairs | cells × ranks |
//   collective blocks × ranks
//
// All parts but the first two are reserved by their writer on first use: most of the file is a hole.
#pragma once

#include "rdma/transport/transport.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace hydrant::shm {

inline constexpr uint64_t kNodeMagic = 0x31'45'44'4f'4e'44'59'48;  // "HYDNODE1"
inline constexpr uint32_t kLayoutVersion = 6;
inline constexpr uint32_t kMaxNodeRanks = 1024;
inline constexpr uint32_t kPageBytes = 4096;
inline constexpr uint32_t kLineBytes = 64;

// ---- rings: one per ordered pair and lane, written by one process and read by another ----

inline constexpr uint32_t kRingLines[kLaneCount] = {256, 128};
inline constexpr uint32_t kPairRingBytes = (kRingLines[0] + kRingLines[1]) * kLineBytes;
// Room for 1 KiB of payload behind the longest head.
inline constexpr uint32_t kMaxMessageLines = 18;
inline constexpr uint32_t kMaxInlineBytes =
    kMaxMessageLines * kLineBytes - uint32_t{sizeof(uint64_t)};
static_assert(kMaxInlineBytes >= 1024 + MessageChannel::kMaxHeadBytes);
// The reader publishes its position when it has taken a quarter of the ring. A message and the lines skipped
// before it must fit beside the lines taken but not yet published.
static_assert(kRingLines[0] >= kRingLines[0] / 4 + 2 * kMaxMessageLines);
static_assert(kRingLines[1] >= kRingLines[1] / 4 + 2 * kMaxMessageLines);

// First word in a message's first line; stored last. Zero means no message: the lines field is never 0.
struct MessageWord {
  static constexpr uint32_t kTagMask = (1u << MessageChannel::kTagBits) - 1;
  static constexpr uint32_t kLinesShift = 24;
  static constexpr uint32_t kLinesMask = 0x3f;
  static constexpr uint64_t kSkip = uint64_t{1} << 30;
  static constexpr uint64_t kReserved = uint64_t{1} << 31;
  static constexpr uint32_t kCellShift = 32;
  static constexpr uint32_t kPositionShift = 48;

  static constexpr uint64_t make(uint32_t position, uint32_t lines, uint32_t tag,
                                 uint32_t cell_plus_1) noexcept {
    return (uint64_t{position} << kPositionShift) | (uint64_t{cell_plus_1} << kCellShift) |
           (uint64_t{lines} << kLinesShift) | (tag & kTagMask);
  }
  static constexpr bool is_at(uint64_t word, uint32_t position) noexcept {
    return ((word ^ (uint64_t{position} << kPositionShift)) >> kPositionShift) == 0;
  }
  static constexpr uint32_t lines(uint64_t word) noexcept {
    return static_cast<uint32_t>(word >> kLinesShift) & kLinesMask;
  }
  static constexpr uint32_t tag(uint64_t word) noexcept {
    return static_cast<uint32_t>(word) & kTagMask;
  }
  static constexpr uint32_t cell_plus_1(uint64_t word) noexcept {
    return static_cast<uint32_t>(word >> kCellShift) & 0xffff;
  }
};
static_assert(kMaxMessageLines <= MessageWord::kLinesMask);

enum PollState : uint32_t {
  kIdle = 0,    // the reader does not poll this ring: ring the doorbell. The value of fresh memory.
  kPolled = 1,  // the reader polls this ring, or its doorbell has been rung
};

struct RingControl {
  alignas(kLineBytes) std::atomic<uint32_t> taken;       // written by the reader: its position
  alignas(kLineBytes) std::atomic<uint32_t> poll_state;  // written by both, on edges only
};
static_assert(sizeof(RingControl) == 128 && offsetof(RingControl, poll_state) == 64);

// ---- cells: payloads too long for a ring; a pool per sender and lane ----

struct CellClass {
  uint32_t bytes;
  uint32_t count;
  uint32_t chunk;  // how many are reserved at once
};
inline constexpr CellClass kCellClasses[] = {{4096, 64, 16}, {65536, 16, 2}};
inline constexpr uint32_t kCellClassCount = 2;
inline constexpr uint32_t kSmallCells = kCellClasses[0].count;
inline constexpr uint32_t kCellCount = kSmallCells + kCellClasses[1].count;

// The reader and the position of the message that the cell came with. The reader writes it when it has
// finished with the cell. A receipt names one message, so that a late receipt of a disconnected reader frees
// nothing.
struct CellReceipt {
  alignas(kLineBytes) std::atomic<uint64_t> receipt;

  static constexpr uint64_t make(uint32_t reader, uint32_t position) noexcept {
    return (uint64_t{reader} + 1) << 32 | position;
  }
};
inline constexpr uint32_t kReceiptsBytes = 2 * kPageBytes;
static_assert(kCellCount * sizeof(CellReceipt) <= kReceiptsBytes);
inline constexpr uint32_t kCellPoolBytes = kReceiptsBytes +
                                           kCellClasses[0].bytes * kCellClasses[0].count +
                                           kCellClasses[1].bytes * kCellClasses[1].count;
static_assert(kCellPoolBytes % kPageBytes == 0 && kPairRingBytes % kPageBytes == 0);

// ---- collectives: blocks of each rank ----

inline constexpr uint32_t kCollectiveBlocksBytes =
    MemoryAccess::kCollectiveBlocks * MemoryAccess::kCollectiveBytes;
static_assert(kCollectiveBlocksBytes % kPageBytes == 0);

// ---- one per rank ----

struct RankArea {
  // For barriers: two blocks that the hardware never prefetches together.
  alignas(256) std::byte barrier[256];

  // Identity of the rank's process; written by the rank when it attaches, constant then.
  alignas(128) std::atomic<uint32_t> pid;
  std::atomic<uint32_t> attached;       // 1: the other fields of this cache line are valid
  std::atomic<uint64_t> pid_namespace;  // inode of /proc/self/ns/pid
  std::atomic<uint32_t>
      senders_confirm;  // 1: it has no membarrier; senders use locked instructions (ring.hpp)

  // For an agreement of the node's ranks at the start.
  alignas(kLineBytes) std::byte start[MemoryAccess::kStartBytes];

  // Bit 0: threads of the rank sleep. The higher bits count wake-ups.
  alignas(128) std::atomic<uint32_t> sleep;

  // 1 + the processor that a thread of the rank runs on; 0 if the rank yields or sleeps, or the processor is
  // unknown. A hint.
  alignas(kLineBytes) std::atomic<uint32_t> processor;

  // Bit r of the lane: the ring from node rank r has messages, and the reader does not poll it.
  struct Doorbells {
    std::atomic<uint64_t> of_lane[kLaneCount];
  };
  alignas(256) Doorbells doorbells[kMaxNodeRanks / 64];
};
static_assert(sizeof(RankArea) == 768 && offsetof(RankArea, pid) == 256 &&
              offsetof(RankArea, start) == 320 && offsetof(RankArea, sleep) == 384 &&
              offsetof(RankArea, processor) == 448 && offsetof(RankArea, doorbells) == 512);

struct alignas(kPageBytes) NodeHeader {
  uint64_t magic;
  uint32_t version;
  uint32_t ranks;
  uint64_t bytes;
};
static_assert(sizeof(NodeHeader) == kPageBytes);

static_assert(std::atomic<uint64_t>::is_always_lock_free &&
              std::atomic<uint32_t>::is_always_lock_free);
static_assert(std::is_standard_layout_v<RankArea> && std::is_standard_layout_v<RingControl>);

// Offsets of the parts in the memory of a node with that many ranks.
class NodeLayout {
 public:
  constexpr explicit NodeLayout(uint32_t ranks) noexcept : ranks_(ranks) {}

  constexpr uint64_t area(uint32_t rank) const noexcept {
    return sizeof(NodeHeader) + uint64_t{rank} * sizeof(RankArea);
  }
  // Bytes that create() reserves.
  constexpr uint64_t common_bytes() const noexcept { return round_up(area(ranks_)); }
  constexpr uint64_t control(uint32_t from, uint32_t to, Lane lane) const noexcept {
    return common_bytes() +
           (pair(from, to) * kLaneCount + static_cast<uint32_t>(lane)) * sizeof(RingControl);
  }
  constexpr uint64_t lines(uint32_t from, uint32_t to, Lane lane) const noexcept {
    const uint64_t before = lane == Lane::kRequest ? 0 : kRingLines[0] * kLineBytes;
    return rings() + pair(from, to) * kPairRingBytes + before;
  }
  constexpr uint64_t receipt(uint32_t from, Lane lane, uint32_t cell) const noexcept {
    return pool(from, lane) + uint64_t{cell} * sizeof(CellReceipt);
  }
  constexpr uint64_t cell(uint32_t from, Lane lane, uint32_t index) const noexcept {
    const uint64_t first = pool(from, lane) + kReceiptsBytes;
    if (index < kSmallCells) return first + uint64_t{index} * kCellClasses[0].bytes;
    return first + uint64_t{kSmallCells} * kCellClasses[0].bytes +
           uint64_t{index - kSmallCells} * kCellClasses[1].bytes;
  }
  constexpr uint64_t pool(uint32_t from, Lane lane) const noexcept {
    return pools() + (uint64_t{from} * kLaneCount + static_cast<uint32_t>(lane)) * kCellPoolBytes;
  }
  constexpr uint64_t collectives(uint32_t rank) const noexcept {
    return pool(ranks_, Lane::kRequest) + uint64_t{rank} * kCollectiveBlocksBytes;
  }
  constexpr uint64_t bytes() const noexcept { return collectives(ranks_); }

 private:
  static constexpr uint64_t round_up(uint64_t bytes) noexcept {
    return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  }
  // The rings into one rank are adjacent, so that one poll reads memory close together.
  constexpr uint64_t pair(uint32_t from, uint32_t to) const noexcept {
    return uint64_t{to} * ranks_ + from;
  }
  constexpr uint64_t rings() const noexcept {
    const uint64_t pairs = uint64_t{ranks_} * ranks_;
    return round_up(common_bytes() + pairs * kLaneCount * sizeof(RingControl));
  }
  constexpr uint64_t pools() const noexcept {
    return rings() + uint64_t{ranks_} * ranks_ * kPairRingBytes;
  }

  uint32_t ranks_;
};

// Size of a cell by its number.
constexpr uint32_t cell_bytes_of(uint32_t cell) noexcept {
  return kCellClasses[cell < kSmallCells ? 0 : 1].bytes;
}

}  // namespace hydrant::shm
