// Implements GASNet-1's barrier over an engine. barrier_calls.cpp calls it; polls call make_progress().
#include "extended/barrier/named_barrier.hpp"

namespace hydrant {

void NamedBarrier::notify(int id, int flags) noexcept {
  const BarrierName mine = name_of(id, flags);
  const bool promised = (flags & GASNET_BARRIERFLAG_UNNAMED) == GASNET_BARRIERFLAG_UNNAMED;
  const bool no_names = promised || (!strict_ && (flags & GASNET_BARRIERFLAG_ANONYMOUS) != 0);
  open_.store(true, std::memory_order_relaxed);
  engine_->start(mine, no_names);
  if (engine_->needs_progress()) {
    progress_.add(make_progress, this, engine_->is_silent());
    registered_ = true;
  }
}

bool NamedBarrier::finish(int id, int flags, bool* matched) noexcept {
  BarrierName all;
  if (!engine_->finish(&all)) return false;
  if (registered_) {
    progress_.remove(make_progress, this);
    registered_ = false;
  }
  all_ = all;
  *matched = agrees(all, id, flags);
  open_.store(false, std::memory_order_relaxed);
  return true;
}

int NamedBarrier::result(int* id) const noexcept {
  if (all_.state != NameState::kNamed) return 1;
  if (id != nullptr) *id = static_cast<int>(all_.id);
  return 0;
}

// May run once more just after the phase is over, which the engine tolerates.
uint32_t NamedBarrier::make_progress(void* self) noexcept {
  return static_cast<NamedBarrier*>(self)->engine_->make_progress();
}

}  // namespace hydrant
