// The common parts of the sections of gasnett_run_diagnostics(). diagnostics.cpp runs them.
//
// Each rank's 64 KiB are two halves: the first is the target of the rank whose peer this one is, the second
// the landing place of the peer's replies. Threads divide both among them.
#pragma once

#include <hydrant/gasnet/am.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <random>

namespace hydrant::diagnostics {

inline constexpr size_t kHalf = 32768;
inline constexpr uint32_t kMaxThreads = 16;

struct Run {
  gex_TM_t team = nullptr;
  gex_Rank_t rank = 0;
  gex_Rank_t ranks = 0;
  gex_Rank_t peer = 0;
  std::byte* mine = nullptr;
  std::byte* theirs = nullptr;
  uint32_t rounds = 0;
  uint32_t threads = 1;
  uint32_t seed = 0;
  std::atomic<int> errors{0};

  // Counts an error and prints it; true if `is_good`.
  [[gnu::format(printf, 3, 4)]] bool expect(bool is_good, const char* format, ...) noexcept;
};

// The part of a thread: `bytes` at `offset` of each half, and what replies to it need.
struct Part {
  uint32_t thread = 0;
  size_t offset = 0;
  size_t bytes = 0;
};
Part part_of(const Run& run, uint32_t thread, uint32_t threads) noexcept;

// Pseudo-random bytes and lengths, the same for the same seed.
class Noise {
 public:
  explicit Noise(uint32_t seed) noexcept : engine_(seed * 2 + 1) {}
  uint32_t below(uint32_t limit) noexcept { return static_cast<uint32_t>(engine_() % limit); }
  void fill(std::byte* to, size_t bytes) noexcept;

 private:
  std::minstd_rand engine_;
};
uint32_t sum_of(const std::byte* from, size_t bytes) noexcept;

// ---- messages.cpp ----
gex_AM_Entry_t* handlers(int* count) noexcept;
bool has_handlers() noexcept;
void exchange_mediums(Run& run, const Part& part, uint32_t rounds) noexcept;
void exchange_longs(Run& run, const Part& part, uint32_t rounds) noexcept;

// ---- transfers.cpp ----
void check_collectives(Run& run) noexcept;
void check_transfers(Run& run, const Part& part, uint32_t rounds) noexcept;
void check_atomics(Run& run) noexcept;

// ---- threads.cpp ----
void check_locks(Run& run) noexcept;
void check_threads(Run& run) noexcept;

}  // namespace hydrant::diagnostics
