// GASNet's rules on handlers and callbacks: from where a client of firehose.h may call which function, as far
// as the calls that its thread is inside of can show it. Checked with HYDRANT_DEBUG.
//
// Not checked, because no call shows it: which requests belong to one operation, and so the order of pins;
// handlers of the client's own.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hydrant {

// The call of the client, or of the client's message handler, that a thread is inside of.
enum class CompatInside : uint8_t {
  kMove,  // firehose_move_callback, FH_MAY_MERGE
  kHandler,  // a firehose message is being served; callbacks that the client allows in handlers run here
  kArgs,    // remote_args_callback
  kRemote,  // firehose_remote_callback, in or outside of a handler
  kCount
};

// While one exists, its thread is inside. They nest to any depth: a wait inside a callback serves messages.
class CompatScope {
 public:
  explicit CompatScope(CompatInside where) noexcept;
  ~CompatScope();
  CompatScope(const CompatScope&) = delete;
  CompatScope& operator=(const CompatScope&) = delete;

 private:
  const uint8_t before_;  // the bits of the scopes around it
};

bool is_in_callback(CompatInside where) noexcept;

// The classes of functions of firehose.h, by what they may do.
enum class CompatCall : uint8_t {
  kReleases,  // firehose_release
  kLooks,     // try and partial pins: at once, and sends nothing
  kWaits,     // may wait, send, or run callbacks: pins, poll, init, fini, invalidate
};

// Aborts if the thread may not call it here. Does nothing without HYDRANT_DEBUG.
void check_call_rules(CompatCall call, const char* function) noexcept;

// Storage for a request; null: no memory. With HYDRANT_DEBUG it is kept for a while after its end, so that
// a second release of a request is reported, instead of touching memory of another request.
void* make_request(size_t bytes) noexcept;
// Aborts if it detects that the request was dropped before.
void drop_request(void* request) noexcept;

}  // namespace hydrant
