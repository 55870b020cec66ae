// Records of a hunt: the life of each address range, for reports, and the addresses that were pinned in each
// life, to count the pins that could have been stale.
//
// Threads: all functions from any thread, without locks. The tables have a fixed size and overwrite old
// entries: then reports have less detail and fewer opportunities are counted, never more.
#pragma once

#include "tests/stale/hunt/source_set.hpp"
#include "tests/stale/hunt/tag.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace hydrant::stale {

inline constexpr size_t kPageBytes = 4096;

class Book {
 public:
  Book() : lives_(new LifeRow[kLives]), pages_(new std::atomic<uint64_t>[kPages]()) {}

  // Starts a new life of [addr, addr+len), by operation `operation` of `thread`.
  Life begin(Source source, uintptr_t addr, size_t len, uint32_t thread, uint64_t operation);
  // "mmap [0x.., +8192) of thread 2, operation 123", or that the record was overwritten.
  std::string describe(Life life) const;

  // Records that the page of `addr` is pinned in this life by a cache that may keep the pin. True if it was
  // pinned in an earlier life: if the cache had missed the end of that life, this pin would be stale.
  bool note_pin(uintptr_t addr, Life life);

 private:
  static constexpr size_t kLives = size_t{1} << 16;
  static constexpr size_t kPages = size_t{1} << 18;
  static constexpr unsigned kLifeBits =
      29;  // bits of a page's word; the page's number is in the upper bits

  // Relaxed atomics: a report may read the row while another thread writes its next life.
  struct LifeRow {
    std::atomic<Life> life{0};
    std::atomic<uintptr_t> addr{0};
    std::atomic<size_t> len{0};
    std::atomic<uint64_t> operation{0};
    std::atomic<uint32_t> thread_and_source{0};
  };

  std::atomic<Life> next_{1};
  std::unique_ptr<LifeRow[]> lives_;
  std::unique_ptr<std::atomic<uint64_t>[]> pages_;
};

}  // namespace hydrant::stale
