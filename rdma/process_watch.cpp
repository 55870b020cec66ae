#include "rdma/process_watch.hpp"

#include "firehose/base/errno_text.hpp"
#include "firehose/base/log.hpp"
#include "firehose/base/thread.hpp"
#include "rdma/process_end.hpp"

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

// A thread's stack also holds the program's thread-local variables: where 64 KiB are too few for those, more.
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
      end_(launch::exit_times(bootstrap.place().size)) {}

Status ExitWatch::start(Bootstrap& bootstrap, Listener& listener, uint64_t deadline_ns,
                        std::unique_ptr<ExitWatch>* watch) noexcept {
  std::unique_ptr<ExitWatch> made(new ExitWatch(bootstrap, listener));
  if (bootstrap.watch_fd() < 0 && bootstrap.place().size > 1) {
    const Status status = NodeWords::open(bootstrap, deadline_ns, &made->words_);
    if (status != Status::kOk) return status;
    made->parent_ = open_pidfd(getppid());
  }
  const bool silent = bootstrap.watch_fd() < 0 && made->words_ == nullptr;
  const Status status = silent ? Status::kOk : made->start_thread();  // alone: nobody to hear from
  if (status == Status::kOk) *watch = std::move(made);
  return status;
}

Status ExitWatch::start_thread() noexcept {
  wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_ < 0) return fail(Status::kResource, "eventfd(): %s", errno_text(errno));
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
    [[maybe_unused]] const ssize_t written = write(wake_, &one, sizeof one);
    pthread_join(thread_, nullptr);
  }
  if (wake_ >= 0) close(wake_);
  if (parent_ >= 0) close(parent_);
}

void ExitWatch::leave(int code, uint64_t deadline_ns) noexcept {
  left_.store(true);
  if (words_ != nullptr) {
    words_->tell(bootstrap_.place().rank, code);
    bootstrap_.relay(code, words_->claim_exit(), deadline_ns);
  }
  bootstrap_.leave(code, deadline_ns);
}

void ExitWatch::lose(Rank rank, int code) noexcept {
  if (!running_) return;
  lost_code_.store(code, std::memory_order_relaxed);
  lost_.store(rank, std::memory_order_release);
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_, &one, sizeof one);
}

void* ExitWatch::serve(void* self) {
  auto& watch = *static_cast<ExitWatch*>(self);
  if (watch.words_ != nullptr) {
    watch.serve_words();
  } else {
    watch.serve_launcher();
  }
  return nullptr;
}

void ExitWatch::serve_launcher() noexcept {
  pollfd polled[] = {{wake_, POLLIN, 0}, {bootstrap_.watch_fd(), POLLIN, 0}};
  while (!stop_.load()) {
    const int ready = poll(polled, 2, time_left_ms());
    if (stop_.load()) return;
    heed_loss();
    end_myself(end_.step(now_ns()));
    if (ready <= 0) continue;
    bool more = true;
    if (polled[1].revents != 0) heed_launcher(&more);
    if (!more) polled[1].fd = -1;
  }
}

void ExitWatch::serve_words() noexcept {
  constexpr size_t kFirstPeer = 4;
  std::vector<pollfd> polled = {{wake_, POLLIN, 0},
                                {words_->fd(), POLLIN, 0},
                                {parent_, POLLIN, 0},
                                {bootstrap_.relay_fd(), POLLIN, 0}};
  for (const auto& peer : words_->peers()) polled.push_back({peer.pidfd, POLLIN, 0});
  while (!stop_.load()) {
    const int ready = poll(polled.data(), polled.size(), time_left_ms());
    if (stop_.load()) return;
    heed_loss();
    end_myself(end_.step(now_ns()));
    if (ready <= 0) continue;
    heed_words();
    if (polled[3].revents != 0) heed_relayed();
    if (polled[2].revents != 0) {
      polled[2].fd = -1;
      heed_parent();
    }
    for (size_t i = kFirstPeer; i < polled.size(); ++i) {
      if (polled[i].revents == 0) continue;
      polled[i].fd = -1;
      heed_process(words_->peers()[i - kFirstPeer]);
    }
  }
}

int ExitWatch::time_left_ms() const noexcept {
  const uint64_t next = end_.next_ns();
  if (next == UINT64_MAX) return -1;
  const uint64_t now = now_ns();
  return next > now ? static_cast<int>((next - now) / 1'000'000) + 1 : 0;
}

void ExitWatch::end_myself(launch::JobEnd::Step step) noexcept {
  constexpr uint64_t kLeaveNs = 2'000'000'000;
  if (step == launch::JobEnd::Step::kNothing) return;
  const bool kill_now = step == launch::JobEnd::Step::kKill;
  if (!kill_now && left_.load()) return;  // it is on its way
  if (!kill_now && listener_.program_catches_quit()) {
    kill(getpid(), SIGQUIT);
    return;
  }
  if (end_.peaceful()) {
    log_warning("rank %u exited with code 0, and rank %u did not follow; it is ended", end_.rank(),
                bootstrap_.place().rank);
  }
  listener_.before_exit();
  if (!left_.load()) leave(end_.code(), now_ns() + kLeaveNs);
  _exit(end_.code());
}

void ExitWatch::heed_parent() noexcept {
  constexpr int kCode = 1;
  end_.leave(kNoRank, kCode, now_ns());
  listener_.on_launcher_gone();
}

void ExitWatch::heed_loss() noexcept {
  const Rank rank = lost_.exchange(kNoRank, std::memory_order_acquire);
  if (rank == kNoRank) return;
  uint64_t wakes = 0;
  [[maybe_unused]] const ssize_t bytes = read(wake_, &wakes, sizeof wakes);
  end_.leave(rank, lost_code_.load(std::memory_order_relaxed), now_ns());
}

void ExitWatch::heed_launcher(bool* more) noexcept {
  const Bootstrap::Word word = bootstrap_.heed();
  switch (word.kind) {
    case Bootstrap::Word::Kind::kNothing: return;
    case Bootstrap::Word::Kind::kExit: return listener_.on_exit_requested(word.rank, word.code);
    case Bootstrap::Word::Kind::kDeath: return listener_.on_death(word.rank, word.signal);
    case Bootstrap::Word::Kind::kLauncherGone: *more = false; return listener_.on_launcher_gone();
  }
}

void ExitWatch::heed_words() noexcept {
  Rank rank = 0;
  int code = 0;
  while (words_->read(&rank, &code)) {
    for (NodeWords::Peer& peer : words_->peers()) {
      if (peer.rank == rank) peer.left = true;
    }
    end_.leave(rank, code, now_ns());
    listener_.on_exit_requested(rank, code);
  }
}

// Words of ranks of this node have come by themselves; the others of this node do not hear these.
void ExitWatch::heed_relayed() noexcept {
  const std::vector<Rank>& here = bootstrap_.place().node_ranks;
  for (;;) {
    const Bootstrap::Word word = bootstrap_.heed();
    if (word.kind != Bootstrap::Word::Kind::kExit) return;
    if (std::binary_search(here.begin(), here.end(), word.rank)) continue;
    words_->tell(word.rank, word.code);
    end_.leave(word.rank, word.code, now_ns());
    listener_.on_exit_requested(word.rank, word.code);
  }
}

// The kernel says that it has ended; a word of it, sent before, has been read.
void ExitWatch::heed_process(NodeWords::Peer& peer) noexcept {
  const ProcessEnd end = read_process_end(peer.pidfd, peer.pid, peer.start_time);
  close(peer.pidfd);
  peer.pidfd = -1;
  const bool killed = end.kind == ProcessEnd::Kind::kKilled;
  if (peer.left && !killed) return;
  if (end.kind == ProcessEnd::Kind::kExited)
    return listener_.on_exit_requested(peer.rank, end.code);
  if (words_->claim(peer)) {
    // The launcher says something of its own, or nothing; rank and signal are known here.
    if (killed) {
      log_error("rank %u (pid %d) was killed by signal %d (%s); the job is ended", peer.rank,
                static_cast<int>(peer.pid), end.code, signal_text(end.code));
    } else {
      log_error("rank %u (pid %d) has ended without leaving the job; the job is ended", peer.rank,
                static_cast<int>(peer.pid));
    }
  }
  end_.die(peer.rank, killed ? end.code : SIGKILL, now_ns());
  listener_.on_death(peer.rank, killed ? end.code : 0);
}

}  // namespace hydrant
