// Operations that polls continue: what calls with GEX_FLAG_IMMEDIATE had no room for, and what waits for an
// event that only a poll brings. Each poll lets every one of them do what is possible now.
//
// Threads: any thread adds an operation, without a lock and also in handlers and completions; any polling
// thread continues it, one thread at a time.
#pragma once

#include <atomic>
#include <cstdint>

namespace hydrant {

// Belongs to the list from continue_in_polls() until proceed() returns true.
struct Unfinished {
  // Does what is possible now, without waiting; never inside a handler. True: the operation is over or
  // belongs to something else, and may be gone.
  bool (*proceed)(Unfinished& operation) noexcept = nullptr;
  Unfinished* next_unfinished = nullptr;
};

void continue_in_polls(Unfinished& operation) noexcept;

extern constinit std::atomic<Unfinished*> newest_unfinished;
inline bool has_unfinished() noexcept {
  return newest_unfinished.load(std::memory_order_relaxed) != nullptr;
}
// Returns how many operations are over.
uint32_t continue_all_unfinished() noexcept;
inline uint32_t continue_unfinished() noexcept {
  return has_unfinished() ? continue_all_unfinished() : 0;
}

}  // namespace hydrant
