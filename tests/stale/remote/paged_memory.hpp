// Memory of a rank of a hunt, page by page, and the registrar over it. Keys contain the serial numbers of
// registrations. A write through a key, as a network adapter would do it, detects that its registration was
// undone, that it is older than the limit of reachable memory, or that it lands in replaced pages.
//
// A page is either an object that stands for it (fast) or a real page that an io_uring keeps pinned.
//
// Threads: all functions from any.
#pragma once

#include <hydrant/pin_cache.h>

#include "firehose/registrars/uring/uring_ring.hpp"

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
inline constexpr size_t kCells = 32;     // cells per page: concurrent writers use different ones
inline constexpr size_t kMaxPages = 64;  // pages per registration
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
  // Replaces the memory at these addresses. Answers the least serial of registrations of the new memory.
  uint64_t replace(size_t page, size_t pages);
  // Declares that registrations with a lower serial are out of reach.
  void condemn(size_t page, size_t pages, uint64_t serial);
  // Writes through a key; "" or the error. `visible`: whether the page then has the value.
  std::string write(const void* key, size_t page, size_t cell, uint32_t value, bool* visible);
  size_t live() const { return live_.load(); }
  std::string problem() const;

 protected:
  struct Registration {
    std::atomic<uint64_t> serial{0};  // 0: none
    // Atomic: with a mutant they are read while the next registration is being written.
    std::atomic<size_t> page{0}, pages{0};
    std::array<std::atomic<void*>, kMaxPages> objects{};
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

// Memory whose pages are objects.
std::unique_ptr<PagedMemory> make_object_memory(size_t pages);
// Memory whose real pages an io_uring keeps pinned. Null, with the reason, if not available.
std::unique_ptr<PagedMemory> make_ring_memory(size_t pages, std::string* why);

}  // namespace hydrant::stale
