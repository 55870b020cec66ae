// Implements the C functions of barrier.h and gex_Coll_Barrier*: checks the state, calls the barrier
// (named_barrier.cpp, team_barrier.cpp) and waits for it (wait.cpp).
#include <hydrant/gasnet/barrier.h>

#include "am/call/hsl.hpp"
#include "am/call/in_call.hpp"
#include "am/call/thread_state.hpp"
#include "am/job/job.hpp"
#include "am/progress/waiting.hpp"
#include "extended/barrier/barriers.hpp"
#include "extended/collective/collectives.hpp"
#include "extended/collective/steps/nested_calls.hpp"
#include "extended/event/event.hpp"
#include "extended/event/wait.hpp"
#include "firehose/base/log.hpp"

#include <algorithm>
#include <cstdio>

using namespace hydrant;

namespace {

void log_missing(const MissingRanks& missing, const char* call, const char* algorithm) noexcept {
  if (missing.empty()) return;  // all have arrived meanwhile
  // "3, 5 and 7": each rank takes at most ten digits and five other characters.
  char ranks[(MissingRanks::kMaxListed + 2) * 15] = "";
  size_t used = 0;
  const auto add = [&](const char* before, size_t number, const char* after) {
    const int written =
        snprintf(ranks + used, sizeof ranks - used, "%s%zu%s", before, number, after);
    if (written > 0) used = std::min(sizeof ranks - 1, used + static_cast<size_t>(written));
  };
  const auto listed = missing.listed();
  for (size_t i = 0; i < listed.size(); ++i)
    add(i == 0 ? "" : i + 1 == missing.count() ? " and " : ", ", listed[i], "");
  if (missing.count() > listed.size()) add(" and ", missing.count() - listed.size(), " more");
  log_warning("rank %u still waits in %s (%s): rank%s %s of %u %s not arrived", job().rank(), call,
              algorithm, missing.count() == 1 ? "" : "s", ranks, job().size(),
              missing.count() == 1 ? "has" : "have");
}

[[gnu::cold]] void check_call(const char* call) noexcept {
  if (the_barriers == nullptr) fatal("%s before a client is initialised", call);
  if (handler_depth != 0) refuse_in_handler(call);
  check_before_send(call);
}

inline Barriers& enter(const char* call) noexcept {
  if (the_barriers == nullptr || handler_depth != 0 || job().careful) [[unlikely]]
    check_call(call);
  return *the_barriers;
}

// ---- GASNet-1 ----

void notify(NamedBarrier& barrier, int id, int flags, const char* call) noexcept {
  if (barrier.is_open()) [[unlikely]] {
    fatal("%s: the previous notify had no wait or successful try", call);
  }
  barrier.notify(id, flags);
}

void check_open(const NamedBarrier& barrier, const char* call) noexcept {
  if (!barrier.is_open()) [[unlikely]]
    fatal("%s without a gasnet_barrier_notify before it", call);
}

struct NamedWait {
  NamedBarrier& barrier;
  int id;
  int flags;
  const char* call;
  bool matched = false;

  bool test() noexcept { return barrier.finish(id, flags, &matched); }
  static bool done(void* self) noexcept { return static_cast<NamedWait*>(self)->test(); }
  static bool ready(const void* self) noexcept {
    return static_cast<const NamedWait*>(self)->barrier.engine().ready();
  }
  static WaitTarget where(const void* self) noexcept {
    return static_cast<const NamedWait*>(self)->barrier.engine().wait_target();
  }
  static void log_pending(const void* self) noexcept {
    const auto& wait = *static_cast<const NamedWait*>(self);
    MissingRanks missing;
    wait.barrier.engine().find_missing(&missing);
    log_missing(missing, wait.call, wait.barrier.engine().name());
  }
};

int code_of(bool matched) noexcept { return matched ? GASNET_OK : GASNET_ERR_BARRIER_MISMATCH; }

int wait(NamedBarrier& barrier, int id, int flags, const char* call) noexcept {
  NamedWait wait{.barrier = barrier, .id = id, .flags = flags, .call = call};
  if (wait.test()) {
    poll_now_and_then();
  } else if (!spin_briefly([&]() noexcept { return wait.test(); },
                           [&]() noexcept { return NamedWait::where(&wait); })) {
    wait_blocking({.done = NamedWait::done,
                   .ready = NamedWait::ready,
                   .where = NamedWait::where,
                   .log_pending = NamedWait::log_pending,
                   .context = &wait});
  }
  return code_of(wait.matched);
}

// ---- GASNet-EX ----

struct TeamWait {
  TeamBarrier& barrier;
  uint64_t number;

  static bool done(void* self) noexcept {
    auto& wait = *static_cast<TeamWait*>(self);
    return wait.barrier.is_done(wait.number);
  }
  static bool ready(const void* self) noexcept {
    const auto& wait = *static_cast<const TeamWait*>(self);
    return wait.barrier.ready(wait.number);
  }
  static WaitTarget where(const void* self) noexcept {
    const auto& wait = *static_cast<const TeamWait*>(self);
    return wait.barrier.wait_target(wait.number);
  }
  static void log_pending(const void* self) noexcept {
    const auto& wait = *static_cast<const TeamWait*>(self);
    MissingRanks missing;
    wait.barrier.find_missing(wait.number, &missing);
    log_missing(missing, "gex_Coll_Barrier", the_barriers->named.engine().name());
  }
};

TeamWait wait_of(const hydrant_event& event) noexcept {
  return {.barrier = *static_cast<TeamBarrier*>(event.object), .number = event.number};
}
bool event_is_done(hydrant_event& event) noexcept {
  TeamWait wait = wait_of(event);
  return TeamWait::done(&wait);
}
bool event_is_ready(const hydrant_event& event) noexcept {
  const TeamWait wait = wait_of(event);
  return TeamWait::ready(&wait);
}
WaitTarget event_wait_target(const hydrant_event& event) noexcept {
  const TeamWait wait = wait_of(event);
  return TeamWait::where(&wait);
}
void log_pending_event(const hydrant_event& event) noexcept {
  const TeamWait wait = wait_of(event);
  TeamWait::log_pending(&wait);
}

void wait_for_team(TeamBarrier& barrier, uint64_t number) noexcept {
  if (barrier.is_done(number)) {
    poll_now_and_then();
    return;
  }
  TeamWait wait{.barrier = barrier, .number = number};
  if (spin_briefly([&]() noexcept { return barrier.is_done(number); },
                   [&]() noexcept { return TeamWait::where(&wait); }))
    return;
  wait_blocking({.done = TeamWait::done,
                 .ready = TeamWait::ready,
                 .where = TeamWait::where,
                 .log_pending = TeamWait::log_pending,
                 .context = &wait});
}

}  // namespace

extern "C" {

void gasnet_barrier_notify(int id, int flags) {
  const InCall in_call("gasnet_barrier_notify");
  constexpr const char* kCall = "gasnet_barrier_notify";
  notify(enter(kCall).named, id, flags, kCall);
}

int gasnet_barrier_wait(int id, int flags) {
  const InCall in_call("gasnet_barrier_wait");
  constexpr const char* kCall = "gasnet_barrier_wait";
  NamedBarrier& barrier = enter(kCall).named;
  check_open(barrier, kCall);
  return wait(barrier, id, flags, kCall);
}

int gasnet_barrier_try(int id, int flags) {
  const InCall in_call("gasnet_barrier_try");
  constexpr const char* kCall = "gasnet_barrier_try";
  NamedBarrier& barrier = enter(kCall).named;
  check_open(barrier, kCall);
  bool matched = false;
  if (barrier.finish(id, flags, &matched)) return code_of(matched);
  poll_all();
  return barrier.finish(id, flags, &matched) ? code_of(matched) : GASNET_ERR_NOT_READY;
}

int gasnet_barrier(int id, int flags) {
  const InCall in_call("gasnet_barrier");
  constexpr const char* kCall = "gasnet_barrier";
  NamedBarrier& barrier = enter(kCall).named;
  notify(barrier, id, flags, kCall);
  return wait(barrier, id, flags, kCall);
}

int gasnet_barrier_result(int* id) {
  const InCall in_call("gasnet_barrier_result", CallKind::kLocal);
  return enter("gasnet_barrier_result").named.result(id);
}

gex_Event_t gex_Coll_BarrierNB(gex_TM_t tm, gex_Flags_t) {
  const InCall in_call("gex_Coll_BarrierNB");
  if (tm != &hydrant_world) [[unlikely]]
    return start_team_barrier(tm, "gex_Coll_BarrierNB");
  TeamBarrier& barrier = *enter("gex_Coll_BarrierNB").team;
  const uint64_t number = barrier.begin();
  if (barrier.is_done(number)) return GEX_EVENT_INVALID;
  hydrant_event* event = take_event();
  if (event == nullptr) [[unlikely]] {
    wait_for_team(barrier, number);
    return GEX_EVENT_INVALID;
  }
  event->is_done = event_is_done;
  event->is_ready = event_is_ready;
  event->wait_target = event_wait_target;
  event->log_pending = log_pending_event;
  event->object = &barrier;
  event->number = number;
  return event;
}

void gex_Coll_BarrierBlocking(gex_TM_t tm, gex_Flags_t) {
  const InCall in_call("gex_Coll_BarrierBlocking");
  if (tm != &hydrant_world) [[unlikely]] {
    gex_Event_Wait(start_team_barrier(tm, "gex_Coll_BarrierBlocking"));
    return;
  }
  TeamBarrier& barrier = *enter("gex_Coll_BarrierBlocking").team;
  wait_for_team(barrier, barrier.begin());
}

}  // extern "C"
