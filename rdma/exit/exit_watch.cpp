// Runs a rank's control thread, which learns that the job ends, and ends this process if the program does
// not. am/exit/exit.cpp starts it and implements its Listener.
#include "rdma/exit/exit_watch.hpp"

#include "firehose/base/errno_text.hpp"
#include "firehose/base/log.hpp"
#include "firehose/base/thread.hpp"
#include "firehose/base/uncancelled.hpp"
#include "rdma/exit/process_exit.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <vector>

namespace hydrant {
namespace {

constexpr size_t kStackBytes = size_t{64} << 10;
constexpr size_t kMaxStackBytes = size_t{8} << 20;
// Interval of checks for descriptors that the program has closed: they wake no poll.
constexpr int kLookMs = 2000;

// Creates a thread with a larger stack if 64 KiB are too few: the stack also holds the program's thread-local
// variables.
int create_thread(pthread_t* thread, void* (*body)(void*), void* argument) noexcept {
  int error = EINVAL;
  for (size_t bytes = kStackBytes; error == EINVAL && bytes <= kMaxStackBytes; bytes *= 4) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    error = pthread_attr_setstacksize(&attributes, bytes);
    if (error == 0) error = pthread_create(thread, &attributes, body, argument);
    pthread_attr_destroy(&attributes);
  }
  return error;
}

const char* signal_text(int signal) noexcept {
  const char* text = sigdescr_np(signal);
  return text != nullptr ? text : "unknown signal";
}

}  // namespace

bool ExitWatch::Listener::program_catches_quit() noexcept {
  struct sigaction action {};
  sigaction(SIGQUIT, nullptr, &action);
  return action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN;
}

ExitWatch::ExitWatch(Bootstrap& bootstrap, Listener& listener) noexcept
    : bootstrap_(bootstrap),
      listener_(listener),
      is_supervised_(bootstrap.event_fd() >= 0),
      end_(exit_times(bootstrap.topology().size)) {}

Status ExitWatch::start(Bootstrap& bootstrap, Listener& listener, uint64_t deadline_ns,
                        std::unique_ptr<ExitWatch>* watch) noexcept {
  std::unique_ptr<ExitWatch> made(new ExitWatch(bootstrap, listener));
  if (made->is_supervised_) made->supervisor_start_ = process_start_time(bootstrap.supervisor());
  if (!made->is_supervised_ && bootstrap.topology().size > 1) {
    const Status status = NodeExitChannel::open(bootstrap, deadline_ns, &made->channel_);
    if (status != Status::kOk) return status;
    made->parent_pid_ = getppid();
    made->parent_.keep(open_pidfd(made->parent_pid_));
  }
  // A single rank has no events to wait for.
  const bool has_no_events = !made->is_supervised_ && made->channel_ == nullptr;
  const Status status = has_no_events ? Status::kOk : made->start_thread();
  if (status == Status::kOk) *watch = std::move(made);
  return status;
}

Status ExitWatch::start_thread() noexcept {
  const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (fd < 0) return fail(Status::kResource, "eventfd(): %s", errno_text(errno));
  wake_.keep(fd);
  sigset_t all;
  sigset_t old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  const int error = create_thread(&thread_, &serve, this);
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
  if (error != 0)
    return fail(Status::kResource, "no thread to watch for the job's end: %s", errno_text(error));
  running_ = true;
  pthread_setname_np(thread_, "hydrant-ctl");
  return Status::kOk;
}

ExitWatch::~ExitWatch() {
  if (running_) {
    stop_.store(true);
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = uncancelled::write(wake_.get(), &one, sizeof one);
    uncancelled::pthread_join(thread_, nullptr);
  }
}

bool ExitWatch::is_unannounced_kill(pid_t sender) const noexcept {
  return is_supervised_ && sender > 0 && sender == bootstrap_.supervisor() &&
         bootstrap_.event_fd() < 0;
}

void ExitWatch::leave(int code, ExitReason how, uint64_t deadline_ns) noexcept {
  left_.store(true);
  if (channel_ != nullptr) {
    channel_->publish_exit(bootstrap_.topology().rank, code);
    const bool is_first = channel_->claim_exit();
    log_exit(code, how, is_first);
    bootstrap_.forward_exit(code, is_first, deadline_ns);
  }
  bootstrap_.leave(code, how, deadline_ns);
}

// Reports an exit to the user under launchers other than hydrant-run: the first rank of the node to exit logs
// it. Our supervisor reports exits itself.
void ExitWatch::log_exit(int code, ExitReason how, bool is_first) noexcept {
  constexpr int kCodeMask = 0xff;  // bits of the code that wait(2) returns
  const Rank own = bootstrap_.topology().rank;
  const Rank first_out = first_exited_.load(std::memory_order_relaxed);
  const bool is_failure = (code & kCodeMask) != 0;
  if (how == ExitReason::kAbandoned) {
    if (is_failure || first_out == kNoRank || !channel_->claim_wait()) return;
    log_warning(
        "rank %u exited with code 0 while rank %u waited for messages, barriers or operations; the "
        "job "
        "is ended",
        first_out, own);
  } else if (is_failure && is_first && first_out == kNoRank) {
    if (how == ExitReason::kGasnetExit) {
      log_error("rank %u called gasnet_exit(%d); the job is ended", own, code);
    } else {
      log_error("rank %u exited with code %d; the job is ended", own, code);
    }
  }
}

void ExitWatch::note_death_published() const noexcept {
  if (channel_ != nullptr)
    channel_->publish_exit(bootstrap_.topology().rank, 0, NoticeKind::kDeathPublished);
}

void ExitWatch::report_peer_failure(Rank rank, int code) noexcept {
  if (!running_) return;
  lost_code_.store(code, std::memory_order_relaxed);
  lost_.store(rank, std::memory_order_release);
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = uncancelled::write(wake_.get(), &one, sizeof one);
}

void* ExitWatch::serve(void* self) {
  auto& watch = *static_cast<ExitWatch*>(self);
  if (watch.channel_ != nullptr) {
    watch.serve_words();
  } else {
    watch.serve_launcher();
  }
  return nullptr;
}

// Each poll() uses only descriptors that are open now. A notification on a closed descriptor is not read: its
// number may belong to a file of the program.
void ExitWatch::serve_launcher() noexcept {
  bool more = true;
  bool is_lost = false;
  while (!stop_.load()) {
    if (more && !is_lost && bootstrap_.event_fd() < 0) {
      is_lost = true;
      log_unpublished();
    }
    if (more && is_lost) watch_supervisor();
    pollfd polled[] = {{wake_.get(), POLLIN, 0},
                       {more ? bootstrap_.event_fd() : -1, POLLIN, 0},
                       {parent_.get(), POLLIN, 0}};
    (void)uncancelled::poll(polled, 3, time_left_ms());
    if (stop_.load()) return;
    handle_loss();
    end_myself(end_.step(now_ns()));
    if (polled[1].revents != 0) handle_launcher(&more);
    if (polled[2].revents != 0 && !parent_.is_lost()) {
      more = false;
      parent_.close();
      listener_.on_launcher_exit();
    }
  }
}

// Watches the supervisor by its pidfd: ranks below a script would outlive the supervisor otherwise.
void ExitWatch::watch_supervisor() noexcept {
  const int supervisor = bootstrap_.supervisor();
  if (parent_.get() >= 0 || supervisor <= 0) return;
  parent_.close();
  const int fd = open_pidfd(supervisor);
  const bool is_gone =
      fd >= 0 ? process_start_time(supervisor) != supervisor_start_ : errno == ESRCH;
  parent_.keep(fd);
  if (is_gone) listener_.on_launcher_exit();
}

void ExitWatch::log_unpublished() noexcept {
  if (is_notified_ || left_.load()) return;
  log_warning(
      "the program of rank %u has closed its connection to the launcher (%s): the rank is not "
      "notified when others end, and the launcher ends it by SIGQUIT instead; close only "
      "descriptors that the program has opened",
      bootstrap_.topology().rank, bootstrap_.name());
}

void ExitWatch::serve_words() noexcept {
  constexpr size_t kFirstPeer = 3;
  std::vector<NodeExitChannel::Peer>& peers = channel_->peers();
  std::vector<pollfd> polled(kFirstPeer + peers.size() + 1);
  while (!stop_.load()) {
    if (channel_->repair())
      log_info("the program has closed descriptors of the library; they are opened again");
    repair_parent();
    polled[0] = {wake_.get(), POLLIN, 0};
    polled[1] = {channel_->fd(), POLLIN, 0};
    polled[2] = {parent_.get(), POLLIN, 0};
    bool has_any_exited = false;
    for (size_t i = 0; i < peers.size(); ++i) {
      polled[kFirstPeer + i] = {peers[i].pidfd.get(), POLLIN, 0};
      has_any_exited |= peers[i].is_gone && !peers[i].is_end_handled;
    }
    polled.back() = {bootstrap_.forwarded_exit_fd(), POLLIN, 0};
    (void)uncancelled::poll(polled.data(), polled.size(), has_any_exited ? 0 : time_left_ms());
    if (stop_.load()) return;
    handle_loss();
    end_myself(end_.step(now_ns()));
    handle_words();
    handle_relayed();
    // A lost descriptor number may belong to another file: handle_parent() runs only for our own descriptor,
    // and repair_parent() reopens a lost one first.
    if (polled[2].revents != 0 && !parent_.is_lost()) handle_parent();
    for (size_t i = 0; i < peers.size(); ++i) {
      NodeExitChannel::Peer& peer = peers[i];
      const bool has_ended = polled[kFirstPeer + i].revents != 0 && !peer.pidfd.is_lost();
      if (!peer.is_end_handled && (peer.is_gone || has_ended)) handle_process(peer);
    }
  }
}

void ExitWatch::repair_parent() noexcept {
  if (!parent_.is_lost()) return;
  parent_.close();  // does not close another file under the same number
  parent_.keep(open_pidfd(parent_pid_));
  if (getppid() != parent_pid_) handle_parent();
}

int ExitWatch::time_left_ms() const noexcept {
  const uint64_t next = end_.next_ns();
  const uint64_t now = now_ns();
  const uint64_t left_ms = next > now ? (next - now) / 1'000'000 + 1 : 0;
  return static_cast<int>(std::min<uint64_t>(left_ms, kLookMs));
}

void ExitWatch::end_myself(JobTermination::Step step) noexcept {
  constexpr uint64_t kLeaveNs = 2'000'000'000;
  if (step == JobTermination::Step::kNothing) return;
  const bool kill_now = step == JobTermination::Step::kKill;
  if (!kill_now && left_.load()) return;  // this process is already exiting
  if (!kill_now && listener_.program_catches_quit()) {
    kill(getpid(), SIGQUIT);
    return;
  }
  if (end_.is_clean_exit() && !left_.load() && (channel_ == nullptr || channel_->claim_wait())) {
    log_warning("rank %u exited with code 0, and rank %u did not follow; it is ended", end_.rank(),
                bootstrap_.topology().rank);
  }
  listener_.before_exit();
  if (!left_.load()) leave(end_.code(), ExitReason::kAbandoned, now_ns() + kLeaveNs);
  _exit(end_.code());
}

void ExitWatch::handle_parent() noexcept {
  constexpr int kCode = 1;
  parent_.close();
  end_.leave(kNoRank, kCode, now_ns());
  listener_.on_launcher_exit();
}

void ExitWatch::handle_loss() noexcept {
  const Rank rank = lost_.exchange(kNoRank, std::memory_order_acquire);
  if (rank == kNoRank) return;
  uint64_t wakes = 0;
  [[maybe_unused]] const ssize_t bytes = uncancelled::read(wake_.get(), &wakes, sizeof wakes);
  end_.leave(rank, lost_code_.load(std::memory_order_relaxed), now_ns());
}

void ExitWatch::handle_launcher(bool* more) noexcept {
  const Bootstrap::Event event = bootstrap_.read_event();
  if (event.kind != Bootstrap::Event::Kind::kNothing) is_notified_ = true;
  switch (event.kind) {
    case Bootstrap::Event::Kind::kNothing: return;
    case Bootstrap::Event::Kind::kExit: return listener_.on_exit_requested(event.rank, event.code);
    case Bootstrap::Event::Kind::kDeath: return listener_.on_death(event.rank, event.signal);
    case Bootstrap::Event::Kind::kLauncherExited:
      *more = false;
      return listener_.on_launcher_exit();
  }
}

void ExitWatch::handle_words() noexcept {
  Rank rank = 0;
  int code = 0;
  while (channel_->read(&rank, &code)) {
    for (NodeExitChannel::Peer& peer : channel_->peers()) {
      if (peer.rank == rank) peer.left = true;
    }
    note_exit(rank, code);
  }
}

void ExitWatch::note_exit(Rank rank, int code) noexcept {
  Rank none = kNoRank;
  first_exited_.compare_exchange_strong(none, rank, std::memory_order_relaxed);
  end_.leave(rank, code, now_ns());
  listener_.on_exit_requested(rank, code);
}

// Forwards notifications of other nodes to the ranks of this node, which do not receive them. Those of ranks
// of this node are skipped: they came over the channel.
void ExitWatch::handle_relayed() noexcept {
  const std::vector<Rank>& local_ranks = bootstrap_.topology().node_ranks;
  for (;;) {
    const Bootstrap::Event event = bootstrap_.read_event();
    if (event.kind != Bootstrap::Event::Kind::kExit) return;
    if (std::binary_search(local_ranks.begin(), local_ranks.end(), event.rank)) continue;
    channel_->publish_exit(event.rank, event.code);
    note_exit(event.rank, event.code);
  }
}

// Handles the end of a process as reported by the kernel; a notification that it sent before has been read.
void ExitWatch::handle_process(NodeExitChannel::Peer& peer) noexcept {
  const ProcessExit end = read_process_end(peer.pidfd.get(), peer.pid, peer.start_time);
  peer.pidfd.close();
  peer.is_end_handled = true;
  const bool killed = end.kind == ProcessExit::Kind::kKilled;
  if (peer.left && !killed) return;
  if (end.kind == ProcessExit::Kind::kExited)
    return listener_.on_exit_requested(peer.rank, end.code);
  if (!killed && channel_->lost_notices()) return handle_unknown_exit(peer);
  if (!peer.published_its_death && channel_->claim(peer)) {
    // The launcher reports its own text, or none; rank and signal are known only here.
    if (killed) {
      char memory[kOomText] = "";
      if (end.code == SIGKILL) (void)describe_oom_kills(oom_before_, memory, sizeof memory);
      log_error("rank %u (pid %d) was killed by signal %d (%s)%s; the job is ended", peer.rank,
                static_cast<int>(peer.pid), end.code, signal_text(end.code), memory);
    } else {
      log_error("rank %u (pid %d) has ended without leaving the job; the job is ended", peer.rank,
                static_cast<int>(peer.pid));
    }
  }
  end_.die(peer.rank, killed ? end.code : SIGKILL, now_ns());
  listener_.on_death(peer.rank, killed ? end.code : 0);
}

// The rank may have sent its exit to a socket that the program had closed. A rank that waits for it must not
// exit with code 0.
void ExitWatch::handle_unknown_exit(const NodeExitChannel::Peer& peer) noexcept {
  constexpr int kCode = 1;
  log_warning(
      "rank %u has ended, and rank %u received no exit code: its program has closed descriptors of "
      "the library; close only those that the program has opened",
      peer.rank, bootstrap_.topology().rank);
  listener_.on_exit_requested(peer.rank, kCode);
}

}  // namespace hydrant
