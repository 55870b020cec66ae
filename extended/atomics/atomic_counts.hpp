// Counts of atomic operations by path, per thread. Inlined operations are not counted: a store before a
// locked instruction costs a third of it. With HYDRANT_STATS, which shows the counts, and in a job that is
// traced none is inlined.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace hydrant {

enum class AtomicPath : uint32_t {
  kSelf,      // this rank's memory
  kMapped,    // memory of another rank, mapped here
  kMessages,  // executed by a handler of the target
  kAdapter,   // executed by the target's adapter
};
inline constexpr size_t kAtomicPaths = 4;
const char* atomic_path_name(AtomicPath path) noexcept;

void count_atomic(AtomicPath path) noexcept;
// Sums over all threads, also ended ones.
std::array<uint64_t, kAtomicPaths> atomic_counts() noexcept;

}  // namespace hydrant
