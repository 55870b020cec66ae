// Memory of one rank of a hunt, page by page, and the registrar over it. Registrations carry serial numbers
// in their keys; a write through a key, as a network card would make it, notices when its registration is
// gone, when it is older than what was said to be out of reach, and when it lands in pages that were
// replaced.
//
// What a page is differs: an object that stands for it (fast), or a page that an io_uring keeps pinned.
//
// Threads: all functions from any.
#pragma once

#include <hydrant/pin_cache.h>

#include "firehose/registrars/uring_ring.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace hydrant::stale {

inline constexpr size_t kPageBytes = 4096;
inline constexpr size_t kCells = 32;  // of a page: who writes at the same time uses different ones
inline constexpr size_t kMostPages = 64;        // of one registration
inline constexpr size_t kRegistrations = 4096;  // at once

class PagedMemory {
 public:
  explicit PagedMemory(size_t pages);
  virtual ~PagedMemory();
  PagedMemory(const PagedMemory&) = delete;
  PagedMemory& operator=(const PagedMemory&) = delete;

  hydrant_registrar_t table{};

  size_t pages() const { return pages_; }
  uintptr_t addr(size_t page) const { return base_ + page * kPageBytes; }
  // Other memory at the same addresses. Answers the serial that registrations of it have at least.
  uint64_t replace(size_t page, size_t pages);
  // Registrations of less than this serial have to be out of reach.
  void condemn(size_t page, size_t pages, uint64_t serial);
  // "" or what is wrong with it. `visible`: whether the page has the value then.
  std::string write(const void* key, size_t page, size_t cell, uint32_t value, bool* visible);
  size_t live() const { return live_.load(); }
  std::string problem() const;

 protected:
  struct Registration {
    std::atomic<uint64_t> serial{0};  // 0: none
    // Atomic: a mutant has them read when it is gone, and the next one begins.
    std::atomic<size_t> page{0}, pages{0};
    std::array<std::atomic<void*>, kMostPages> objects{};
    UringRun run{};
  };
  virtual int pin(Registration* registration) = 0;
  virtual void unpin(Registration* registration) = 0;
  virtual void replace_pages(size_t page, size_t pages) = 0;
  virtual bool store(Registration& registration, size_t page, size_t cell, uint32_t value) = 0;
  virtual uint32_t load(size_t page, size_t cell) = 0;

  uintptr_t base_ = 0;

 private:
  struct Key {
    uint64_t index, serial;
  };
  int pin_range(uintptr_t addr, size_t len, void* key);
  int unpin_range(uintptr_t addr, size_t len, const void* key);

  const size_t pages_;
  std::unique_ptr<Registration[]> registrations_;
  std::unique_ptr<std::atomic<uint64_t>[]> oldest_;
  std::atomic<uint64_t> next_serial_{1};
  std::atomic<size_t> live_{0};
  mutable std::mutex mu_;
  std::vector<uint32_t> free_;
  std::string problem_;
};

// Pages are objects.
std::unique_ptr<PagedMemory> make_object_memory(size_t pages);
// Pages are pages, and stay pinned by an io_uring. Null, with the reason, where that cannot be had.
std::unique_ptr<PagedMemory> make_ring_memory(size_t pages, std::string* why);

}  // namespace hydrant::stale
