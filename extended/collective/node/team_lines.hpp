// A member's part of the memory in which the members of a team, on one node, exchange small data.
//
// Operations of the team that use lines have consecutive numbers, the same on all members. The data of
// operation n stand in line n % kLines of each member that contributes; the line's number is stored last.
// A line is written again only after all members have completed the operation whose data it has: `done`
// says so. Numbers only grow, also when another team takes the memory over.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hydrant {

struct TeamLines {
  static constexpr uint32_t kLines = 16;
  static constexpr size_t kMaxBytes = 48;

  // Numbers have 40 bits; below them stands a hash of the call and its arguments.
  static constexpr uint32_t kSignatureBits = 24;

  struct alignas(64) Line {
    std::atomic<uint64_t> word;
    std::byte data[kMaxBytes];
    std::atomic<uint64_t> processor;  // of the contributing thread, plus 1: a hint
  };
  Line lines[kLines];
  // The member has completed all operations up to this number. Apart from the lines: processors fetch pairs.
  alignas(128) std::atomic<uint64_t> done;
  std::byte unused[120];
  // Copies of vectors that other members do not have mapped. One is written again when all members have
  // completed the operation whose data it has.
  static constexpr uint32_t kSlots = 2;
  static constexpr size_t kSlotBytes = 4096;
  std::byte slots[kSlots][kSlotBytes];
};
static_assert(sizeof(TeamLines::Line) == 64 && sizeof(TeamLines) == 1152 + 8192);

}  // namespace hydrant
