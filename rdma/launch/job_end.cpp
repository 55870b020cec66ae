// Ends a job: evaluates how each rank ended, logs the cause, and signals the remaining ranks. Called by the
// loop in supervisor_loop.cpp.
#include "rdma/launch/job_end.hpp"

#include "firehose/base/config/config_grammar.hpp"
#include "firehose/base/errno_text.hpp"
#include "firehose/base/quiet_write.hpp"
#include "firehose/base/thread.hpp"
#include "firehose/base/uncancelled.hpp"
#include "rdma/exit/process_exit.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <poll.h>
#include <string>
#include <sys/syscall.h>
#include <unistd.h>

namespace hydrant::launch {
namespace {

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

void SupervisorOptions::say(const char* format, ...) const noexcept {
  char line[1024];
  const int start = std::snprintf(line, sizeof line, "%s: ", program);
  va_list arguments;
  va_start(arguments, format);
  const int text =
      std::vsnprintf(line + start, sizeof line - static_cast<size_t>(start) - 1, format, arguments);
  va_end(arguments);
  size_t bytes = static_cast<size_t>(start + std::max(text, 0));
  bytes = std::min(bytes, sizeof line - 2);
  line[bytes++] = '\n';
  // A reader that no longer reads must not keep the job alive.
  constexpr int kPatienceMs = 100;
  pollfd out{STDERR_FILENO, POLLOUT, 0};
  if (uncancelled::poll(&out, 1, kPatienceMs) == 1) (void)write_quietly(STDERR_FILENO, line, bytes);
}

JobEnd::JobEnd(const SupervisorOptions& options, BootstrapServer& server,
               std::vector<SupervisedRank>& ranks) noexcept
    : options_(options), server_(server), ranks_(ranks), end_(exit_times(options.size)) {
  if (options.timeout_ns != 0) job_deadline_ns_ = now_ns() + options.timeout_ns;
}

void JobEnd::exited(Rank rank, pid_t pid, int code) noexcept {
  SupervisedRank& state = ranks_[rank];
  if (options_.verbose)
    options_.say("rank %u (pid %d) exited with code %d", rank, static_cast<int>(pid), code);
  if (state.start_failed) return;
  if (!state.left && code == 0 && !server_.joined(rank)) {
    never_joined_ = rank;
    never_joined_pid_ = pid;
    return check_joined();
  }
  const bool was_clean = end_.code() == 0;
  const bool begins = end_.leave(rank, code, now_ns());
  if (was_clean && end_.code() != 0) {
    options_.say("rank %u (pid %d) exited with code %d; the job is ended", rank,
                 static_cast<int>(pid), code);
  }
  if (begins) begin_end();
}

// A program that never joins does not use this library, and its exit with 0 ends no other rank. But if other
// ranks have joined, they would wait for it for ever.
void JobEnd::check_joined() noexcept {
  if (never_joined_ == kNoRank || server_.joined_count() == 0 || end_.has_begun()) return;
  end_.leave(never_joined_, 1, now_ns());
  options_.say(
      "rank %u (pid %d) exited with code 0 and never joined the job, as others did; the job is "
      "ended",
      never_joined_, static_cast<int>(never_joined_pid_));
  begin_end();
}

void JobEnd::died(Rank rank, pid_t pid, int signal, bool dumped) noexcept {
  const SupervisedRank& state = ranks_[rank];
  const bool sent_here =
      (state.kill_sent && signal == SIGKILL) || (state.quit_sent && signal == SIGQUIT) ||
      (end_.cause() == JobTermination::Cause::kRequest && signal == end_.signal());
  if (sent_here) {
    if (options_.verbose) {
      options_.say("rank %u (pid %d) was ended with signal %d", rank, static_cast<int>(pid),
                   signal);
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
    options_.say("rank %u (pid %d) was killed by signal %d (%s%s)%s; the job is ended%s", rank,
                 static_cast<int>(pid), signal, signal_text(signal), dumped ? ", core dumped" : "",
                 memory, hint ? " (GASNET_BACKTRACE=1 shows where it was)" : "");
  }
  if (begins) begin_end();
}

void JobEnd::left(Rank rank, int code, ExitReason how) noexcept {
  if (options_.verbose) options_.say("rank %u leaves with code %d", rank, code);
  const bool was_clean = end_.code() == 0;
  const bool begins = end_.leave(rank, code, now_ns());
  if (was_clean && end_.code() != 0) log_rank_exit(rank, code, how);
  if (begins) begin_end();
}

void JobEnd::log_rank_exit(Rank rank, int code, ExitReason how) noexcept {
  const int pid = static_cast<int>(ranks_[rank].pid);
  switch (how) {
    case ExitReason::kGasnetExit:
      return options_.say("rank %u (pid %d) called gasnet_exit(%d); the job is ended", rank, pid,
                          code);
    case ExitReason::kExit:
      return options_.say("rank %u (pid %d) exited with code %d; the job is ended", rank, pid,
                          code);
    case ExitReason::kAbandoned: return;  // the rank has logged the reason
  }
}

void JobEnd::start_failed(Rank rank, int error) noexcept {
  ranks_[rank].start_failed = true;
  const int code = error == ENOENT ? kNotFoundCode : kNotExecutableCode;
  if (!end_.leave(rank, code, now_ns())) return;
  options_.say("cannot start rank %u: %s", rank, error > 0 ? errno_text(error) : "unknown error");
  begin_end();
  end_.kill_now(now_ns());
}

void JobEnd::begin_end() noexcept {
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

void JobEnd::pass_on(int signal, bool children_have_it) noexcept {
  if (!children_have_it) {
    for (const SupervisedRank& state : ranks_) state.send_signal(signal);
  }
  if (!ends_a_job(signal)) return;
  if (end_.ask(signal, now_ns())) {
    options_.say("received signal %d (%s); the job is ended", signal, signal_text(signal));
    begin_end();
  } else if (end_.cause() == JobTermination::Cause::kRequest) {
    end_.kill_now(now_ns());  // a second request kills at once
  }
}

void SupervisedRank::send_signal(int signal) const noexcept {
  if (pid != 0) kill(pid, signal);
  if (below >= 0) syscall(SYS_pidfd_send_signal, below, signal, nullptr, 0);
}

bool SupervisedRank::is_on_its_way() const noexcept {
  if (process_is_ending(pid)) return true;
  if (below < 0) return false;
  pollfd descendant{below, POLLIN, 0};
  return uncancelled::poll(&descendant, 1, 0) == 0 && process_is_ending(below_pid);
}

uint64_t JobEnd::next_ns() const noexcept {
  return std::min({end_.next_ns(), job_deadline_ns_, give_up_ns_});
}

void JobEnd::keep_time(uint64_t now) noexcept {
  if (now >= job_deadline_ns_) {
    job_deadline_ns_ = UINT64_MAX;
    if (end_.time_out(now)) {
      options_.say("the job has run for %.3g s, its time limit; it is ended",
                   static_cast<double>(options_.timeout_ns) / 1e9);
      begin_end();
    }
  }
  end_remaining(end_.step(now));
}

void JobEnd::end_remaining(JobTermination::Step step) noexcept {
  if (step == JobTermination::Step::kNothing) return;
  const bool kill_all = step == JobTermination::Step::kKill;
  Rank first = kNoRank;  // the first rank that did not follow
  Rank stuck = kNoRank;  // a rank that left but still runs
  uint32_t late = 0;
  for (Rank rank = 0; rank < ranks_.size(); ++rank) {
    SupervisedRank& state = ranks_[rank];
    if (state.pid == 0) continue;
    if (!kill_all && state.left) continue;  // about to end by itself
    if (state.is_on_its_way()) continue;
    if (state.left) {
      stuck = rank;
    } else if (!state.quit_sent && late++ == 0) {
      first = rank;
    }
    (kill_all ? state.kill_sent : state.quit_sent) = true;
    state.send_signal(kill_all ? SIGKILL : SIGQUIT);
    if (options_.verbose) {
      options_.say("rank %u (pid %d) still runs and gets %s", rank, static_cast<int>(state.pid),
                   kill_all ? "SIGKILL" : "SIGQUIT");
    }
  }
  // A rank that exits with 0 should have waited for the others: names one whose work may be lost.
  if (late > 0 && end_.is_clean_exit() && !is_end_logged_) {
    is_end_logged_ = true;
    options_.say(
        "rank %u exited with code 0, and %u of the others did not follow (rank %u%s); they are "
        "killed",
        end_.rank(), late, first, late > 1 ? " and others" : "");
  }
  if (stuck != kNoRank && end_.is_clean_exit() && !is_end_logged_ && can_see_process_exits()) {
    is_end_logged_ = true;
    options_.say(
        "rank %u (pid %d) has left the job, as others have, but still runs: it may be in an exit "
        "handler; it is killed",
        stuck, static_cast<int>(ranks_[stuck].pid));
  }
  if (!kill_all) return;
  give_up_ns_ = now_ns() + kGiveUpNs;
  last_look_ns_ = now_ns() + kFreeingNs;
}

void JobEnd::log_missing_ranks() noexcept {
  if (!end_.is_clean_exit() || is_end_logged_) return;
  uint32_t count = 0;
  Rank first = kNoRank;
  for (Rank rank = 0; rank < ranks_.size(); ++rank) {
    if (ranks_[rank].gave_up && count++ == 0) first = rank;
  }
  if (count == 0) return;
  options_.say(
      "rank %u exited with code 0 while %u of the others waited for messages, barriers or "
      "operations (rank %u%s); the job is ended",
      end_.rank(), count, first, count > 1 ? " and others" : "");
}

bool JobEnd::must_give_up(uint64_t now) noexcept {
  if (now < give_up_ns_) return false;
  uint32_t running = 0;
  uint32_t freeing = 0;
  Rank first = kNoRank;
  for (Rank rank = 0; rank < ranks_.size(); ++rank) {
    const SupervisedRank& state = ranks_[rank];
    if (state.pid == 0) continue;
    if (running++ == 0) first = rank;
    if (state.is_on_its_way()) ++freeing;
  }
  if (freeing > 0 && now < last_look_ns_) {
    give_up_ns_ = now + kLookAgainNs;
    return false;
  }
  char reason[80] = "";
  if (freeing > 0)
    std::snprintf(reason, sizeof reason, ", and has been freeing memory for %llu s",
                  static_cast<unsigned long long>(kFreeingNs / 1'000'000'000));
  options_.say("cannot end %u %s (rank %u, pid %d%s): the kernel does not release %s%s", running,
               running == 1 ? "process" : "processes", first,
               first != kNoRank ? static_cast<int>(ranks_[first].pid) : 0,
               running > 1 ? " and others" : "", running == 1 ? "it" : "them", reason);
  return true;
}

}  // namespace hydrant::launch
