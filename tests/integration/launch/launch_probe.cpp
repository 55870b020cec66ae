// A rank that executes its arguments in order: "[RANKS:]VERB[=VALUE]", where RANKS is a rank or "a-b".
// It is a complete job without the layers above rdma/.
#include "firehose/base/status.hpp"
#include "firehose/base/thread.hpp"
#include "rdma/bootstrap/bootstrap.hpp"
#include "rdma/bootstrap/fd_passing.hpp"
#include "rdma/exit/exit_watch.hpp"
#include "rdma/exit/process_exit.hpp"
#include "rdma/open_bootstrap.hpp"
#include "tests/support/patience.hpp"

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <map>
#include <memory>
#include <pthread.h>
#include <sched.h>
#include <string>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace {

using hydrant::Bootstrap;
using hydrant::ExitWatch;
using hydrant::Rank;
using hydrant::Status;

volatile std::sig_atomic_t ticks = 0;

uint64_t soon(double seconds = 60 * hydrant::testing::patience()) {
  return hydrant::now_ns() + static_cast<uint64_t>(seconds * 1e9);
}

[[noreturn]] void give_up(const char* what) {
  std::printf("FAILED %s: %s\n", what, hydrant::last_error_text());
  std::fflush(stdout);
  _exit(99);
}

void require(Status status, const char* what) {
  if (status != Status::kOk) give_up(what);
}

// Ends the process on request, as a runtime does. An exit with 0 leaves it time, because it is probably
// about to leave itself.
class Listener final : public ExitWatch::Listener {
 public:
  void on_exit_requested(Rank rank, int code) noexcept override { end("exit", rank, code, code); }
  void on_death(Rank rank, int signal) noexcept override {
    end("death", rank, signal, 128 + signal);
  }
  void on_launcher_exit() noexcept override { end("launcher gone", 0, 0, 1); }

  Rank own = 0;
  bool deaf = false;  // only prints events and continues
  std::atomic<bool> has_heard{false};
  std::function<void(int)> leave;

 private:
  void end(const char* what, Rank rank, int number, int code) {
    char line[128];
    const int bytes = std::snprintf(line, sizeof line, "rank %u hears %s of rank %u: %d\n", own,
                                    what, rank, number);
    [[maybe_unused]] const ssize_t written = write(STDOUT_FILENO, line, static_cast<size_t>(bytes));
    has_heard = true;
    if (deaf || code == 0) return;
    leave(code);
    _exit(code);
  }
};

class Probe {
 public:
  explicit Probe(std::unique_ptr<Bootstrap> bootstrap) : bootstrap_(std::move(bootstrap)) {
    listener_.own = topology().rank;
    listener_.leave = [this](int code) { leave(code); };
  }

  int run(int argc, char** argv) {
    for (int i = 1; i < argc; ++i) {
      std::string step = argv[i];
      if (!is_mine(&step)) continue;
      const size_t equals = step.find('=');
      const std::string verb = step.substr(0, equals);
      value_ = equals == step.npos ? "" : step.substr(equals + 1);
      const auto found = verbs_.find(verb);
      if (found == verbs_.end()) give_up(("no verb " + verb).c_str());
      found->second(*this);
    }
    leave(0);
    return 0;
  }

 private:
  const hydrant::JobTopology& topology() const { return bootstrap_->topology(); }
  int number() const { return std::atoi(value_.c_str()); }
  double seconds() const {
    return value_.empty() ? 60 * hydrant::testing::patience() : std::atof(value_.c_str());
  }

  bool is_mine(std::string* step) const {
    const size_t colon = step->find(':');
    if (colon == step->npos) return true;
    unsigned first = 0;
    unsigned last = 0;
    const int got = std::sscanf(step->c_str(), "%u-%u", &first, &last);
    step->erase(0, colon + 1);
    return topology().rank >= first && topology().rank <= (got == 2 ? last : first);
  }

  // Leaves like a runtime: through its watch, or directly to the launcher.
  void leave(int code) {
    if (watch_ != nullptr) {
      watch_->leave(code, hydrant::ExitReason::kExit, soon(10 * hydrant::testing::patience()));
    } else {
      bootstrap_->leave(code, hydrant::ExitReason::kExit, soon(10 * hydrant::testing::patience()));
    }
  }

  void print_place() const {
    std::string ranks;
    for (const Rank rank : topology().node_ranks) ranks += " " + std::to_string(rank);
    std::printf("rank %u of %u by %s, node %u of %u, node rank %u of%s, pid %d\n", topology().rank,
                topology().size, bootstrap_->name(), topology().node, topology().node_count,
                topology().node_rank, ranks.c_str(), static_cast<int>(getpid()));
    std::fflush(stdout);
  }

  // Every rank puts values of several sizes and reads those of all other ranks.
  void exchange_values() {
    constexpr size_t kSizes[] = {0, 1, 599, 600, 601, Bootstrap::kMaxValueBytes};
    const auto fill = [](Rank rank, size_t bytes) {
      std::vector<std::byte> value(bytes);
      for (size_t i = 0; i < bytes; ++i) value[i] = static_cast<std::byte>(rank * 7 + i);
      return value;
    };
    for (const size_t bytes : kSizes) {
      require(bootstrap_->put("value" + std::to_string(bytes), fill(topology().rank, bytes)),
              "put");
    }
    require(bootstrap_->fence(soon()), "fence");
    std::byte room[Bootstrap::kMaxValueBytes];
    for (Rank rank = 0; rank < topology().size; ++rank) {
      for (const size_t bytes : kSizes) {
        size_t got = 0;
        require(bootstrap_->get(rank, "value" + std::to_string(bytes), room, &got, soon()), "get");
        if (got != bytes || std::memcmp(room, fill(rank, bytes).data(), bytes) != 0) {
          give_up("another value came back");
        }
      }
    }
  }

  // Memory that this process needs to read all values.
  void measure_memory() {
    std::byte room[Bootstrap::kMaxValueBytes] = {};
    require(bootstrap_->put("memory", room), "put");
    require(bootstrap_->fence(soon()), "fence");
    size_t got = 0;
    require(bootstrap_->get(0, "memory", room, &got, soon()), "get");
    const size_t before = mallinfo2().uordblks;
    for (Rank rank = 0; rank < topology().size; ++rank) {
      require(bootstrap_->get(rank, "memory", room, &got, soon()), "get");
    }
    const size_t after = mallinfo2().uordblks;
    std::printf("rank %u: %zu bytes more for %u values\n", topology().rank, after - before,
                topology().size);
  }

  void share_memory() {
    constexpr size_t kBytes = 4096;
    constexpr char kText[] = "shared";
    int fd = -1;
    if (topology().node_rank == 0) {
      fd = memfd_create("probe", MFD_CLOEXEC);
      if (ftruncate(fd, kBytes) != 0 || write(fd, kText, sizeof kText) != sizeof kText)
        give_up("memfd");
    }
    int received = -1;
    require(
        hydrant::share_fd(*bootstrap_, sequence_++, hydrant::Status::kOk, fd, &received, soon()),
        "share_fd");
    const void* mapped = mmap(nullptr, kBytes, PROT_READ, MAP_SHARED, received, 0);
    if (mapped == MAP_FAILED || std::strcmp(static_cast<const char*>(mapped), kText) != 0) {
      give_up("what was shared is not what came");
    }
    std::printf("rank %u reads it\n", topology().rank);
  }

  void watch() { require(ExitWatch::start(*bootstrap_, listener_, soon(), &watch_), "watch"); }

  void fence_until() {
    const Status status = bootstrap_->fence(soon(seconds()));
    std::printf("rank %u fence: %s\n", topology().rank,
                status == Status::kOk ? "done" : hydrant::last_error_text());
    std::fflush(stdout);
  }

  // A rank that arrives late delays all others.
  void check_barrier() {
    for (int round = 0; round < 5; ++round) {
      const bool late = static_cast<Rank>(round) % topology().size == topology().rank;
      if (late) sleep_for(0.1);
      const uint64_t came = hydrant::now_ns();
      const std::string key = "came" + std::to_string(round);
      require(bootstrap_->put(key, std::as_bytes(std::span(&came, 1))), "put");
      require(bootstrap_->fence(soon()), "fence");
      const uint64_t left = hydrant::now_ns();
      for (Rank rank = 0; rank < topology().size; ++rank) {
        uint64_t other = 0;
        size_t bytes = 0;
        require(bootstrap_->get(rank, key, std::as_writable_bytes(std::span(&other, 1)), &bytes,
                                soon()),
                "get");
        if (other > left) give_up("a fence was left before all had come");
      }
      require(bootstrap_->fence(soon()), "fence");
    }
  }

  void get_until() {
    std::byte room[Bootstrap::kMaxValueBytes];
    size_t got = 0;
    const Status status =
        bootstrap_->get(topology().size - 1, "nothing", room, &got, soon(seconds()));
    std::printf("rank %u get: %s\n", topology().rank,
                status == Status::kOk ? "done" : hydrant::last_error_text());
    std::fflush(stdout);
  }

  [[noreturn]] void exit_by_leaving() {
    leave(number());
    std::exit(number());
  }

  void show_pid() {
    const pid_t pid = getpid();
    require(bootstrap_->put("pid", std::as_bytes(std::span(&pid, 1))), "put");
  }

  // Exits without leaving, and takes long to free its memory: it has idle priority on the processor of
  // a busy process.
  [[noreturn]] void exit_slowly() {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<size_t>(sched_getcpu()), &one);
    sched_setaffinity(0, sizeof one, &one);
    const pid_t self = getpid();
    if (fork() == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      alarm(20);
      for (volatile bool forever = getppid() == self; forever;) {
      }
      _exit(0);
    }
    const size_t bytes = static_cast<size_t>(number()) << 20;
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(memory, bytes, MADV_NOHUGEPAGE);
    std::memset(memory, 1, bytes);
    const sched_param none{};
    sched_setscheduler(0, SCHED_IDLE, &none);
    _exit(0);
  }

  // Waits until a rank has reached its show_pid.
  pid_t await_pid() {
    pid_t pid = 0;
    size_t got = 0;
    require(bootstrap_->get(static_cast<Rank>(number()), "pid",
                            std::as_writable_bytes(std::span(&pid, 1)), &got, soon()),
            "get");
    return pid;
  }

  void await_exit() {
    const pid_t pid = await_pid();
    await([pid] { return hydrant::process_is_ending(pid) || kill(pid, 0) != 0; },
          "it does not end");
  }

  template <typename Condition>
  static void await(Condition condition, const char* otherwise) {
    const uint64_t deadline = soon();
    while (!condition()) {
      if (hydrant::now_ns() > deadline) give_up(otherwise);
      sleep_for(0.001);
    }
  }

  static void sleep_for(double seconds) {
    const timespec time{
        static_cast<time_t>(seconds),
        static_cast<long>((seconds - static_cast<double>(static_cast<time_t>(seconds))) * 1e9)};
    timespec rest = time;
    while (nanosleep(&rest, &rest) != 0) {
    }
  }

  const std::map<std::string, std::function<void(Probe&)>> verbs_ = {
      {"place", [](Probe& p) { p.print_place(); }},
      {"values", [](Probe& p) { p.exchange_values(); }},
      {"memory", [](Probe& p) { p.measure_memory(); }},
      {"share", [](Probe& p) { p.share_memory(); }},
      {"watch", [](Probe& p) { p.watch(); }},
      {"lose", [](Probe& p) { p.watch_->report_peer_failure(static_cast<Rank>(p.number()), 6); }},
      {"deaf", [](Probe& p) { p.listener_.deaf = true; }},
      {"fence", [](Probe& p) { p.fence_until(); }},
      {"barrier", [](Probe& p) { p.check_barrier(); }},
      {"get", [](Probe& p) { p.get_until(); }},
      {"leave", [](Probe& p) { p.exit_by_leaving(); }},
      {"say_leave", [](Probe& p) { p.leave(p.number()); }},
      {"_exit", [](Probe& p) { _exit(p.number()); }},
      {"kill", [](Probe& p) { std::raise(p.number()); }},
      {"ignore", [](Probe& p) { std::signal(p.number(), SIG_IGN); }},
      {"exit_on", [](Probe& p) { std::signal(p.number(), [](int) { _exit(5); }); }},
      {"show_pid", [](Probe& p) { p.show_pid(); }},
      {"exit_slowly", [](Probe& p) { p.exit_slowly(); }},
      {"await_pid", [](Probe& p) { p.await_pid(); }},
      {"await_exit", [](Probe& p) { p.await_exit(); }},
      {"await_event",
       [](Probe& p) { await([&p] { return p.listener_.has_heard.load(); }, "no rank has ended"); }},
      {"note", [](Probe& p) { std::signal(p.number(), [](int got) { noted_signal = got; }); }},
      {"await_signal",
       [](Probe& p) {
         await([] { return noted_signal != 0; }, "no signal has come");
         std::printf("rank %u has got signal %d\n", p.topology().rank,
                     static_cast<int>(noted_signal));
         std::fflush(stdout);
       }},
      {"await_ticks",
       [](Probe& p) {
         // Not await(), which sleeps: some timers count processor time.
         for (const uint64_t deadline = soon(); ticks < 3 && hydrant::now_ns() < deadline;) {
         }
         std::printf("rank %u has %s\n", p.topology().rank, ticks < 3 ? "no ticks" : "its ticks");
         std::fflush(stdout);
       }},
      {"sleep", [](Probe& p) { sleep_for(p.seconds()); }},
      {"abort", [](Probe&) { std::abort(); }},
      {"read",
       [](Probe& p) {
         std::printf("rank %u reads %s\n", p.topology().rank,
                     std::getc(stdin) == EOF ? "the end" : "input");
       }},
      {"print",
       [](Probe& p) {
         std::printf("rank %u: %s\n", p.topology().rank, p.value_.c_str());
         std::fflush(stdout);
       }},
      {"spin",
       [](Probe&) {
         for (volatile bool forever = true; forever;) {
         }
       }},
  };

  static inline volatile std::sig_atomic_t noted_signal = 0;

  std::unique_ptr<Bootstrap> bootstrap_;
  Listener listener_;
  std::unique_ptr<ExitWatch> watch_;
  std::string value_;
  uint32_t sequence_ = 0;
};

// Starts a timer of setitimer(2), or of timer_create(2), which fork(2) does not pass on.
void start_timer(const std::string& which) {
  const int all[] = {ITIMER_REAL, ITIMER_VIRTUAL, ITIMER_PROF};
  const int numbers[] = {SIGALRM, SIGVTALRM, SIGPROF};
  const bool is_created = which == "created";
  const int index = is_created ? 0 : std::atoi(which.c_str());
  std::signal(numbers[index], [](int) { ticks = ticks + 1; });
  if (!is_created) {
    const itimerval often = {.it_interval = {.tv_sec = 0, .tv_usec = 10'000},
                             .it_value = {.tv_sec = 0, .tv_usec = 10'000}};
    setitimer(all[index], &often, nullptr);
    return;
  }
  timer_t timer = nullptr;
  const itimerspec often = {.it_interval = {.tv_sec = 0, .tv_nsec = 5'000'000},
                            .it_value = {.tv_sec = 0, .tv_nsec = 5'000'000}};
  if (timer_create(CLOCK_MONOTONIC, nullptr, &timer) == 0) timer_settime(timer, 0, &often, nullptr);
}

// Has a system call, "NUMBER:ERRNO", fail in all threads of this process and in its children from now on.
void refuse(const std::string& what) {
  unsigned number = 0;
  unsigned error = 0;
  if (std::sscanf(what.c_str(), "%u:%u", &number, &error) != 2) give_up("refuse=NUMBER:ERRNO");
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{static_cast<unsigned short>(std::size(code)), code};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter) != 0)
    give_up("no seccomp filter");
}

// Rank 0 of a forked job dies inside its fork(), which returns to the supervisor after that.
void die_in_fork() {
  static bool is_first = true;
  pthread_atfork(
      nullptr,
      [] {
        siginfo_t death{};
        if (is_first) waitid(P_ALL, 0, &death, WEXITED | WNOWAIT);
        is_first = false;
      },
      [] {
        if (is_first) raise(SIGKILL);
      });
}

// A thread of the program, which the supervisor of a forked job has and the ranks have not. At SIGURG it
// refuses a system call, if it is given one.
void start_thread(const std::string& refused) {
  std::thread([refused] {
    sigset_t urgent;
    sigemptyset(&urgent);
    sigaddset(&urgent, SIGURG);
    pthread_sigmask(SIG_BLOCK, &urgent, nullptr);
    int signal = 0;
    sigwait(&urgent, &signal);
    refuse(refused);
    std::printf("the supervisor is refused %s\n", refused.c_str());
    for (;;) pause();
  }).detach();
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  // Before the job is connected: actions that need no job.
  for (int i = 1; i < argc; ++i) {
    const std::string step = argv[i];
    const char* rank = std::getenv("HYDRANT_JOB_RANK");
    if (rank != nullptr && step == std::string("before@") + rank + "=exit") return 0;
    const std::string timer = "before@timer=";
    if (step.starts_with(timer)) start_timer(step.substr(timer.size()));
    const std::string refused = "before@refuse=";
    if (step.starts_with(refused)) refuse(step.substr(refused.size()));
    const std::string thread = "before@thread=";
    if (step == "before@thread") start_thread("");
    if (step == "before@die_in_fork") die_in_fork();
    if (step.starts_with(thread)) start_thread(step.substr(thread.size()));
    if (step.starts_with("before@")) argv[i] = const_cast<char*>("4294967295:none");
  }
  std::unique_ptr<Bootstrap> bootstrap;
  const Status status = hydrant::open_bootstrap(&argc, &argv, &bootstrap);
  if (status != Status::kOk) {
    std::fprintf(stderr, "launch_probe: %s\n", hydrant::last_error_text());
    return 98;
  }
  return Probe(std::move(bootstrap)).run(argc, argv);
}
