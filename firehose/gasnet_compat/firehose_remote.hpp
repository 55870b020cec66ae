// The remote part of firehose.h: an end of hydrant/remote_pin.h, and what that API adds to it: pins that
// never fail, and callbacks that run where the client allows it.
#pragma once

#include <hydrant/firehose_shim.h>
#include <hydrant/remote_pin.h>

#include "firehose/base/thread.hpp"
#include "firehose/gasnet_compat/firehose_limits.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>

struct hydrant_fh;

namespace hydrant {

class CompatRemote;

// A remote pin that missed, until its callback has run, however often the other node declines it. The
// client's arguments lie behind it.
struct CompatRemoteOp {
  enum class State : uint8_t {
    kAsked,     // the other node has to reply
    kHeld,      // the calling thread waits until it may send the request
    kDeclined,  // to be tried again
    kDone,      // its callback waits for poll()
  };
  static constexpr std::align_val_t kAlign{HYDRANT_FH_MAX_ALIGN};  // the client's arguments need it

  CompatRemote* of = nullptr;
  hydrant_fh_remote_request_t pin_request{};
  CompatRemoteOp* next = nullptr;  // among all, or among those that are done
  CompatRemoteOp* previous = nullptr;
  uint64_t began_ns = 0;
  uint64_t next_report_ns = 0;
  uint64_t declined_ns = 0;  // when it was last declined
  uint64_t retry_ns = 0;
  uint32_t declined = 0;
  uint32_t hints = 0;          // number of room notices from the other node
  bool room_notified = false;  // a room notice has come since it was declined
  State state = State::kAsked;
  bool moved = false;      // a move was made for it
  bool args_made = false;  // and the client's arguments were written
  bool all_local_hit = false;
  size_t args_len = 0;
  hydrant_pin_t pin{};

  std::byte* args() noexcept { return reinterpret_cast<std::byte*>(this + 1); }
};

// Threads: everything but the constructor and the destructor from any thread. mu_ is a leaf: nothing is
// called under it.
class CompatRemote {
 public:
  // Aborts when it cannot start. Requires: the domain of `fh` is there, and the client can send.
  CompatRemote(hydrant_fh& fh, const CompatPeerLimits& limits) noexcept;
  // Requests under way are forgotten.
  ~CompatRemote();
  CompatRemote(const CompatRemote&) = delete;
  CompatRemote& operator=(const CompatRemote&) = delete;

  const CompatPeerLimits& limits() const noexcept { return limits_; }

  hydrant_pin_t hit(uint32_t node, uintptr_t addr, size_t len) noexcept;
  hydrant_pin_t try_pin(uint32_t node, uintptr_t addr, size_t len) noexcept;
  hydrant_pin_t partial_pin(uint32_t node, uintptr_t addr, size_t len) noexcept;
  // As hydrant_fh_remote_pin().
  hydrant_pin_t pin(const hydrant_fh_remote_request_t& pin_request) noexcept;
  void deliver(uint32_t from, const void* message, size_t len, void* reply_to) noexcept;

  // Makes progress without the client's completion callbacks, for a pin that waits.
  void progress() noexcept;
  // Makes progress, runs completion callbacks, and reports requests that wait for long.
  void poll() noexcept;

  // Prints the counters, for GASNET_FIREHOSE_VERBOSE.
  void print_summary() noexcept;

 private:
  static int send_thunk(void* user, uint32_t peer, uint32_t lane, void* reply_to,
                        const void* message, size_t len);
  static size_t remote_thunk(void* user, uint32_t from, const hydrant_region_t* pinned,
                             hydrant_range_t asked, const void* args, size_t args_len, void* answer,
                             size_t room);
  static size_t make_args_thunk(void* context, void* args, size_t room);
  static size_t no_args_thunk(void* context, void* args, size_t room);
  static void room_thunk(void* user, uint32_t peer);
  static void done_thunk(void* context, hydrant_pin_t pin, const hydrant_remote_outcome_t* outcome);

  hydrant_pin_t look(const char* function, uint32_t node, uintptr_t addr, size_t len,
                     hydrant_pin_t found) const noexcept;
  // OK, with or without *pin, or NOT_READY; aborts otherwise. `inside`: the client's call has not returned.
  int start(CompatRemoteOp* op, bool inside, hydrant_pin_t* pin) noexcept;
  hydrant_pin_t wait_to_start(CompatRemoteOp* op) noexcept;
  void done(CompatRemoteOp* op, hydrant_pin_t pin, bool called) noexcept;
  void retry_later(CompatRemoteOp* op) noexcept HYDRANT_EXCLUDES(mu_);
  void retry() noexcept HYDRANT_EXCLUDES(mu_);
  void note_room(uint32_t node) noexcept HYDRANT_EXCLUDES(mu_);
  void await_room() noexcept HYDRANT_EXCLUDES(mu_);
  void run_done() noexcept HYDRANT_EXCLUDES(mu_);
  void look_for_waiting() noexcept HYDRANT_EXCLUDES(mu_);
  void set_state(CompatRemoteOp* op, CompatRemoteOp::State state) noexcept HYDRANT_EXCLUDES(mu_);
  void unlink(CompatRemoteOp* op) noexcept HYDRANT_REQUIRES(mu_);
  CompatRemoteOp* make_op(const hydrant_fh_remote_request_t& pin_request) const noexcept;
  void drop_op(CompatRemoteOp* op) noexcept HYDRANT_EXCLUDES(mu_);

  hydrant_fh& fh_;
  const CompatPeerLimits limits_;
  const uint64_t patience_ns_;
  // GASNet's firehose_poll() is empty for such a client, which may call it only when a message has arrived.
  const bool polls_on_arrival_;
  hydrant_remote_t end_ = 0;

  Mutex mu_;
  CompatRemoteOp* ops_ HYDRANT_GUARDED_BY(mu_) = nullptr;  // all that are under way
  CompatRemoteOp* done_ HYDRANT_GUARDED_BY(mu_) = nullptr;
  CompatRemoteOp** done_tail_ HYDRANT_GUARDED_BY(mu_) = &done_;
  // Hints for poll(): relaxed, or published by mu_.
  std::atomic<uint64_t> declined_{0};  // operations that are to be tried again
  std::atomic<bool> any_done_{false};
  std::atomic<uint64_t> next_look_{0};
};

}  // namespace hydrant
