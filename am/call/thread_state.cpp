// Allocates each thread's buffers for messages to this rank, and counts its handler depth. send.cpp,
// negotiated.cpp and deliver.cpp use it.
#include "am/call/thread_state.hpp"

#include <new>

namespace hydrant {

constinit thread_local uint32_t handler_depth = 0;
constinit thread_local uint32_t idle_calls = 0;

std::byte* ThreadState::buffer(size_t which) noexcept {
  constexpr size_t kAlignment = 64;
  if (buffers[which] == nullptr) {
    buffers[which].reset(new (std::nothrow) std::byte[kBufferBytes + kAlignment]);
  }
  std::byte* start = buffers[which].get();
  if (start == nullptr) return nullptr;
  const auto address = reinterpret_cast<uintptr_t>(start);
  return start + ((kAlignment - address % kAlignment) % kAlignment);
}

}  // namespace hydrant
