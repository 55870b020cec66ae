// Implements gex_Coll_BroadcastNB: the messages between root and receivers, and the gets of the pieces
// (rma_transfer.cpp). Progress comes from poll_all() and from waits for the event.
#include "extended/broadcast.hpp"

#include "am/job/exit.hpp"
#include "am/job/job.hpp"
#include "am/message/send.hpp"
#include "am/message/token.hpp"
#include "am/progress/hsl.hpp"
#include "am/progress/in_call.hpp"
#include "am/progress/thread_state.hpp"
#include "am/progress/waiting.hpp"
#include "extended/binding/firehose_binding.hpp"
#include "extended/event/event.hpp"
#include "extended/handlers.hpp"
#include "extended/rma/bounce_pool.hpp"
#include "extended/rma/rma.hpp"
#include "extended/rma/rma_events.hpp"
#include "extended/rma/rma_path.hpp"
#include "firehose/base/log.hpp"
#include "firehose/base/thread.hpp"

#include <algorithm>
#include <cstring>
#include <gasnet_coll.h>
#include <new>

using namespace hydrant;

namespace {

// Bytes of one get: one message or one buffer, so that transfer() does not wait for room and poll.
size_t piece_bytes() noexcept {
  constexpr size_t kMax = size_t{64} << 10;
  const size_t most = std::min(kMax, paths().medium_max);
  const size_t buffer = is_firehose_enabled() ? bounce_buffer_bytes() : 0;
  return buffer != 0 ? std::min(most, buffer) : most;
}

// A broadcast on this rank, from its first message or call until its event is complete.
struct Broadcast {
  uint64_t number = 0;
  bool is_called = false;  // the client has called it here; until then only `source` is known
  bool is_root = false;
  Rank root = 0;
  std::byte* dest = nullptr;
  size_t bytes = 0;
  uintptr_t source = 0;       // the root's address; 0: not known yet
  size_t requested = 0;       // bytes requested so far
  Rank notified = 0;          // root: ranks below it have the address
  Rank acknowledgements = 0;  // root: number of acknowledgements
  bool is_done = false;
  CompletionCounter* counter = nullptr;  // the event's
  Broadcast* next = nullptr;
};

class Broadcasts {
 public:
  // Returns null if there is no memory.
  Broadcast* begin(Rank root, void* dest, const void* source, size_t bytes,
                   CompletionCounter& counter) noexcept {
    const MutexLock lock(mu_);
    Broadcast* made = find_locked(++begun_);
    if (made == nullptr) {
      --begun_;
      return nullptr;
    }
    made->is_called = true;
    made->is_root = root == job().rank();
    made->root = root;
    made->dest = static_cast<std::byte*>(dest);
    made->bytes = bytes;
    made->counter = &counter;
    if (made->is_root) made->source = reinterpret_cast<uintptr_t>(source);
    step_locked(*made);
    if (!made->is_done) job().progress.add(make_progress, this);
    return made;
  }

  // Returns true if the broadcast is complete; then `broadcast` has been deleted.
  bool finish(Broadcast& broadcast) noexcept {
    const MutexLock lock(mu_);
    if (!broadcast.is_done) step_locked(broadcast);
    if (!broadcast.is_done) return false;
    Broadcast** link = &first_;
    while (*link != &broadcast) link = &(*link)->next;
    *link = broadcast.next;
    delete &broadcast;
    if (first_ == nullptr) job().progress.remove(make_progress, this);
    return true;
  }

  // True if finish() would make progress.
  bool is_ready(const Broadcast& broadcast) noexcept {
    const MutexLock lock(mu_);
    if (broadcast.is_done) return true;
    if (broadcast.is_root) return broadcast.notified < job().size();
    return broadcast.source != 0 && broadcast.counter->all_done();
  }

  // ---- handlers ----
  bool handle_source(uint64_t number, uintptr_t source) noexcept {
    const MutexLock lock(mu_);
    Broadcast* broadcast = find_locked(number);
    if (broadcast == nullptr) return false;
    broadcast->source = source;
    return true;
  }
  void handle_acknowledgement(uint64_t number) noexcept {
    const MutexLock lock(mu_);
    Broadcast* broadcast = find_locked(number);
    if (broadcast == nullptr || !broadcast->is_root)
      fatal("received an acknowledgement of a broadcast that this rank did not start");
    ++broadcast->acknowledgements;
    broadcast->is_done = broadcast->acknowledgements + 1 == job().size();
  }

 private:
  // Creates the broadcast if it does not exist. Null: no memory.
  Broadcast* find_locked(uint64_t number) noexcept HYDRANT_REQUIRES(mu_) {
    for (Broadcast* known = first_; known != nullptr; known = known->next) {
      if (known->number == number) return known;
    }
    auto* made = new (std::nothrow) Broadcast;
    if (made == nullptr) return nullptr;
    made->number = number;
    made->next = first_;
    first_ = made;
    return made;
  }

  // Does everything that is possible without waiting. Does not poll, so no handler runs inside.
  void step_locked(Broadcast& broadcast) noexcept HYDRANT_REQUIRES(mu_) {
    if (broadcast.is_root) {
      notify_locked(broadcast);
    } else if (broadcast.source != 0) {
      get_locked(broadcast);
    }
  }

  void notify_locked(Broadcast& broadcast) noexcept HYDRANT_REQUIRES(mu_) {
    for (; broadcast.notified < job().size(); ++broadcast.notified) {
      if (broadcast.notified == broadcast.root) continue;
      if (!send_to(broadcast.notified, kBroadcastHandler, broadcast)) return;
    }
  }

  void get_locked(Broadcast& broadcast) noexcept HYDRANT_REQUIRES(mu_) {
    // Gets one piece after the other; any thread that polls starts the next one.
    while (broadcast.counter->all_done()) {
      if (broadcast.requested == broadcast.bytes) {
        broadcast.is_done = send_to(broadcast.root, kBroadcastDoneHandler, broadcast);
        return;
      }
      const size_t bytes = std::min(piece_bytes(), broadcast.bytes - broadcast.requested);
      const Status status = transfer({.direction = Direction::kGet,
                                      .peer = broadcast.root,
                                      .remote = broadcast.source + broadcast.requested,
                                      .local = broadcast.dest + broadcast.requested,
                                      .bytes = bytes,
                                      .immediate = true},
                                     *broadcast.counter);
      if (status == Status::kNotReady) return;
      if (status != Status::kOk) {
        // Either the job is ending, or the root's memory is invalid; return_or_abort() reports it or ends the
        // job.
        (void)return_or_abort(status, "gex_Coll_BroadcastNB");
      }
      broadcast.requested += bytes;
    }
  }

  // Returns false if there is no room now. Failures because the job is ending are ignored.
  static bool send_to(Rank peer, uint32_t handler, const Broadcast& broadcast) noexcept {
    const auto low = [](uint64_t word) {
      return static_cast<int32_t>(static_cast<uint32_t>(word));
    };
    const int32_t args[4] = {low(broadcast.number), low(broadcast.number >> 32),
                             low(broadcast.source), low(uint64_t{broadcast.source} >> 32)};
    return send({.peer = peer, .handler = handler, .nargs = 4, .args = args, .immediate = true}) !=
           Status::kNotReady;
  }

  static uint32_t make_progress(void* self) noexcept {
    auto& all = *static_cast<Broadcasts*>(self);
    // If the mutex is taken, its holder makes the steps.
    if (!all.mu_.try_lock()) return 0;
    for (Broadcast* each = all.first_; each != nullptr; each = each->next) {
      if (each->is_called && !each->is_done) all.step_locked(*each);
    }
    all.mu_.unlock();
    return 0;
  }

  Mutex mu_;
  uint64_t begun_ HYDRANT_GUARDED_BY(mu_) = 0;
  Broadcast* first_ HYDRANT_GUARDED_BY(mu_) = nullptr;
};

Broadcasts& broadcasts() noexcept {
  // Lives as long as the process, because threads may be using it at process exit.
  alignas(Broadcasts) static std::byte place[sizeof(Broadcasts)];
  static Broadcasts* const all = new (place) Broadcasts;
  return *all;
}

// ---- the event ----

Broadcast& broadcast_of(const hydrant_event& event) noexcept {
  return *static_cast<Broadcast*>(event.object);
}
bool event_is_done(hydrant_event& event) noexcept {
  return broadcasts().finish(broadcast_of(event));
}
bool event_is_ready(const hydrant_event& event) noexcept {
  return broadcasts().is_ready(broadcast_of(event));
}
void log_pending_event(const hydrant_event& event) {
  const Broadcast& broadcast = broadcast_of(event);
  if (broadcast.is_root) {
    log_warning("gex_Coll_BroadcastNB: %u of %u other ranks have the data of rank %u",
                broadcast.acknowledgements, job().size() - 1, broadcast.root);
  } else if (broadcast.source == 0) {
    log_warning("gex_Coll_BroadcastNB: rank %u, the root, has not called it", broadcast.root);
  } else {
    log_warning("gex_Coll_BroadcastNB: %zu of %zu bytes are requested; is rank %u polling?",
                broadcast.requested, broadcast.bytes, broadcast.root);
  }
}

// ---- messages ----

uint64_t word(int32_t low, int32_t high) noexcept {
  return uint64_t{static_cast<uint32_t>(high)} << 32 | static_cast<uint32_t>(low);
}
void on_broadcast(gex_Token_t token, int32_t low, int32_t high, int32_t source_low,
                  int32_t source_high) {
  if (!broadcasts().handle_source(word(low, high), word(source_low, source_high)))
    fatal("no memory for a broadcast of rank %u", token->from);
}
void on_broadcast_done(gex_Token_t, int32_t low, int32_t high, int32_t, int32_t) {
  broadcasts().handle_acknowledgement(word(low, high));
}

void check_call(gex_TM_t tm, gex_Rank_t root, const void* dest, const void* source,
                size_t bytes) noexcept {
  constexpr const char* kCall = "gex_Coll_BroadcastNB";
  if (!is_wired()) fatal("%s before a client is initialised", kCall);
  if (handler_depth != 0) fatal("%s in a handler", kCall);
  if (job().debug) check_no_locks(kCall);
  // The primordial team is the only one.
  if (tm != &hydrant_world)
    fatal("%s: %p is not a team of this job", kCall, static_cast<void*>(tm));
  if (root >= job().size())
    fatal("%s: the root rank %u does not exist; the job has %u ranks", kCall, root, job().size());
  if (bytes != 0 && (dest == nullptr || (root == job().rank() && source == nullptr)))
    fatal("%s: an address is NULL, and the length is %zu bytes", kCall, bytes);
}

}  // namespace

namespace hydrant {

void start_broadcasts() noexcept {
  constexpr gex_Flags_t kShortRequest = GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST;
  HandlerTable& table = job().handlers;
  table.add_internal(kBroadcastHandler, reinterpret_cast<gex_AM_Fn_t>(on_broadcast), 4,
                     kShortRequest, "broadcast");
  table.add_internal(kBroadcastDoneHandler, reinterpret_cast<gex_AM_Fn_t>(on_broadcast_done), 4,
                     kShortRequest, "broadcast done");
}

}  // namespace hydrant

extern "C" gex_Event_t gex_Coll_BroadcastNB(gex_TM_t tm, gex_Rank_t root, void* dest,
                                            const void* source, size_t bytes, gex_Flags_t) {
  const InCall in_call("gex_Coll_BroadcastNB");
  check_call(tm, root, dest, source, bytes);
  if (bytes == 0) return GEX_EVENT_INVALID;
  // Receivers access this memory by the firehoses that they have, so released memory must be settled first.
  settle_exports();
  if (root == job().rank() && dest != source) std::memmove(dest, source, bytes);
  if (job().size() == 1) return GEX_EVENT_INVALID;
  hydrant_event* event = take_event();
  Broadcast* broadcast =
      event != nullptr ? broadcasts().begin(root, dest, source, bytes, event->counter) : nullptr;
  if (broadcast == nullptr) fatal("gex_Coll_BroadcastNB: no memory for an event");
  event->is_done = event_is_done;
  event->is_ready = event_is_ready;
  event->log_pending = log_pending_event;
  event->object = broadcast;
  return event;
}
