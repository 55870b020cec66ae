// The registrar behind firehose.h: pins and unpins by calling the client's move callback, and remembers
// what is pinned, so that the warning about a blocked pin can list the holders of the budget.
#pragma once

#include <hydrant/firehose_shim.h>
#include <hydrant/pin_cache.h>

#include "firehose/base/memory_range.hpp"
#include "firehose/base/thread.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace hydrant {

// The ranges that are pinned now: a multiset, each with its thread and time. Open addressing by start
// address; 24 bytes per range at 1/2 to 1/4 load.
//
// Best effort: without memory to grow, further ranges are only counted.
// Thread safety: none of its own.
class PinnedTable {
 public:
  struct Entry {
    uintptr_t addr = 0;
    size_t len = 0;         // 0: a free cell
    uint32_t thread = 0;    // gettid() of the thread that pinned it
    uint32_t since_ms = 0;  // modulo 2^32
  };

  void add(const Entry& entry) noexcept;
  // Forgets one range of exactly this address and length.
  void remove(uintptr_t addr, size_t len) noexcept;
  size_t size() const noexcept { return size_; }
  // Copies up to n ranges, lowest address first; returns their number.
  size_t copy_lowest(Entry* entries, size_t n) const noexcept;

 private:
  size_t home_of(uintptr_t addr) const noexcept;
  size_t next(size_t cell) const noexcept { return (cell + 1) & (capacity_ - 1); }
  bool grow() noexcept;
  void place(const Entry& entry) noexcept;

  std::unique_ptr<Entry[]> cells_;
  size_t capacity_ = 0;  // power of two, or 0
  size_t size_ = 0;
};

// "350 ms" below ten seconds, else "12 s". Returns `text`.
const char* format_age(uint32_t age_ms, char* text, size_t room) noexcept;

// Thread safety: as hydrant_registrar_t demands. mutex_ guards only the table and is a leaf: nothing is
// called under it.
class CompatRegistrar {
 public:
  // `client` has been checked by hydrant_fh_init().
  explicit CompatRegistrar(const hydrant_fh_client_t& client, size_t bucket_bytes) noexcept;

  // The functions of this object, which must outlive the domain.
  hydrant_registrar_t registrar_functions(size_t max_region_bytes) noexcept;

  // Writes one log line per pinned range, lowest address first, at most `lines`.
  void log_pinned(size_t lines) noexcept HYDRANT_EXCLUDES(mutex_);
  size_t pinned_ranges() noexcept HYDRANT_EXCLUDES(mutex_);
  // The move callback's result when it last failed to pin; 0 if it never failed.
  int last_failure() const noexcept { return last_failure_.load(std::memory_order_relaxed); }

  // While one exists, pins of this thread know the range that the client requested: if the cache has enlarged
  // a registration, it must not come back as unusable (FH_MAY_MERGE).
  class RequestedRange {
   public:
    explicit RequestedRange(MemoryRange range) noexcept;
    ~RequestedRange();
    RequestedRange(const RequestedRange&) = delete;
    RequestedRange& operator=(const RequestedRange&) = delete;

   private:
    MemoryRange range_;
  };

 private:
  static int pin_thunk(void* user, uintptr_t addr, size_t len, uint32_t access, void* key);
  static int unpin_thunk(void* user, uintptr_t addr, size_t len, const void* key);
  static int unpin_many_thunk(void* user, const hydrant_range_t* ranges, const void* const* keys,
                              size_t n);

  int pin(MemoryRange range, void* key) noexcept;
  void unpin(const hydrant_range_t* ranges, const void* const* keys, size_t n) noexcept;
  bool grown(MemoryRange range) const noexcept;
  void remember(MemoryRange range) noexcept HYDRANT_EXCLUDES(mutex_);
  void forget(const hydrant_range_t* ranges, size_t n) noexcept HYDRANT_EXCLUDES(mutex_);

  const hydrant_fh_client_t client_;
  const size_t bucket_bytes_;
  const bool page_mode_;
  std::atomic<int> last_failure_{0};  // relaxed: only for a message
  Mutex mutex_;
  PinnedTable pinned_ HYDRANT_GUARDED_BY(mutex_);
};

// Says why on standard error and aborts: firehose.h has no error returns.
[[noreturn, gnu::format(printf, 1, 2)]] void compat_fatal(const char* format, ...) noexcept;

}  // namespace hydrant
