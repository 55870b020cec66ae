// Ending: what is made of every way in which a rank can end, and how the others are ended.
#include "firehose/base/errno_text.hpp"
#include "firehose/base/thread.hpp"
#include "rdma/launch/supervisor.hpp"
#include "rdma/process_end.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace hydrant::launch {
namespace {

constexpr uint64_t kGiveUpNs =
    10'000'000'000;                 // after SIGKILL: only the kernel can hold a process so long
constexpr int kNotFoundCode = 127;  // as shells have it
constexpr int kNotExecutableCode = 126;

const char* signal_text(int signal) noexcept {
  const char* text = sigdescr_np(signal);
  return text != nullptr ? text : "unknown signal";
}

bool ends_a_job(int signal) noexcept { return signal != SIGUSR1 && signal != SIGUSR2; }

}  // namespace

void Supervisor::reap() noexcept {
  std::vector<siginfo_t> seen;
  bool failed = false;
  for (;;) {
    siginfo_t info{};
    if (waitid(P_ALL, 0, &info, WEXITED | WSTOPPED | WCONTINUED | WNOHANG) != 0) {
      if (errno == EINTR) continue;
      break;
    }
    if (info.si_pid == 0) break;
    failed = failed || (info.si_code == CLD_EXITED && info.si_status != 0);
    seen.push_back(info);
  }
  if (failed) collect_dying(&seen);
  settle(std::move(seen));
}

// A rank that is killed closes its sockets first, and another may see that, give up and exit before the
// kernel tells of the death that caused it all. So before a failure is taken for the first, those that are
// already dying are waited for: that takes them no time of their own.
void Supervisor::collect_dying(std::vector<siginfo_t>* seen) noexcept {
  if (end_.begun()) return;
  constexpr uint64_t kPatienceNs = 100'000'000;
  const uint64_t deadline = now_ns() + kPatienceNs;
  for (const RankState& state : ranks_) {
    if (state.pid == 0 || state.left) continue;
    bool there = true;
    while (there && process_is_ending(state.pid)) {
      siginfo_t info{};
      there = waitid(P_PID, static_cast<id_t>(state.pid), &info, WEXITED | WNOHANG) == 0;
      if (there && info.si_pid != 0) seen->push_back(info);
      if (info.si_pid != 0 || now_ns() >= deadline) break;
      const timespec pause{0, 1'000'000};
      nanosleep(&pause, nullptr);
    }
  }
}

// Deaths by a signal come before exits: the exits of the others may be their consequence.
void Supervisor::settle(std::vector<siginfo_t> seen) noexcept {
  std::stable_partition(seen.begin(), seen.end(), [](const siginfo_t& info) {
    return info.si_code == CLD_KILLED || info.si_code == CLD_DUMPED;
  });
  for (const siginfo_t& info : seen) {
    const auto known = by_pid_.find(info.si_pid);
    if (known == by_pid_.end()) continue;  // a child from before this was a supervisor
    ended(known->second, info);
  }
}

void Supervisor::ended(Rank rank, const siginfo_t& info) noexcept {
  RankState& state = ranks_[rank];
  if (state.stopped_ns != 0) --stopped_;
  state.stopped_ns = 0;
  state.stop_said = false;
  if (info.si_code == CLD_STOPPED) {
    state.stopped_ns = now_ns();
    ++stopped_;
    return;
  }
  if (info.si_code == CLD_CONTINUED) return;
  read_words(rank);  // its last words say whether it left
  const pid_t pid = state.pid;
  by_pid_.erase(pid);
  state.pid = 0;
  --running_;
  desk_.forget(rank);
  drop(&state.calls);
  drop(&state.words);
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
  if (!state.left && code == 0 && !desk_.joined(rank)) {
    never_joined_ = rank;
    never_joined_pid_ = pid;
    return check_joined();
  }
  if (!end_.leave(rank, code, now_ns())) return;
  if (code != 0) {
    say("rank %u (pid %d) exited with code %d; the job is ended", rank, static_cast<int>(pid),
        code);
  }
  begin_end();
}

// A program that never joins is none of ours, and its exit with 0 ends nobody else. But a rank that is gone
// would be missed for ever by those that have joined.
void Supervisor::check_joined() noexcept {
  if (never_joined_ == kNoRank || desk_.joined_count() == 0 || end_.begun()) return;
  end_.leave(never_joined_, 1, now_ns());
  say("rank %u (pid %d) exited with code 0 and never joined the job, as others did; the job is "
      "ended",
      never_joined_, static_cast<int>(never_joined_pid_));
  begin_end();
}

void Supervisor::died(Rank rank, pid_t pid, int signal, bool dumped) noexcept {
  const RankState& state = ranks_[rank];
  const bool sent_here = (state.kill_sent && signal == SIGKILL) ||
                         (state.quit_sent && signal == SIGQUIT) ||
                         (end_.cause() == JobEnd::Cause::kRequest && signal == end_.signal());
  if (sent_here) {
    if (options_.verbose) {
      say("rank %u (pid %d) was ended with signal %d", rank, static_cast<int>(pid), signal);
    }
    if (end_.cause() == JobEnd::Cause::kRequest) end_.die(rank, end_.signal(), now_ns());
    return;
  }
  const bool first = end_.code() == 0;
  const bool begins = end_.die(rank, signal, now_ns());
  if (first || options_.verbose) {
    say("rank %u (pid %d) was killed by signal %d (%s%s); the job is ended", rank,
        static_cast<int>(pid), signal, signal_text(signal), dumped ? ", core dumped" : "");
  }
  if (begins) begin_end();
}

void Supervisor::left(Rank rank, int code) noexcept {
  ranks_[rank].left = true;
  if (code != 0) {
    std::vector<siginfo_t> dying;
    collect_dying(&dying);
    settle(std::move(dying));
  }
  if (options_.verbose) say("rank %u leaves with code %d", rank, code);
  if (end_.leave(rank, code, now_ns())) begin_end();
}

void Supervisor::start_failed(Rank rank, int error) noexcept {
  ranks_[rank].start_failed = true;
  const int code = error == ENOENT ? kNotFoundCode : kNotExecutableCode;
  if (!end_.leave(rank, code, now_ns())) return;
  say("rank %u cannot be started: %s", rank, errno_text(error));
  begin_end();
  end_.kill_now(now_ns());
}

void Supervisor::begin_end() noexcept {
  const Rank who = end_.rank();
  const bool death = end_.cause() == JobEnd::Cause::kDeath;
  std::string reason = "the job is being ended";
  if (death) {
    reason = "rank " + std::to_string(who) + " was killed by signal " +
             std::to_string(end_.signal()) + " (" + signal_text(end_.signal()) + ")";
  } else if (end_.cause() == JobEnd::Cause::kExit) {
    reason = "rank " + std::to_string(who) + " has ended the job with exit code " +
             std::to_string(end_.code());
  }
  desk_.end(reason);
  const Word word{.kind = death ? WordKind::kDeath : WordKind::kExit,
                  .rank = who,
                  .code = end_.code(),
                  .signal = death ? end_.signal() : 0};
  // The signal itself tells the ranks of a request.
  if (end_.cause() == JobEnd::Cause::kRequest) return;
  for (Rank rank = 0; rank < ranks_.size(); ++rank) {
    // An empty socket has room for one word: nothing is lost here.
    if (rank != who && ranks_[rank].words >= 0) send_message(ranks_[rank].words, bytes_of(word));
  }
}

void Supervisor::pass_on(int signal, bool children_have_it) noexcept {
  if (!children_have_it) {
    for (RankState& state : ranks_) send_signal(state, signal);
  }
  if (!ends_a_job(signal)) return;
  if (end_.ask(signal, now_ns())) {
    say("got signal %d (%s); the job is ended", signal, signal_text(signal));
    begin_end();
  } else if (end_.cause() == JobEnd::Cause::kRequest) {
    end_.kill_now(now_ns());  // whoever asks twice means it
  }
}

void Supervisor::send_signal(RankState& state, int signal) noexcept {
  if (state.pid != 0) kill(state.pid, signal);
  if (state.below >= 0) syscall(SYS_pidfd_send_signal, state.below, signal, nullptr, 0);
}

void Supervisor::end_remaining(JobEnd::Step step) noexcept {
  if (step == JobEnd::Step::kNothing) return;
  const bool kill_all = step == JobEnd::Step::kKill;
  Rank first = kNoRank;
  uint32_t late = 0;
  for (Rank rank = 0; rank < ranks_.size(); ++rank) {
    RankState& state = ranks_[rank];
    if (state.pid == 0) continue;
    if (!kill_all && state.left) continue;  // it is on its way
    if (!state.quit_sent && late++ == 0) first = rank;
    (kill_all ? state.kill_sent : state.quit_sent) = true;
    send_signal(state, kill_all ? SIGKILL : SIGQUIT);
    if (options_.verbose) {
      say("rank %u (pid %d) still runs and gets %s", rank, static_cast<int>(state.pid),
          kill_all ? "SIGKILL" : "SIGQUIT");
    }
  }
  // Whoever ends with 0 should have waited for the others: say whose work may be lost.
  if (late > 0 && end_.peaceful()) {
    say("rank %u exited with code 0, and %u of the others did not follow (rank %u%s); they are "
        "ended",
        end_.rank(), late, first, late > 1 ? " and others" : "");
  }
  if (kill_all) give_up_ns_ = now_ns() + kGiveUpNs;
}

void Supervisor::warn_stopped(uint64_t now) noexcept {
  if (stopped_ == 0 || stop_warn_ns_ == 0) return;
  for (Rank rank = 0; rank < ranks_.size(); ++rank) {
    RankState& state = ranks_[rank];
    if (state.stopped_ns == 0 || state.stop_said || now < state.stopped_ns + stop_warn_ns_)
      continue;
    state.stop_said = true;
    say("rank %u (pid %d) has been stopped for %.3g s; the job waits for it (kill -CONT %d goes "
        "on)",
        rank, static_cast<int>(state.pid), static_cast<double>(now - state.stopped_ns) / 1e9,
        static_cast<int>(state.pid));
  }
}

}  // namespace hydrant::launch
