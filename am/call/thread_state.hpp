// Per-thread state: handler depth, negotiated messages, and buffers for messages to this rank itself.
// Created at the thread's first use, freed when the thread ends.
#pragma once

#include <hydrant/gasnet/am.h>

#include "am/wire/message.hpp"
#include "rdma/transport/transport.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

namespace hydrant {

// A negotiated message between prepare and commit. gex_AM_SrcDescAddr() reads the public base.
struct SourceDescriptor : hydrant_srcdesc {
  bool in_use = false;
  bool is_long = false;
  bool has_cell = false;  // addr points into `cell`
  uint32_t nargs = 0;
  Rank peer = 0;
  hydrant_token* token = nullptr;  // for a reply
  EndpointPair endpoints = {};
  gex_Event_t* lc_opt = nullptr;
  Cell cell = {};
};

// Nesting depth of handlers in the calling thread. Not in ThreadState, because every delivery counts it.
extern constinit thread_local uint32_t handler_depth [[gnu::tls_model("initial-exec")]];
// Counts the calls of poll_now_and_then(), which polls in some of them.
extern constinit thread_local uint32_t idle_calls [[gnu::tls_model("initial-exec")]];

// A message to this process itself, queued until the end of a no-interrupt section, with its own copies
// of arguments and payload.
struct DeferredMessage {
  Tag tag;
  std::array<int32_t, kMaxArgs + 1> args = {};
  void* dest = nullptr;  // Long
  std::unique_ptr<std::byte[]> payload;
  size_t bytes = 0;
  std::unique_ptr<DeferredMessage> next;
};

// In sending order. A list, because a vector throws when it cannot grow.
class DeferredMessages {
 public:
  DeferredMessages() noexcept = default;
  DeferredMessages(DeferredMessages&& other) noexcept
      : first_(std::move(other.first_)), last_(std::exchange(other.last_, nullptr)) {}
  DeferredMessages& operator=(DeferredMessages&&) = delete;
  // Deletes the messages in a loop: the default would recurse as deep as the list is long.
  ~DeferredMessages() {
    while (take_first() != nullptr) {
    }
  }

  void append(std::unique_ptr<DeferredMessage> message) noexcept {
    std::unique_ptr<DeferredMessage>& place = last_ == nullptr ? first_ : last_->next;
    last_ = message.get();
    place = std::move(message);
  }
  // Null if there is none.
  std::unique_ptr<DeferredMessage> take_first() noexcept {
    std::unique_ptr<DeferredMessage> taken = std::move(first_);
    if (taken != nullptr) first_ = std::move(taken->next);
    if (first_ == nullptr) last_ = nullptr;
    return taken;
  }

 private:
  std::unique_ptr<DeferredMessage> first_;
  DeferredMessage* last_ = nullptr;
};

struct ThreadState {
  uint32_t held_interrupts = 0;
  // The value of polls_with_events() at the last return from hydrant_wait_for_message().
  uint32_t polls_seen = 0;
  DeferredMessages deferred_messages;
  // Apart, because a request that waits for room runs handlers, which may prepare replies.
  SourceDescriptor prepared_request;
  std::unique_ptr<SourceDescriptor> prepared_reply;  // allocated on first use: static TLS is scarce
  // Buffers for messages to this rank (request, reply) and for negotiated payloads (request, reply):
  // kBufferBytes each, allocated on first use.
  static constexpr size_t kBufferBytes = 65536;
  std::array<std::unique_ptr<std::byte[]>, 4> buffers;

  // Returns a 64-byte aligned buffer; null if memory ran out.
  std::byte* buffer(size_t which) noexcept;
  // Returns the descriptor; null if memory ran out.
  SourceDescriptor* prepared(bool is_reply) noexcept {
    if (!is_reply) return &prepared_request;
    if (prepared_reply == nullptr) prepared_reply.reset(new (std::nothrow) SourceDescriptor);
    return prepared_reply.get();
  }
};

// The calling thread's state. The name must differ from libfirehose's this_thread(): if both libraries
// are linked statically without inlining, the linker would merge the two functions.
inline ThreadState& own_thread_state() noexcept {
  static thread_local ThreadState state;
  return state;
}

}  // namespace hydrant
