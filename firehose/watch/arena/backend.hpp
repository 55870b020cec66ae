// Chooses where private memory comes from: jemalloc, or the library's own heap, and records why.
//
// Invariant: the choice is made once. A thread that sees it sees the table and the reason.
//
// Threads: any. No lock is held while symbols are looked up.
#pragma once

#include "firehose/base/thread.hpp"
#include "firehose/watch/arena/jemalloc/jemalloc_abi.hpp"
#include "firehose/watch/arena/page_store.hpp"

#include <atomic>
#include <cstddef>

namespace hydrant::arena {

class Backend {
 public:
  // `store` has jemalloc's pages. It keeps `keep_bytes` of free memory for the own heap; jemalloc has a delay
  // of its own.
  constexpr Backend(PageStore& store, size_t keep_bytes) noexcept
      : store_(store), keep_bytes_(keep_bytes) {}
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  // Null: the own heap. The first call chooses.
  const JemallocTable* jemalloc() noexcept {
    // Pairs with the release in choose(), which publishes the table and the reason.
    if (choice_.load(std::memory_order_acquire) == Choice::kNone) choose();
    return table_;
  }
  // The same where memory was allocated before.
  const JemallocTable* chosen() const noexcept { return table_; }
  const char* reason() noexcept {
    (void)jemalloc();
    return reason_;
  }

  void before_fork() noexcept HYDRANT_NO_TSA { mu_.lock_uncounted(); }
  void after_fork() noexcept HYDRANT_NO_TSA { mu_.unlock_uncounted(); }

 private:
  static constexpr size_t kReasonBytes = 320;

  enum class Choice : uint8_t { kNone, kJemalloc, kExtents };

  void choose() noexcept;

  PageStore& store_;
  const size_t keep_bytes_;
  std::atomic<Choice> choice_{Choice::kNone};
  Mutex mu_;                              // a leaf
  const JemallocTable* table_ = nullptr;  // written once, under mu_, before choice_
  char reason_[kReasonBytes] = {};        // as table_
};

}  // namespace hydrant::arena
