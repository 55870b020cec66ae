// From where a client of firehose.h may call which of its functions: GASNet's rules about handlers and
// callbacks, as far as a call can be judged by what its thread is inside of. Checked with HYDRANT_DEBUG.
//
// Not checked, because no call shows it: which requests belong to one operation, and so the order of pins;
// handlers of the client's own.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hydrant {

// What a thread is inside of, in this library's calls of the client or of the client's messages.
enum class FaceInside : uint8_t {
  kMove,  // firehose_move_callback, FH_MAY_MERGE
  kHandler,  // a message of firehose's is served; callbacks that the client allows in handlers run here
  kArgs,    // remote_args_callback
  kRemote,  // firehose_remote_callback, in or outside of a handler
  kCount
};

// While one lives, its thread is inside.
class FaceScope {
 public:
  explicit FaceScope(FaceInside where) noexcept;
  ~FaceScope();
  FaceScope(const FaceScope&) = delete;
  FaceScope& operator=(const FaceScope&) = delete;

 private:
  FaceInside where_;
};

bool is_inside_face(FaceInside where) noexcept;

// What a function of firehose.h may do.
enum class FaceCall : uint8_t {
  kGivesBack,  // firehose_release
  kLooks,      // try and partial pins: at once, and sends nothing
  kWaits,      // what may wait, send, or run callbacks: pins, poll, init, fini, invalidate
};

// Aborts if the thread may not call it here. Does nothing without HYDRANT_DEBUG.
void check_face_rules(FaceCall call, const char* function) noexcept;

// Storage for a request; null: no memory. With HYDRANT_DEBUG it is kept for a while after its end, so that
// whoever releases a request twice is told so, instead of reading what is somebody else's.
void* make_request(size_t bytes) noexcept;
// Aborts where it can tell that this was dropped before.
void drop_request(void* request) noexcept;

}  // namespace hydrant
