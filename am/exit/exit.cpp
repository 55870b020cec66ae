// Ends a process of a job, by gasnet_exit(), exit(3) or a fatal signal, or because another rank has ended the
// job. It announces the end to the launcher through ExitWatch (rdma/exit/exit_watch.hpp), whose control
// thread calls EndListener here.
#include "am/exit/exit.hpp"

#include "am/job/job.hpp"
#include "am/job/start_extended.hpp"
#include "am/tools/debugger.hpp"
#include "am/tools/settings.hpp"
#include "am/tools/signal_names.hpp"
#include "am/trace/job_trace.hpp"
#include "firehose/base/cancellation.hpp"
#include "firehose/base/log.hpp"
#include "firehose/base/quiet_write.hpp"
#include "firehose/base/thread.hpp"
#include "firehose/base/uncancelled.hpp"
#include "rdma/exit/exit_watch.hpp"
#include "rdma/exit/job_termination.hpp"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <pthread.h>
#include <unistd.h>

namespace hydrant {
namespace {

constexpr uint64_t kLeaveNs = 1'000'000'000;
constexpr uint64_t kFlushNs = 500'000'000;
// Time for sending messages that other ranks may wait for, such as the last message of a barrier.
constexpr uint64_t kFlushMessagesNs = 200'000'000;
constexpr uint64_t kStartNs = 60'000'000'000;

// Grace period for a rank that waits for others while the job ends. After exit code 0 it is half of the
// time that computing ranks get, because the awaited message may be on its way.
constexpr uint64_t kPatienceNs = 200'000'000;
uint64_t peaceful_patience_ns = kPatienceNs;

std::atomic<int> requested_code{0};
std::atomic<uint64_t> ending_since_ns{0};
pid_t job_pid = 0;

// The code that leave_once() announced, if exit(3) runs in this thread; exit(3) runs hooks that may
// exit again.
constexpr int kNoCode = -1;
constinit thread_local int code_of_exit = kNoCode;

// Flushes buffered output, except a stream that another thread is writing to.
void flush_standard_streams() noexcept {
  for (FILE* stream : {stdout, stderr}) {
    if (ftrylockfile(stream) != 0) continue;
    fflush_unlocked(stream);
    funlockfile(stream);
  }
}

std::atomic<bool> all_flushed{false};

void* flush_all(void*) {
  uncancelled::fflush(nullptr);
  all_flushed.store(true, std::memory_order_release);
  return nullptr;
}

// Flushes all files of the client, in a separate thread with a deadline: fflush(3) waits for the lock
// of every stream, and another thread may hold one in fgets(3) for ever.
void flush_streams() noexcept {
  flush_standard_streams();
  pthread_t thread;
  if (pthread_create(&thread, nullptr, flush_all, nullptr) != 0) return;
  pthread_detach(thread);
  const uint64_t deadline = now_ns() + kFlushNs;
  while (!all_flushed.load(std::memory_order_acquire) && now_ns() < deadline) {
    uncancelled::sleep_ns(50'000);
  }
}

// ---- events from the control thread ----

void on_quit(int number, siginfo_t* info, void* context);

// True if SIGQUIT has a handler that is not the library's.
bool client_catches_quit() noexcept {
  struct sigaction action = {};
  sigaction(SIGQUIT, nullptr, &action);
  return action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN &&
         action.sa_sigaction != on_quit;
}

class EndListener final : public ExitWatch::Listener {
 public:
  void on_exit_requested(Rank, int code) noexcept override { follow(code); }

  void on_death(Rank rank, int signal) noexcept override {
    // Sets `ending` first: a thread that gets kBroken must see that the job ends, and not only its peer.
    job().ending.store(true, std::memory_order_release);
    if (Transport* transport = job().transport_to_wake.load(std::memory_order_acquire))
      transport->disconnect(rank);
    follow(signal != 0 ? 128 + signal : 1);
  }

  void on_launcher_exit() noexcept override { _exit(1); }

  bool program_catches_quit() noexcept override { return client_catches_quit(); }
  // Marks the exit first: a gasnet_exit() in a client thread now comes too late.
  void before_exit() noexcept override {
    job().exiting.store(true, std::memory_order_relaxed);
    end_job_trace();
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
      transport->sleeping().wake();
  }
};

EndListener& end_listener() noexcept {
  static EndListener listener;
  return listener;
}

// Started once and never stopped: it must run until the process has exited.
ExitWatch* exit_watch = nullptr;

// A thread that waited for others ends this process because the job is ending.
std::atomic<bool> has_abandoned{false};

// Announces the end to the launcher. Returns false if another thread did so before.
bool leave_once(int code, ExitReason how) noexcept {
  const CancellationDisabled guard;
  Job& the_job = job();
  if (the_job.exiting.exchange(true)) return false;
  end_extended();
  end_job_trace();
  the_job.ending.store(true, std::memory_order_relaxed);
  if (Transport* transport = the_job.transport_to_wake.load(std::memory_order_acquire))
    transport->flush(now_ns() + kFlushMessagesNs);
  if (has_abandoned.load(std::memory_order_relaxed)) how = ExitReason::kAbandoned;
  if (exit_watch != nullptr) {
    exit_watch->leave(code, how, now_ns() + kLeaveNs);
  } else if (the_job.bootstrap != nullptr) {
    the_job.bootstrap->leave(code, how, now_ns() + kLeaveNs);
  }
  return true;
}

// Hook of exit(3) and of a return from main; the rest of exit(3) runs afterwards.
void on_process_exit(int code, void*) {
  if (!is_forked_child() && leave_once(code, ExitReason::kExit)) code_of_exit = code & 0xff;
}

// Blocks signals except faults. Otherwise a client's signal handler that calls exit would interrupt
// this thread's exit and deadlock.
void hold_back_signals() noexcept {
  sigset_t held;
  sigfillset(&held);
  for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) sigdelset(&held, number);
  pthread_sigmask(SIG_BLOCK, &held, nullptr);
}

// ---- signals ----

bool is_asked_for(const char* variable) noexcept {
  return is_switched_on(std::getenv(variable), false);
}

// Prints the line that explains the output that follows. Without such output a supervisor reports the
// death.
void print_fault(int number) noexcept {
  const bool shows = is_asked_for("GASNET_BACKTRACE");
  const bool is_supervised = exit_watch != nullptr && exit_watch->is_supervised();
  if (is_supervised && !shows && !is_asked_for("GASNET_FREEZE_ON_ERROR")) return;
  char line[200];
  const int bytes = snprintf(line, sizeof line, "*** Caught a fatal signal (rank %u): %s(%d)%s\n",
                             hydrant_job_info.rank, sigabbrev_np(number), number,
                             shows || number == SIGQUIT || number == SIGABRT
                                 ? ""
                                 : " (GASNET_BACKTRACE=1 shows where it was)");
  (void)write_quietly(STDERR_FILENO, line, static_cast<size_t>(bytes));
  if (exit_watch != nullptr) exit_watch->note_death_published();
}

// The default action of a signal, which takes effect when the handler returns, if not at once.
void raise_default(int number) noexcept {
  signal(number, SIG_DFL);
  raise(number);
}

// Fault handler: reports the rank, then dies of the same signal, so that the launcher sees it.
void on_fault(int number) {
  if (is_forked_child()) return raise_default(number);
  print_fault(number);
  flush_standard_streams();
  if (number != SIGQUIT) (void)show_the_end(false);
  raise_default(number);
}

// SIGQUIT: another rank ends the job while this one computes or could not be notified; or the user typed
// ctrl-\, which is a death.
void on_quit(int number, siginfo_t* info, void*) {
  if (is_forked_child()) return raise_default(number);
  Job& the_job = job();
  const bool is_unheard_end = info->si_code == SI_USER && exit_watch != nullptr &&
                              exit_watch->is_unannounced_kill(info->si_pid);
  if (!the_job.ending.load(std::memory_order_acquire) && !is_unheard_end) {
    on_fault(number);
    return;
  }
  the_job.exiting.store(true, std::memory_order_relaxed);
  flush_standard_streams();
  _exit(requested_code.load(std::memory_order_relaxed));
}

// SIGINT and similar, sent to this rank only. If the client catches SIGQUIT, its handler ends the job.
// The second signal, or the first without such a handler, kills the process.
void on_request_to_end(int number) {
  if (is_forked_child()) return raise_default(number);
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
  (void)write_quietly(STDERR_FILENO, line, static_cast<size_t>(bytes));
  raise(SIGQUIT);
}

// "SIGSEGV,BUS"; "*" for all; null for none.
const char* list_for_the_client() noexcept { return std::getenv("GASNET_NO_CATCH_SIGNAL"); }

// Calls visit(name, number) for each name of the list until it returns true. The number is 0 for no signal.
template <typename Visit>
bool any_listed(const char* list, Visit&& visit) noexcept {
  while (*list != '\0') {
    const size_t length = std::strcspn(list, ",");
    char name[32];
    std::snprintf(name, sizeof name, "%.*s", static_cast<int>(length), list);
    // A longer text is no signal, whatever it begins with.
    if (visit(name, length < sizeof name ? signal_of_name(name) : 0)) return true;
    list += length + (list[length] == ',' ? 1 : 0);
  }
  return false;
}

bool left_to_the_client(int number) noexcept {
  const char* list = list_for_the_client();
  if (list == nullptr) return false;
  return std::strcmp(list, "*") == 0 ||
         any_listed(list, [number](const char*, int listed) { return listed == number; });
}

void warn_of_no_signals() noexcept {
  const char* list = list_for_the_client();
  if (list == nullptr || std::strcmp(list, "*") == 0) return;
  (void)any_listed(list, [](const char* name, int number) {
    if (number == 0 && *name != '\0') {
      log_warning(
          "GASNET_NO_CATCH_SIGNAL: \"%s\" is no signal and ignored; it takes names or numbers "
          "such as SIGSEGV, segv or 11 with commas between, or * for all",
          name);
    }
    return false;
  });
}

void install(int number, struct sigaction action) noexcept {
  struct sigaction before = {};
  if (sigaction(number, nullptr, &before) != 0 || before.sa_handler != SIG_DFL) return;
  if (left_to_the_client(number)) return;
  sigemptyset(&action.sa_mask);
  sigaction(number, &action, nullptr);
}

void install(int number, void (*handler)(int), int flags) noexcept {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  install(number, action);
}

void install_quit() noexcept {
  struct sigaction action = {};
  action.sa_sigaction = on_quit;
  action.sa_flags = SA_SIGINFO;
  install(SIGQUIT, action);
}

}  // namespace

Status start_exit_watch() noexcept {
  job_pid = getpid();
  peaceful_patience_ns = std::max(kPatienceNs, exit_times(job().topology().size).kill_ns / 4);
  on_exit(on_process_exit, nullptr);
  if (job().rank() == 0) warn_of_no_signals();
  install_quit();
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

bool is_forked_child() noexcept { return job_pid != 0 && getpid() != job_pid; }

bool catches_signal(int number) noexcept { return !left_to_the_client(number); }

void exit_job(int code) noexcept {
  const CancellationDisabled guard;
  hold_back_signals();
  if (is_forked_child()) _exit(code);
  if (code_of_exit != kNoCode) {
    flush_streams();
    _exit(code_of_exit);
  }
  if (!leave_once(code, ExitReason::kGasnetExit)) {
    // Another thread is ending the process already, so this thread must not return.
    for (;;) uncancelled::pause();
  }
  // SIGQUIT from other ranks must not interrupt this exit.
  signal(SIGQUIT, SIG_IGN);
  flush_streams();
  _exit(code);
}

void on_peer_failed(Rank rank, const char* why) noexcept {
  const CancellationDisabled guard;
  const Job& the_job = job();
  if (the_job.ending.load(std::memory_order_acquire) ||
      the_job.exiting.load(std::memory_order_acquire))
    return;
  log_error("rank %u has lost rank %u and ends the job: %s", the_job.rank(), rank, why);
  end_listener().on_death(rank, 0);
  // Signals programs that compute, or poll without waiting in the library: they do not check `ending`.
  if (exit_watch != nullptr)
    exit_watch->report_peer_failure(rank, requested_code.load(std::memory_order_relaxed));
}

bool has_exit_grace_expired() noexcept {
  if (!job().ending.load(std::memory_order_acquire)) return false;
  const uint64_t since = ending_since_ns.load(std::memory_order_relaxed);
  const bool is_peaceful = requested_code.load(std::memory_order_relaxed) == 0;
  return since != 0 && now_ns() - since > (is_peaceful ? peaceful_patience_ns : kPatienceNs);
}

void exit_with_job() noexcept {
  has_abandoned.store(true, std::memory_order_relaxed);
  // The client's SIGQUIT handler may call gasnet_exit() itself.
  if (client_catches_quit()) raise(SIGQUIT);
  exit_job(requested_code.load(std::memory_order_relaxed));
}

}  // namespace hydrant

extern "C" void gasnet_exit(int exitcode) { hydrant::exit_job(exitcode); }
