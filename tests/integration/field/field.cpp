// The conditions, and the run of a table under them. Nothing here allocates memory, opens descriptors or
// prints once the condition holds.
#include "tests/integration/field/field.hpp"

#include <hydrant/pin_cache.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

namespace field {
namespace {

struct {
  Page* page = nullptr;
  const Row* rows = nullptr;
  unsigned row_count = 0, rank_count = 1, rank = 0, row = 0, steps = 0;
  void (*poll)() = nullptr;
  bool is_initialised = false;
  // FIELD_CONDITION: "none", "cancel", "cancel later", "timer", "descriptors", "threads", "memory", "list" or
  // "refuse NUMBER ERRNO"; FIELD_WHEN: "before" or "after" init. FIELD_ROW: a part of the names of the rows
  // to run; FIELD_FIRST: the number of the first one.
  const char* condition = "none";
  bool begins_before_init = true;
  const char* only = nullptr;
  unsigned first_row = 0;
  int listener = -1;
} run;

Cell& cell() { return run.page->cells[run.rank][run.row]; }
bool is_condition(const char* name) { return std::strcmp(run.condition, name) == 0; }

void set(Outcome outcome, int code, const char* text) {
  Cell& at = cell();
  if (at.outcome > kDone) return;  // the first failure is the cause of others
  at.code = code;
  std::strncpy(at.text, text, sizeof at.text - 1);
  at.outcome = outcome;
}

void failed(int error) { run.page->condition_failed = static_cast<uint32_t>(error); }

// ---- filters ----

// Every thread of the process gets a filter which answers `number` with `answer`, in programs of this
// architecture.
void filter(const uint32_t* numbers, unsigned count, uint32_t answer) {
  sock_filter code[32];
  unsigned n = 0;
  code[n++] = BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr));
  for (unsigned i = 0; i < count; ++i) {
    code[n++] = BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, numbers[i], 0, 1);
    code[n++] = BPF_STMT(BPF_RET | BPF_K, answer);
  }
  code[n++] = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  const sock_fprog program = {static_cast<unsigned short>(n), code};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) != 0)
    failed(errno);
}

// ---- the list of system calls ----

// This thread has no filter. It hears each system call of the others, and lets the kernel carry it out.
void* list_calls(void*) {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, nullptr);
  while (__atomic_load_n(&run.listener, __ATOMIC_ACQUIRE) < 0) sched_yield();
  for (;;) {
    seccomp_notif told{};
    if (ioctl(run.listener, SECCOMP_IOCTL_NOTIF_RECV, &told) != 0) {
      if (errno == EINTR || errno == ENOENT) continue;
      return nullptr;
    }
    const auto number = static_cast<unsigned>(told.data.nr);
    if (number < kCalls) run.page->used[run.is_initialised ? 1 : 0][number] = 1;
    seccomp_notif_resp answer{};
    answer.id = told.id;
    answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
    (void)ioctl(run.listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
  }
}

void start_list() {
  pthread_t thread;
  if (const int error = pthread_create(&thread, nullptr, list_calls, nullptr)) return failed(error);
  sock_filter code[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF)};
  const sock_fprog program = {1, code};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return failed(errno);
  const long fd =
      syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
  if (fd < 0) failed(errno);
  __atomic_store_n(&run.listener, static_cast<int>(fd), __ATOMIC_RELEASE);
}

// ---- shortages ----

void on_tick(int) {}

void start_timer() {
  struct sigaction action {};
  action.sa_handler = on_tick;
  const itimerval every = {{0, 1000}, {0, 1000}};
  if (sigaction(SIGALRM, &action, nullptr) != 0 || setitimer(ITIMER_REAL, &every, nullptr) != 0)
    failed(errno);
}

// The limit is the lowest free number, and those below it are in use.
void use_up_descriptors() {
  const int free_one = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (free_one < 0) return failed(errno);
  close(free_one);
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = static_cast<rlim_t>(free_one);
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) failed(errno);
}

// Leaves room for a page. What malloc() holds in store stays.
void use_up_memory() {
  char text[4096];
  const int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return failed(errno);
  const ssize_t got = read(fd, text, sizeof text - 1);
  close(fd);
  text[got > 0 ? got : 0] = 0;
  rlimit limit{};
  getrlimit(RLIMIT_AS, &limit);
  limit.rlim_cur = (std::strtoull(text, nullptr, 10) + 1) * 4096;
  if (setrlimit(RLIMIT_AS, &limit) != 0) failed(errno);
}

void make_condition() {
  if (is_condition("timer")) start_timer();
  if (is_condition("descriptors")) use_up_descriptors();
  if (is_condition("memory")) use_up_memory();
  if (is_condition("list")) start_list();
  if (is_condition("threads")) {
    const uint32_t numbers[] = {SYS_clone, SYS_clone3, SYS_fork, SYS_vfork};
    filter(numbers, 4, SECCOMP_RET_ERRNO | EAGAIN);
  }
  unsigned number = 0, error = 0;
  if (std::sscanf(run.condition, "refuse %u %u", &number, &error) == 2) {
    const uint32_t numbers[] = {number};
    filter(numbers, 1, SECCOMP_RET_ERRNO | error);
  }
}

// ---- rows ----

struct Victim {
  const Row* row;
  bool returned;
};

void* run_cancelled(void* argument) {
  Victim& self = *static_cast<Victim*>(argument);
  if (is_condition("cancel")) pthread_cancel(pthread_self());
  self.row->run();
  self.returned = true;
  pthread_testcancel();
  return nullptr;
}

void run_row(const Row& row, bool cancelled) {
  if (!cancelled) return row.run();
  Victim victim{&row, false};
  pthread_t thread;
  if (const int error = pthread_create(&thread, nullptr, run_cancelled, &victim))
    return failed(error);
  if (is_condition("cancel later")) {
    static unsigned state = 20261128;
    state = state * 1664525 + 1013904223;
    timespec moment{0, static_cast<long>((state >> 8) % 300'000)};
    (void)nanosleep(&moment, nullptr);
    pthread_cancel(thread);
  }
  pthread_join(thread, nullptr);
  if (!victim.returned) set(kCancelled, 0, "the thread has ended inside the call");
}

// Bit i: descriptor i is open.
uint64_t open_descriptors() {
  uint64_t open = 0;
  for (int fd = 0; fd < 64; ++fd) open |= uint64_t{fcntl(fd, F_GETFD) >= 0} << fd;
  return open;
}

}  // namespace

Page& page_of_run() { return *run.page; }

bool refused(int code, const char* text) {
  if (text == nullptr) text = hydrant_error_text();
  set(*text == 0 ? kSilent : kRefused, code, text);
  return false;
}

bool wrong(const char* what) {
  set(kWrong, 0, what);
  return false;
}

bool begin(int argc, char** argv, const Row* rows, unsigned count, unsigned ranks, void (*poll)()) {
  run.rows = rows, run.row_count = count, run.rank_count = ranks, run.poll = poll;
  if (argc > 1 && std::strcmp(argv[1], "names") == 0) {
    for (unsigned i = 0; i < count; ++i) std::puts(rows[i].names);
    return false;
  }
  const char* const path = std::getenv("FIELD_OUTCOMES");
  const int fd = path == nullptr ? -1 : open(path, O_RDWR | O_CLOEXEC);
  void* const at = mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE,
                        fd < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED, fd, 0);
  if (at == MAP_FAILED || count > kRows) std::abort();
  if (fd >= 0) close(fd);
  run.page = static_cast<Page*>(at);
  if (const char* const value = std::getenv("FIELD_CONDITION")) run.condition = value;
  if (const char* const value = std::getenv("FIELD_WHEN"))
    run.begins_before_init = std::strcmp(value, "before") == 0;
  run.only = std::getenv("FIELD_ROW");
  if (const char* const value = std::getenv("FIELD_FIRST"))
    run.first_row = static_cast<unsigned>(std::atoi(value));
  return true;
}

void before_init() {
  if (run.begins_before_init) make_condition();
}

int init_failed(int code) {
  run.row = kRows - 1;
  (void)refused(code, nullptr);
  return 3;
}

void after_init(unsigned rank) {
  run.rank = rank;
  run.is_initialised = true;
  if (!run.begins_before_init) make_condition();
}

void meet() {
  run.page->step[run.rank] = ++run.steps;
  for (unsigned other = 0; other < run.rank_count; ++other) {
    while (run.page->step[other] < run.steps) {
      run.poll();
      sched_yield();
    }
  }
}

void run_rows() {
  const bool cancel = std::strncmp(run.condition, "cancel", 6) == 0;
  for (int round = 0; round < 2; ++round) {
    for (run.row = run.first_row; run.row < run.row_count; ++run.row) {
      const Row& row = run.rows[run.row];
      if (run.only != nullptr && std::strstr(row.names, run.only) == nullptr) continue;
      meet();
      if (cell().outcome <= kDone) cell().outcome = kStarted;
      hydrant_set_error_text("");
      const uint64_t open = open_descriptors();
      run_row(row, cancel && round == 0);
      if (cancel && round == 0) {
        meet();
        run_row(row, false);
      }
      if (cell().outcome == kStarted) cell().outcome = kDone;
      // The first round opens what later calls need.
      if (round == 1 && (open_descriptors() & ~open) != 0) set(kLeak, 0, "a descriptor stays open");
    }
  }
  meet();
}

}  // namespace field
