// Sends Active Messages: one path for both APIs, for requests and replies, to other ranks and to this one.
#pragma once

#include <hydrant/gasnet/am.h>
#include <hydrant/gasnet/events.h>

#include "am/handler/token.hpp"
#include "am/wire/message.hpp"
#include "rdma/transport/transport.hpp"

#include <cstddef>
#include <cstdint>

namespace hydrant {

// Describes a message to send.
struct OutgoingMessage {
  Rank peer = 0;
  Lane lane = Lane::kRequest;
  Category category = Category::kShort;
  uint32_t handler = 0;  // | kAddressedHandler in an addressed message
  uint32_t nargs = 0;
  const int32_t* args = nullptr;
  const void* source = nullptr;
  size_t bytes = 0;
  void* dest = nullptr;  // Long
  // Long: gets an event if the source is still being read when send() returns; GEX_EVENT_GROUP: the thread's
  // implicit operations are counted instead. Null: the source has been read at return.
  gex_Event_t* leaf = nullptr;
  const Cell* cell = nullptr;  // negotiated payload: contains the payload; send() consumes it
  bool immediate = false;
};

// As part of `handler`, it sets the bit Tag::kAddressed of the packed tag.
inline constexpr uint32_t kAddressedHandler = Tag::kAddressed << 8;
static_assert(Tag{.handler = kAddressedHandler}.pack() == Tag{.nargs = Tag::kAddressed}.pack());

// Sends the message. Without `immediate` it waits for room by polling; replies poll only replies.
// Errors: kNotReady: immediate, and there is no room; kBroken: the peer is unreachable, or the job is ending.
Status send(const OutgoingMessage& message) noexcept;

// Sends a message between endpoints of which one is not primordial; otherwise as send().
Status send_addressed(const OutgoingMessage& message, const EndpointPair& endpoints) noexcept;

// Runs the handler of a message to this process in the calling thread. In a no-interrupt section it
// queues a request for run_deferred_messages(). Errors: kResource: no memory for a copy.
Status send_to_self(const OutgoingMessage& message) noexcept;
// Runs the queued messages at the end of the calling thread's no-interrupt section. Not in handlers.
void run_deferred_messages() noexcept;

// Maximum payloads in bytes. A Long may be sent in several pieces.
inline constexpr size_t kMaxLong = 0x7fffffff;
size_t max_medium() noexcept;

}  // namespace hydrant
