// Ends a job: evaluates how each rank ended, logs the cause, and signals the remaining ranks. Called by the
// loop in supervisor_loop.cpp; job_termination.cpp decides the times and the exit code.
#include "firehose/base/config/config_grammar.hpp"
#include "firehose/base/errno_text.hpp"
#include "firehose/base/thread.hpp"
#include "firehose/base/uncancelled.hpp"
#include "rdma/bootstrap/system_calls.hpp"
#include "rdma/exit/process_exit.hpp"
#include "rdma/launch/supervisor.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <poll.h>
#include <string>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace hydrant::launch {
namespace {

constexpr uint64_t kGiveUpNs =
    10'000'000'000;  // after SIGKILL, which only the kernel can delay so long
// A killed process may still free its memory, 1 TiB in some minutes: the interval of checks, and their total.
constexpr uint64_t kLookAgainNs = 1'000'000'000;
constexpr uint64_t kFreeingNs = 600'000'000'000;
constexpr int kNotFoundCode = 127;  // convention of shells
constexpr int kNotExecutableCode = 126;

const char* signal_text(int signal) noexcept {
  const char* text = sigdescr_np(signal);
  return text != nullptr ? text : "unknown signal";
}

// Signals of faults, for which a backtrace helps.
bool is_fault(int signal) noexcept {
  return signal == SIGSEGV || signal == SIGBUS || signal == SIGFPE || signal == SIGILL;
}

// True if ranks print no backtrace, but would with GASNET_BACKTRACE=1.
bool hides_backtraces() noexcept {
  const char* setting = std::getenv("GASNET_BACKTRACE");
  uint64_t is_wanted = 0;
  if (setting != nullptr) (void)parse_boolean(setting, &is_wanted);
  return is_wanted == 0 && std::getenv("GASNET_NO_CATCH_SIGNAL") == nullptr;
}

bool ends_a_job(int signal) noexcept { return signal != SIGUSR1 && signal != SIGUSR2; }

}  // namespace

void Supervisor::reap() noexcept {
  std::vector<siginfo_t> seen;
  bool failed = false;
  int error = 0;
  for (;;) {
    siginfo_t info{};
    error = attempt([&] {
      return uncancelled::waitid(P_ALL, 0, &info, WEXITED | WSTOPPED | WCONTINUED | WNOHANG);
    });
    if (error != 0 || info.si_pid == 0) break;
    failed = failed || (info.si_code == CLD_EXITED && info.si_status != 0);
    seen.push_back(info);
  }
  if (failed) collect_dying(&seen);
  settle(std::move(seen));
  // Without a child (ECHILD) all ranks have been settled, or something else in this process has reaped one.
  if (error != 0 && running_ > 0) lose("waitid()", error);
}

// A killed rank closes its sockets first. Another rank may see that and exit before the kernel reports the
// death that caused it. So before the first failure is evaluated, this waits for ranks that are already
// dying, which is short.
void Supervisor::collect_dying(std::vector<siginfo_t>* seen) noexcept {
  if (end_.has_begun()) return;
  constexpr uint64_t kPatienceNs = 100'000'000;
  const uint64_t deadline = now_ns() + kPatienceNs;
  for (const RankState& state : ranks_) {
    if (state.pid == 0 || state.left) continue;
    bool is_child = true;
    while (is_child && process_is_ending(state.pid)) {
      siginfo_t info{};
      is_child =
          uncancelled::waitid(P_PID, static_cast<id_t>(state.pid), &info, WEXITED | WNOHANG) == 0;
      if (is_child && info.si_pid != 0) seen->push_back(info);
      if (info.si_pid != 0 || now_ns() >= deadline) break;
      pause_briefly();
    }
  }
}

// Handles deaths by a signal before exits, because an exit may be a consequence of a death.
void Supervisor::settle(std::vector<siginfo_t> seen) noexcept {
  std::stable_partition(seen.begin(), seen.end(), [](const siginfo_t& info) {
    return info.si_code == CLD_KILLED || info.si_code == CLD_DUMPED;
  });
  for (const siginfo_t& info : seen) {
    const auto known = by_pid_.find(info.si_pid);
    if (known == by_pid_.end())
      continue;  // a child that was forked before this became a supervisor
    ended(known->second, info);
  }
}

void Supervisor::ended(Rank rank, const siginfo_t& info) noexcept {
  RankState& state = ranks_[rank];
  if (state.stopped_ns != 0) --stopped_;
  state.stopped_ns = 0;
  state.is_stop_logged = false;
  if (info.si_code == CLD_STOPPED) {
    state.stopped_ns = now_ns();
    ++stopped_;
    return;
  }
  if (info.si_code == CLD_CONTINUED) return;
  read_words(rank);  // its last messages show whether it left
  const pid_t pid = state.pid;
  by_pid_.erase(pid);
  state.pid = 0;
  --running_;
  server_.forget(rank);
  drop(&state.calls);
  drop(&state.events);
  if (info.si_code == CLD_EXITED) {
    exited(rank, pid, info.si_status);
  } else {
    died(rank, pid, info.si_status, info.si_code == CLD_DUMPED);
  }
}

void Supervisor::exited(Rank rank, pid_t pid, int code) noexcept {
  RankState& state = ranks_[rank];
  if (options_.verbose)
    say("rank %u (pid %d) exited with code %d", rank, static_cast<int>(pid), code);
  if (state.start_failed) return;
  if (!state.left && code == 0 && !server_.joined(rank)) {
    never_joined_ = rank;
    never_joined_pid_ = pid;
    return check_joined();
  }
  const bool was_clean = end_.code() == 0;
  const bool begins = end_.leave(rank, code, now_ns());
  if (was_clean && end_.code() != 0) {
    say("rank %u (pid %d) exited with code %d; the job is ended", rank, static_cast<int>(pid),
        code);
  }
  if (begins) begin_end();
}

// A program that never joins does not use this library, and its exit with 0 ends no other rank. But if other
// ranks have joined, they would wait for it for ever.
void Supervisor::check_joined() noexcept {
  if (never_joined_ == kNoRank || server_.joined_count() == 0 || end_.has_begun()) return;
  end_.leave(never_joined_, 1, now_ns());
  say("rank %u (pid %d) exited with code 0 and never joined the job, as others did; the job is "
      "ended",
      never_joined_, static_cast<int>(never_joined_pid_));
  begin_end();
}

void Supervisor::died(Rank rank, pid_t pid, int signal, bool dumped) noexcept {
  const RankState& state = ranks_[rank];
  const bool sent_here =
      (state.kill_sent && signal == SIGKILL) || (state.quit_sent && signal == SIGQUIT) ||
      (end_.cause() == JobTermination::Cause::kRequest && signal == end_.signal());
  if (sent_here) {
    if (options_.verbose) {
      say("rank %u (pid %d) was ended with signal %d", rank, static_cast<int>(pid), signal);
    }
    if (end_.cause() == JobTermination::Cause::kRequest) end_.die(rank, end_.signal(), now_ns());
    return;
  }
  const bool first = end_.code() == 0;
  const bool begins = end_.die(rank, signal, now_ns());
  if (first || options_.verbose) {
    char memory[kOomText] = "";
    if (signal == SIGKILL) (void)describe_oom_kills(oom_before_, memory, sizeof memory);
    const bool hint = is_fault(signal) && server_.joined(rank) && hides_backtraces();
    say("rank %u (pid %d) was killed by signal %d (%s%s)%s; the job is ended%s", rank,
        static_cast<int>(pid), signal, signal_text(signal), dumped ? ", core dumped" : "", memory,
        hint ? " (GASNET_BACKTRACE=1 shows where it was)" : "");
  }
  if (begins) begin_end();
}

void Supervisor::left(Rank rank, int code, ExitReason how) noexcept {
  ranks_[rank].left = true;
  ranks_[rank].gave_up = how == ExitReason::kAbandoned;
  if (code != 0) {
    std::vector<siginfo_t> dying;
    collect_dying(&dying);
    settle(std::move(dying));
  }
  if (options_.verbose) say("rank %u leaves with code %d", rank, code);
  const bool was_clean = end_.code() == 0;
  const bool begins = end_.leave(rank, code, now_ns());
  if (was_clean && end_.code() != 0) log_rank_exit(rank, code, how);
  if (begins) begin_end();
}

void Supervisor::log_rank_exit(Rank rank, int code, ExitReason how) noexcept {
  const int pid = static_cast<int>(ranks_[rank].pid);
  switch (how) {
    case ExitReason::kGasnetExit:
      return say("rank %u (pid %d) called gasnet_exit(%d); the job is ended", rank, pid, code);
    case ExitReason::kExit:
      return say("rank %u (pid %d) exited with code %d; the job is ended", rank, pid, code);
    case ExitReason::kAbandoned: return;  // the rank has logged the reason
  }
}

void Supervisor::start_failed(Rank rank, int error) noexcept {
  ranks_[rank].start_failed = true;
  const int code = error == ENOENT ? kNotFoundCode : kNotExecutableCode;
  if (!end_.leave(rank, code, now_ns())) return;
  say("cannot start rank %u: %s", rank, error > 0 ? errno_text(error) : "unknown error");
  begin_end();
  end_.kill_now(now_ns());
}

void Supervisor::begin_end() noexcept {
  const Rank first = end_.rank();
  const bool death = end_.cause() == JobTermination::Cause::kDeath;
  std::string reason = "the job is being ended";
  if (death) {
    reason = "rank " + std::to_string(first) + " was killed by signal " +
             std::to_string(end_.signal()) + " (" + signal_text(end_.signal()) + ")";
  } else if (end_.cause() == JobTermination::Cause::kExit) {
    reason = "rank " + std::to_string(first) + " has ended the job with exit code " +
             std::to_string(end_.code());
  }
  server_.end(reason);
  const Event event{.kind = death ? EventKind::kDeath : EventKind::kExit,
                    .rank = first,
                    .code = end_.code(),
                    .signal = death ? end_.signal() : 0};
  // A request's signal is forwarded to the ranks, so they need no message.
  if (end_.cause() == JobTermination::Cause::kRequest) return;
  for (Rank rank = 0; rank < ranks_.size(); ++rank) {
    // The socket always has room for one message: none is lost.
    if (rank != first && ranks_[rank].events >= 0)
      send_message(ranks_[rank].events, bytes_of(event));
  }
}

void Supervisor::pass_on(int signal, bool children_have_it) noexcept {
  if (!children_have_it) {
    for (RankState& state : ranks_) send_signal(state, signal);
  }
  if (!ends_a_job(signal)) return;
  if (end_.ask(signal, now_ns())) {
    say("received signal %d (%s); the job is ended", signal, signal_text(signal));
    begin_end();
  } else if (end_.cause() == JobTermination::Cause::kRequest) {
    end_.kill_now(now_ns());  // a second request kills at once
  }
}

void Supervisor::send_signal(RankState& state, int signal) noexcept {
  if (state.pid != 0) kill(state.pid, signal);
  if (state.below >= 0) syscall(SYS_pidfd_send_signal, state.below, signal, nullptr, 0);
}

void Supervisor::abandon() noexcept {
  for (RankState& state : ranks_) send_signal(state, SIGKILL);
  const uint64_t deadline = now_ns() + kGiveUpNs;
  for (RankState& state : ranks_) {
    while (state.pid != 0 && uncancelled::waitpid(state.pid, nullptr, WNOHANG) == 0 &&
           now_ns() < deadline) {
      pause_briefly();
    }
    state.pid = 0;
  }
  running_ = 0;
}

// True if the process is exiting and frees its memory; no signal can change or speed that up.
bool Supervisor::is_on_its_way(const RankState& state) noexcept {
  if (process_is_ending(state.pid)) return true;
  if (state.below < 0) return false;
  pollfd below{state.below, POLLIN, 0};
  return uncancelled::poll(&below, 1, 0) == 0 && process_is_ending(state.below_pid);
}

void Supervisor::end_remaining(JobTermination::Step step) noexcept {
  if (step == JobTermination::Step::kNothing) return;
  const bool kill_all = step == JobTermination::Step::kKill;
  Rank first = kNoRank;  // the first rank that did not follow
  Rank stuck = kNoRank;  // a rank that left but still runs
  uint32_t late = 0;
  for (Rank rank = 0; rank < ranks_.size(); ++rank) {
    RankState& state = ranks_[rank];
    if (state.pid == 0) continue;
    if (!kill_all && state.left) continue;  // about to end by itself
    if (is_on_its_way(state)) continue;
    if (state.left) {
      stuck = rank;
    } else if (!state.quit_sent && late++ == 0) {
      first = rank;
    }
    (kill_all ? state.kill_sent : state.quit_sent) = true;
    send_signal(state, kill_all ? SIGKILL : SIGQUIT);
    if (options_.verbose) {
      say("rank %u (pid %d) still runs and gets %s", rank, static_cast<int>(state.pid),
          kill_all ? "SIGKILL" : "SIGQUIT");
    }
  }
  // A rank that exits with 0 should have waited for the others: names one whose work may be lost.
  if (late > 0 && end_.is_clean_exit() && !is_end_logged_) {
    is_end_logged_ = true;
    say("rank %u exited with code 0, and %u of the others did not follow (rank %u%s); they are "
        "killed",
        end_.rank(), late, first, late > 1 ? " and others" : "");
  }
  if (stuck != kNoRank && end_.is_clean_exit() && !is_end_logged_ && can_see_process_exits()) {
    is_end_logged_ = true;
    say("rank %u (pid %d) has left the job, as others have, but still runs: it may be in an exit "
        "handler; it is killed",
        stuck, static_cast<int>(ranks_[stuck].pid));
  }
  if (!kill_all) return;
  give_up_ns_ = now_ns() + kGiveUpNs;
  last_look_ns_ = now_ns() + kFreeingNs;
}

// Logs how many ranks waited for a rank that exited with 0: such ranks end by themselves.
void Supervisor::log_missing_ranks() noexcept {
  if (!end_.is_clean_exit() || is_end_logged_) return;
  uint32_t count = 0;
  Rank first = kNoRank;
  for (Rank rank = 0; rank < ranks_.size(); ++rank) {
    if (ranks_[rank].gave_up && count++ == 0) first = rank;
  }
  if (count == 0) return;
  say("rank %u exited with code 0 while %u of the others waited for messages, barriers or "
      "operations "
      "(rank %u%s); the job is ended",
      end_.rank(), count, first, count > 1 ? " and others" : "");
}

bool Supervisor::must_give_up(uint64_t now) noexcept {
  uint32_t freeing = 0;
  Rank first = kNoRank;
  for (Rank rank = 0; rank < ranks_.size(); ++rank) {
    const RankState& state = ranks_[rank];
    if (state.pid == 0) continue;
    if (first == kNoRank) first = rank;
    if (is_on_its_way(state)) ++freeing;
  }
  if (freeing > 0 && now < last_look_ns_) {
    give_up_ns_ = now + kLookAgainNs;
    return false;
  }
  char reason[80] = "";
  if (freeing > 0)
    std::snprintf(reason, sizeof reason, ", and has been freeing memory for %llu s",
                  static_cast<unsigned long long>(kFreeingNs / 1'000'000'000));
  say("cannot end %u %s (rank %u, pid %d%s): the kernel does not release %s%s", running_,
      running_ == 1 ? "process" : "processes", first,
      first != kNoRank ? static_cast<int>(ranks_[first].pid) : 0, running_ > 1 ? " and others" : "",
      running_ == 1 ? "it" : "them", reason);
  return true;
}

void Supervisor::warn_stopped(uint64_t now) noexcept {
  if (stopped_ == 0 || stop_warn_ns_ == 0) return;
  for (Rank rank = 0; rank < ranks_.size(); ++rank) {
    RankState& state = ranks_[rank];
    if (state.stopped_ns == 0 || state.is_stop_logged || now < state.stopped_ns + stop_warn_ns_)
      continue;
    state.is_stop_logged = true;
    say("rank %u (pid %d) has been stopped for %.3g s; the job waits for it (kill -CONT %d goes "
        "on)",
        rank, static_cast<int>(state.pid), static_cast<double>(now - state.stopped_ns) / 1e9,
        static_cast<int>(state.pid));
  }
}

}  // namespace hydrant::launch
