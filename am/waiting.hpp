// How a thread waits for what others do: it polls, and between polls in vain it spins, yields and sleeps
// (decision 0019 measures it for barriers), so that more ranks than cores is no cliff. Nothing waits without
// looking whether the job is ending.
#pragma once

#include <cstdint>

namespace hydrant {

// Everything that can be done now; how many things happened. Not in handlers.
uint32_t poll_all() noexcept;
// The same of what the network brings alone: what modules have registered (progress.hpp) has to wait for
// somebody's poll_all().
uint32_t poll_network() noexcept;
// What a handler may do: take replies.
uint32_t poll_replies() noexcept;

// What a thread waits for beside messages. Asked after others can see that this process sleeps, and before it
// does: true, and it does not. May be null.
struct Awaited {
  bool (*holds)(const void* context) noexcept = nullptr;
  const void* context = nullptr;
  // Of one sleep, where it may come without anybody being woken; 0: as long as any.
  uint64_t longest_ns = 0;
};

// The two halves of what a Waiter does after polls in vain, for a condition that only the caller can look at.
// True: it is time to sleep, and other threads of this process see that this one is about to: look at the
// condition once more, then call sleep_announced(), which does not sleep unless `needed`.
bool give_way(uint32_t misses) noexcept;
void sleep_announced(bool needed, const Awaited& awaited = {}) noexcept;

// For a thread that waits for nothing of its own: until something comes to this process, or some ms. Other
// threads need not tell it what their handlers did.
void sleep_till_told() noexcept;

// To whoever else can run here; the ranks of the node see that this one does not.
void yield_processor() noexcept;
// True if the rank that this one exchanged a message with last seems to run on another processor. Where ranks
// outnumber processors it is worth a moment of spinning: two that stay on their processors have answered each
// other several times before two changes of process are done (decision 0018).
bool answer_is_near() noexcept;

// Counts polls in vain and gives the processor away accordingly. One per wait.
class Waiter {
 public:
  // After each poll: how much it found.
  void polled(uint32_t events, const Awaited& awaited = {}) noexcept {
    if (events != 0) {
      misses_ = 0;
    } else {
      pause(++misses_, awaited);
    }
  }
  static void pause(uint32_t misses, const Awaited& awaited = {}) noexcept;

 private:
  uint32_t misses_ = 0;
};

// GASNET_WAIT_SPIN, _BLOCK or _SPINBLOCK. Until it is called: by the number of ranks and cores.
enum class WaitMode : uint32_t { kSpin, kBlock, kSpinBlock };
void set_wait_mode(WaitMode mode) noexcept;
// True if whoever is waited for can be expected to run meanwhile: not with GASNET_WAIT_BLOCK.
bool spinning_pays() noexcept;
// Decides the default: `ranks_here` on as many processors as this process may use.
void choose_wait_mode(uint32_t ranks_here) noexcept;

// Does not return: the job is being ended by the control thread, and this thread has nothing left to do.
[[noreturn]] void wait_for_the_end() noexcept;

}  // namespace hydrant
