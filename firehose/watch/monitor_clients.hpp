// The caches that a monitor notifies.
//
// Invariant: a client's functions are called between subscribe() and the return of unsubscribe() only.
//
// Threads: any, without a lock: several threads, and signal handlers that interrupt them, may call a client
// at once.
#pragma once

#include <hydrant/monitor.h>

#include "firehose/base/memory_range.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hydrant {

class MonitorClients {
 public:
  static constexpr MemoryRange kAllMemory{4096, UINTPTR_MAX - 65536};

  constexpr MonitorClients() noexcept = default;

  // A number; -1: there is no place.
  int subscribe(const hydrant_monitor_client_t& client) noexcept;
  // Waits for calls of the client's functions, which do not wait.
  void unsubscribe(int number) noexcept;
  // Functions that not every client has. False: `number` is not subscribed.
  bool set_end_free_hits(int number, void (*end)(void* context)) noexcept;
  bool set_unmapped(int number,
                    void (*unmapped)(void* context, uintptr_t addr, size_t len)) noexcept;
  bool set_wanted(int number, void (*wanted)(void* context)) noexcept;

  void forget(MemoryRange range) noexcept;
  // The same for memory that was unmapped.
  void forget_unmapped(MemoryRange range) noexcept;
  void forget_vouched() noexcept;
  // True if some client has pinned part of the range.
  bool have_pinned(MemoryRange range) noexcept;
  void end_free_hits() noexcept;
  void notify_wanted() noexcept;

  void reset_in_child() noexcept;

 private:
  static constexpr size_t kMax = 64;

  enum State : uint32_t { kFree, kBeingWritten, kUsed, kLeaving };
  struct Client {
    hydrant_monitor_client_t is;
    std::atomic<void (*)(void* context)> end_free_hits{nullptr};  // null: it has none
    std::atomic<void (*)(void* context, uintptr_t addr, size_t len)> unmapped{nullptr};  // the same
    std::atomic<void (*)(void* context)> wanted{nullptr};                                // the same
    std::atomic<uint32_t> state{kFree};
    std::atomic<uint32_t> inside{0};  // calls of its functions; incremented before `state` is read
  };

  template <class Call>
  void each(const Call& call) noexcept;
  // Null if `number` is not subscribed.
  Client* find(int number) noexcept;

  Client clients_[kMax] = {};
  // The places from here on have never had a client. It grows only, before the client's state becomes kUsed.
  std::atomic<size_t> places_{0};
};

}  // namespace hydrant
