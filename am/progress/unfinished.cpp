// Keeps the list of operations that polls continue; poll_all() (waiting.cpp) runs them.
#include "am/progress/unfinished.hpp"

#include "am/call/thread_state.hpp"

namespace hydrant {

constinit std::atomic<Unfinished*> newest_unfinished{nullptr};

void continue_in_polls(Unfinished& operation) noexcept {
  Unfinished* head = newest_unfinished.load(std::memory_order_relaxed);
  do {
    operation.next_unfinished = head;
    // Pairs with the acquire in continue_all_unfinished().
  } while (!newest_unfinished.compare_exchange_weak(head, &operation, std::memory_order_release,
                                                    std::memory_order_relaxed));
}

uint32_t continue_all_unfinished() noexcept {
  if (handler_depth != 0) return 0;  // operations send requests
  Unfinished* newest = newest_unfinished.exchange(nullptr, std::memory_order_acquire);
  Unfinished* oldest = nullptr;
  while (newest != nullptr) {
    Unfinished* const older = newest->next_unfinished;
    newest->next_unfinished = oldest;
    oldest = newest;
    newest = older;
  }
  uint32_t finished = 0;
  // Each once per poll; those that cannot go on wait for the next poll.
  while (oldest != nullptr) {
    Unfinished& operation = *oldest;
    oldest = operation.next_unfinished;
    if (operation.proceed(operation))
      ++finished;
    else
      continue_in_polls(operation);
  }
  return finished;
}

}  // namespace hydrant
