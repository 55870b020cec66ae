// What a thread has of its own: whether it runs a handler, its negotiated message, its buffers for messages
// to itself. Made when a thread first needs it, freed when the thread ends.
#pragma once

#include <hydrant/gasnet/am.h>

#include "am/message.hpp"
#include "rdma/transport.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace hydrant {

// A negotiated message between prepare and commit. The public part is what gex_AM_SrcDescAddr() reads.
struct SourceDescriptor : hydrant_srcdesc {
  bool in_use = false;
  bool is_reply = false;
  bool is_long = false;
  bool has_cell = false;  // addr is the cell's
  uint32_t nargs = 0;
  Rank peer = 0;                   // of a request
  hydrant_token* token = nullptr;  // of a reply
  gex_Event_t* lc_opt = nullptr;
  Cell cell = {};
};

// How many handlers the calling thread is inside of. Apart from ThreadState, because every delivery counts.
extern constinit thread_local uint32_t handler_depth [[gnu::tls_model("initial-exec")]];

// A message to this process itself that waits for the end of a no-interrupt section: arguments and
// payload are its own.
struct HeldMessage {
  Tag tag;
  std::array<int32_t, kMaxArgs> args = {};
  void* dest = nullptr;  // Long
  std::unique_ptr<std::byte[]> payload;
  size_t bytes = 0;
};

struct ThreadState {
  uint32_t held_interrupts = 0;
  std::vector<HeldMessage> held_messages;  // in the order they were sent
  SourceDescriptor source;
  // For messages to oneself (a request and its reply) and for negotiated payloads (the same): kBufferBytes
  // each, made on first use.
  static constexpr size_t kBufferBytes = 65536;
  std::array<std::unique_ptr<std::byte[]>, 4> buffers;

  // 64-byte aligned; null if memory ran out.
  std::byte* buffer(size_t which) noexcept;
};

// The calling thread's. (Not "this_thread": libfirehose has another function of that name, and where both are
// linked statically and nothing is inlined, one of them would be called for both.)
inline ThreadState& own_thread_state() noexcept {
  static thread_local ThreadState state;
  return state;
}

}  // namespace hydrant
