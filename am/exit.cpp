#include "am/exit.hpp"

#include "am/job.hpp"
#include "am/start_extended.hpp"
#include "am/tools/debugger.hpp"
#include "am/tools/signal_names.hpp"
#include "firehose/base/log.hpp"
#include "firehose/base/thread.hpp"
#include "rdma/launch/job_end.hpp"
#include "rdma/process_watch.hpp"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <pthread.h>
#include <unistd.h>

namespace hydrant {
namespace {

constexpr uint64_t kLeaveNs = 1'000'000'000;
constexpr uint64_t kFlushNs = 500'000'000;
// For messages that others may wait for, such as the last of a barrier.
constexpr uint64_t kFlushMessagesNs = 200'000'000;
constexpr uint64_t kStartNs = 60'000'000'000;

// How long a rank that waits for others goes on when the job is being ended. After an exit with 0 it is half
// of what ranks that compute are left alone: what it waits for may be on its way, and slow.
constexpr uint64_t kPatienceNs = 200'000'000;
uint64_t peaceful_patience_ns = kPatienceNs;

std::atomic<int> requested_code{0};
std::atomic<uint64_t> ending_since_ns{0};
pid_t job_pid = 0;

// What leave_once() has told the launcher, if exit(3) runs in this thread: what exit(3) calls may exit again.
constexpr int kNoCode = -1;
constinit thread_local int code_of_exit = kNoCode;

// Writes out what is buffered, unless somebody is in the middle of writing: then it cannot be helped.
void flush_standard_streams() noexcept {
  for (FILE* stream : {stdout, stderr}) {
    if (ftrylockfile(stream) != 0) continue;
    fflush_unlocked(stream);
    funlockfile(stream);
  }
}

std::atomic<bool> all_flushed{false};

void* flush_all(void*) {
  std::fflush(nullptr);
  all_flushed.store(true, std::memory_order_release);
  return nullptr;
}

// The client's own files, too. A thread of its own does it, because fflush(3) waits for the lock of every
// stream, and somebody may sit in fgets(3) for ever.
void flush_streams() noexcept {
  flush_standard_streams();
  pthread_t thread;
  if (pthread_create(&thread, nullptr, flush_all, nullptr) != 0) return;
  pthread_detach(thread);
  const uint64_t deadline = now_ns() + kFlushNs;
  while (!all_flushed.load(std::memory_order_acquire) && now_ns() < deadline) {
    const timespec pause_time = {.tv_sec = 0, .tv_nsec = 50'000};
    nanosleep(&pause_time, nullptr);
  }
}

// ---- what the control thread says ----

void on_quit(int number);

// Whether SIGQUIT has a handler, and not ours: a client's.
bool client_catches_quit() noexcept {
  struct sigaction action = {};
  sigaction(SIGQUIT, nullptr, &action);
  return action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN &&
         action.sa_handler != on_quit;
}

class EndListener final : public ExitWatch::Listener {
 public:
  void on_exit_requested(Rank, int code) noexcept override { follow(code); }

  void on_death(Rank rank, int signal) noexcept override {
    // `ending` first: whoever is told kBroken must find out that it is the job's end, not its peer's.
    job().ending.store(true, std::memory_order_release);
    if (Transport* transport = job().transport_to_wake.load(std::memory_order_acquire))
      transport->bury(rank);
    follow(signal != 0 ? 128 + signal : 1);
  }

  void on_launcher_gone() noexcept override { _exit(1); }

  bool program_catches_quit() noexcept override { return client_catches_quit(); }
  // gasnet_exit() in a thread of the program would come too late now.
  void before_exit() noexcept override {
    job().exiting.store(true, std::memory_order_relaxed);
    flush_streams();
  }

 private:
  static void follow(int code) noexcept {
    Job& the_job = job();
    requested_code.store(code, std::memory_order_relaxed);
    uint64_t never = 0;
    ending_since_ns.compare_exchange_strong(never, now_ns(), std::memory_order_relaxed);
    the_job.ending.store(true, std::memory_order_release);
    if (Transport* transport = the_job.transport_to_wake.load(std::memory_order_acquire))
      transport->wake();
  }
};

EndListener& end_listener() noexcept {
  static EndListener listener;
  return listener;
}

// Started once and never stopped: it has to be there until the process is gone.
ExitWatch* exit_watch = nullptr;

// Tells the launcher, once. False if somebody did before.
bool leave_once(int code) noexcept {
  Job& the_job = job();
  if (the_job.exiting.exchange(true)) return false;
  end_extended();
  the_job.ending.store(true, std::memory_order_relaxed);
  if (Transport* transport = the_job.transport_to_wake.load(std::memory_order_acquire))
    transport->flush(now_ns() + kFlushMessagesNs);
  if (exit_watch != nullptr) {
    exit_watch->leave(code, now_ns() + kLeaveNs);
  } else if (the_job.bootstrap != nullptr) {
    the_job.bootstrap->leave(code, now_ns() + kLeaveNs);
  }
  return true;
}

// exit(3) or a return from main: the rest of exit(3) follows.
void on_process_exit(int code, void*) {
  if (getpid() == job_pid && leave_once(code)) code_of_exit = code & 0xff;
}

// A handler of the client's that exits as well, in the middle of the exit of the thread that it interrupts,
// would wait for itself. Faults are not held back.
void hold_back_signals() noexcept {
  sigset_t held;
  sigfillset(&held);
  for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) sigdelset(&held, number);
  pthread_sigmask(SIG_BLOCK, &held, nullptr);
}

// ---- signals ----

// A fault: say who, and die of it, so that the launcher knows the signal.
void on_fault(int number) {
  char line[160];
  const int bytes = snprintf(line, sizeof line, "*** Caught a fatal signal (rank %u): %s(%d)\n",
                             hydrant_job_info.rank, sigabbrev_np(number), number);
  (void)!write(STDERR_FILENO, line, static_cast<size_t>(bytes));
  flush_standard_streams();
  if (number != SIGQUIT) (void)show_the_end(false);
  signal(number, SIG_DFL);
  raise(number);
}

// SIGQUIT: another rank ends the job, and this one computes. Or somebody's ctrl-\: that is a death.
void on_quit(int number) {
  Job& the_job = job();
  if (!the_job.ending.load(std::memory_order_acquire)) {
    on_fault(number);
    return;
  }
  the_job.exiting.store(true, std::memory_order_relaxed);
  flush_standard_streams();
  _exit(requested_code.load(std::memory_order_relaxed));
}

// SIGINT and the like, to this rank alone: a client that catches SIGQUIT ends the job its own way. The second
// time, and without such a client, it is what the process dies of.
void on_request_to_end(int number) {
  struct sigaction action = {};
  action.sa_handler = SIG_DFL;
  sigaction(number, &action, nullptr);
  if (!client_catches_quit()) {
    raise(number);
    return;
  }
  char line[160];
  const int bytes = snprintf(line, sizeof line, "*** Caught a signal (rank %u): %s(%d)\n",
                             hydrant_job_info.rank, sigabbrev_np(number), number);
  (void)!write(STDERR_FILENO, line, static_cast<size_t>(bytes));
  raise(SIGQUIT);
}

bool left_to_the_client(int number) noexcept {
  const char* list = std::getenv("GASNET_NO_CATCH_SIGNAL");
  if (list == nullptr) return false;
  if (std::strcmp(list, "*") == 0) return true;
  while (*list != '\0') {
    const size_t length = std::strcspn(list, ",");
    char name[32];
    std::snprintf(name, sizeof name, "%.*s", static_cast<int>(length), list);
    if (signal_of_name(name) == number) return true;
    list += length + (list[length] == ',' ? 1 : 0);
  }
  return false;
}

void install(int number, void (*handler)(int), int flags) noexcept {
  struct sigaction before = {};
  if (sigaction(number, nullptr, &before) != 0 || before.sa_handler != SIG_DFL) return;
  if (left_to_the_client(number)) return;
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  sigemptyset(&action.sa_mask);
  sigaction(number, &action, nullptr);
}

}  // namespace

Status watch_the_end() noexcept {
  job_pid = getpid();
  peaceful_patience_ns = std::max(kPatienceNs, launch::exit_times(job().place().size).kill_ns / 4);
  on_exit(on_process_exit, nullptr);
  install(SIGQUIT, on_quit, 0);
  for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) {
    install(number, on_fault, static_cast<int>(SA_RESETHAND | SA_NODEFER));
  }
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) install(number, on_request_to_end, 0);
  std::unique_ptr<ExitWatch> watch;
  const Status status =
      ExitWatch::start(*job().bootstrap, end_listener(), now_ns() + kStartNs, &watch);
  exit_watch = watch.release();
  return status;
}

void end_job(int code) noexcept {
  hold_back_signals();
  // The child of a fork is no rank: its end is nobody's but its own.
  const bool is_child = job_pid != 0 && getpid() != job_pid;
  if (is_child || code_of_exit != kNoCode) {
    flush_streams();
    _exit(is_child ? code : code_of_exit);
  }
  if (!leave_once(code)) {
    // Another thread is about to end the process. This one only has to keep still.
    for (;;) pause();
  }
  // What others do about the end does not disturb this one's.
  signal(SIGQUIT, SIG_IGN);
  flush_streams();
  _exit(code);
}

void peer_is_lost(Rank rank, const char* why) noexcept {
  const Job& the_job = job();
  if (the_job.ending.load(std::memory_order_acquire) ||
      the_job.exiting.load(std::memory_order_acquire))
    return;
  log_error("rank %u ends the job: %s", the_job.rank(), why);
  end_listener().on_death(rank, 0);
  // A program that computes, or polls until something comes, does not look at the end.
  if (exit_watch != nullptr) exit_watch->lose(rank, requested_code.load(std::memory_order_relaxed));
}

bool is_over() noexcept {
  if (!job().ending.load(std::memory_order_acquire)) return false;
  const uint64_t since = ending_since_ns.load(std::memory_order_relaxed);
  const bool is_peaceful = requested_code.load(std::memory_order_relaxed) == 0;
  return since != 0 && now_ns() - since > (is_peaceful ? peaceful_patience_ns : kPatienceNs);
}

void follow_the_end() noexcept {
  // A client's handler may call gasnet_exit() itself.
  if (client_catches_quit()) raise(SIGQUIT);
  end_job(requested_code.load(std::memory_order_relaxed));
}

}  // namespace hydrant

extern "C" void gasnet_exit(int exitcode) { hydrant::end_job(exitcode); }
