// Copies of short pieces whose size is a class that is known outside of the loop: sizes of a word, and ranges
// of sizes that two overlapping halves cover. Longer pieces are left to memcpy(), whose call costs less
// than a loop.
#pragma once

#include "extended/rma/common/copy.hpp"

#include <cstddef>
#include <cstring>

namespace hydrant {

// A block of kBytes bytes, which the compiler moves in registers.
template <size_t kBytes>
struct Block {
  std::byte bytes[kBytes];
};
template <size_t kBytes>
inline void copy_block(std::byte* to, const std::byte* from) noexcept {
  Block<kBytes> block;
  std::memcpy(&block, from, kBytes);
  std::memcpy(to, &block, kBytes);
}

// A size that is a constant.
template <size_t kBytes>
struct ExactSize {
  static void copy(std::byte* to, const std::byte* from, size_t) noexcept {
    copy_block<kBytes>(to, from);
  }
};
// Sizes of kHalf to 2 * kHalf bytes.
template <size_t kHalf>
struct TwoHalves {
  static void copy(std::byte* to, const std::byte* from, size_t bytes) noexcept {
    Block<kHalf> first;
    Block<kHalf> last;
    std::memcpy(&first, from, kHalf);
    std::memcpy(&last, from + bytes - kHalf, kHalf);
    std::memcpy(to, &first, kHalf);
    std::memcpy(to + bytes - kHalf, &last, kHalf);
  }
};
// Any size below 16 that is no power of two.
struct ShortSize {
  static void copy(std::byte* to, const std::byte* from, size_t bytes) noexcept {
    copy_bytes(to, from, bytes);
  }
};
struct LongSize {
  static void copy(std::byte* to, const std::byte* from, size_t bytes) noexcept {
    std::memcpy(to, from, bytes);
  }
};

// 64 or 128 bytes by moves of 32, where the processor has them: a loop over such pieces waits for its stores.
// Only for functions with the attribute gnu::target("avx").
#ifdef __x86_64__
using Wide [[gnu::vector_size(32)]] = char;
template <size_t kBytes>
struct WideMoves {
  [[gnu::target("avx")]] static void copy(std::byte* to, const std::byte* from) noexcept {
    constexpr size_t kMoves = kBytes / sizeof(Wide);
    Wide moved[kMoves];
#pragma GCC unroll 4
    for (size_t i = 0; i < kMoves; ++i)
      std::memcpy(&moved[i], from + i * sizeof(Wide), sizeof(Wide));
#pragma GCC unroll 4
    for (size_t i = 0; i < kMoves; ++i) std::memcpy(to + i * sizeof(Wide), &moved[i], sizeof(Wide));
  }
};
inline bool has_wide_moves() noexcept { return __builtin_cpu_supports("avx") != 0; }
#else
constexpr bool has_wide_moves() noexcept { return false; }
#endif

// Calls function(a class that copies `bytes` bytes).
template <typename Function>
inline auto with_size_class(size_t bytes, Function function) noexcept {
  switch (bytes) {
    case 1: return function(ExactSize<1>());
    case 2: return function(ExactSize<2>());
    case 4: return function(ExactSize<4>());
    case 8: return function(ExactSize<8>());
    case 16: return function(ExactSize<16>());
    case 32: return function(ExactSize<32>());
    case 64: return function(ExactSize<64>());
    default: break;
  }
  if (bytes < 16) return function(ShortSize());
  if (bytes < 32) return function(TwoHalves<16>());
  if (bytes < 64) return function(TwoHalves<32>());
  return function(LongSize());
}

}  // namespace hydrant
