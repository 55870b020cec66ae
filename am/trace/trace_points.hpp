// Functions through which the layers of a job write their events. All functions are called only while
// is_tracing().
//
// Messages of a pair of ranks and lane are numbered from 0 by their sender. The message carries the number
// modulo 127 in bits of its tag that are 0 otherwise. The receiver derives the whole number, although
// messages of several threads may overtake each other (docs/wire_format_am.md).
//
// Threads: any. Cost: 20 to 30 ns, of which one or two readings of the clock are 10 each.
#pragma once

#include "firehose/base/trace/tracer.hpp"
#include "rdma/bootstrap/bootstrap.hpp"

#include <cstddef>
#include <cstdint>

namespace hydrant {

// Allocates the counters of messages. False: no memory.
bool start_trace_points(Rank ranks) noexcept;

// The calling thread enters and leaves a public call of that name, a constant text.
[[gnu::cold]] void trace_enter(const char* call) noexcept;
[[gnu::cold]] void trace_leave() noexcept;
// Writes the calling thread's polls without an event, up to 1024 of which become one record.
void trace_pending_polls() noexcept;

// A put or get has taken a path, a constant text. It becomes part of the call that the thread is inside, if
// that is a put or get and has none yet.
[[gnu::cold]] void trace_transfer(bool is_put, Rank peer, const char* path, size_t bytes) noexcept;

// The description of a message, the same at sender and receiver. Lanes: 0 request, 1 reply.
struct TracedMessage {
  Rank peer = 0;
  uint8_t lane = 0;
  uint8_t category = 0;
  uint8_t arguments = 0;
  uint16_t handler = 0;
  uint64_t bytes = 0;
};

// A message on its way out. Construct it before the message is sent, then call sent() or failed().
class TracedSend {
 public:
  explicit TracedSend(const TracedMessage& message) noexcept;
  // The number, for the tag: 1 to 127.
  uint32_t mark() const noexcept { return static_cast<uint32_t>(number_ % 127) + 1; }
  void sent() const noexcept;
  // Gives the number to the next message.
  void failed() const noexcept;

 private:
  const TracedMessage message_;
  const uint64_t start_;
  const uint64_t number_;
};

// A handler that runs while the object exists. `mark`: of the message's tag; 0 if the sender does not
// trace. For messages to this rank itself kOwnMessage: they run in their order.
class TracedRun {
 public:
  static constexpr uint32_t kOwnMessage = UINT32_MAX;
  TracedRun(const TracedMessage& message, uint32_t mark) noexcept;
  ~TracedRun();
  TracedRun(const TracedRun&) = delete;
  TracedRun& operator=(const TracedRun&) = delete;

 private:
  const TracedMessage message_;
  const uint64_t number_;
  const uint64_t start_;
};

}  // namespace hydrant
