// Creates and adopts a thread's state for puts and gets: the rows per rank, and the pointer to
// them. Used by all paths of put and get.
#include "extended/rma/common/rma_thread.hpp"

#include "am/job/job.hpp"

#include <new>
#include <sys/mman.h>

__thread struct hydrant_known_peers hydrant_known_peers = {nullptr, 0};

namespace hydrant {

void RmaThread::joined() noexcept {
  const Rank size = job().size();
  if (region != nullptr) {
    // The previous thread ended inside an access region. Its event was never returned; if it is
    // incomplete, it leaks.
    if (region->counter.all_done()) release_event(region);
    region = nullptr;
  }
  completion = {};
  for (CompletionCounter& counter : implicit_) {
    counter.thread = this;
    counter.most = paths().nbi_depth;
  }
  if (peers_ == nullptr) {
    // Pages for ranks that this thread never accesses stay unallocated.
    void* memory = mmap(nullptr, size_t{size} * sizeof(KnownPeer), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return;
    peers_ = static_cast<KnownPeer*>(memory);
  }
  if (!paths().inlined) return;
  // All memory of this process is mapped, except address 0.
  KnownPeer& self = peers_[job().rank()];
  self.addr = 1;
  self.size = UINTPTR_MAX;
  show_peers(true);
}

void RmaThread::show_peers(bool shown) noexcept {
  if (shown && peers_ != nullptr && paths().inlined)
    hydrant_known_peers = {peers_, job().size()};
  else
    hydrant_known_peers = {nullptr, 0};
}

void RmaThread::trace(Direction direction, Rank rank, Path path, size_t bytes) noexcept {
  trace_transfer(direction == Direction::kPut, rank,
                 hydrant_path_name(static_cast<hydrant_path_t>(path)), bytes);
}

void RmaThread::left() noexcept { hydrant_known_peers = {nullptr, 0}; }

std::byte* RmaThread::scratch() noexcept {
  if (scratch_ == nullptr) scratch_.reset(new (std::nothrow) std::byte[kScratchBytes]);
  return scratch_.get();
}

std::byte* RmaThread::packet() noexcept {
  if (packet_ == nullptr) packet_.reset(new (std::nothrow) std::byte[kScratchBytes]);
  return packet_.get();
}

}  // namespace hydrant
