// Ranks that wait for messages in loops of their own: hydrant_wait_for_message(), and event descriptors in
// poll(2). The first argument is the scenario, the second the time limit of a wait in milliseconds. Run by
// waiting_jobs_test.py.
#include <gasnet.h>
#include <gasnetex.h>
#include <hydrant/rma.h>
#include <hydrant/waiting.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <gasnet_coll.h>
#include <initializer_list>
#include <poll.h>
#include <pthread.h>
#include <random>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>
#include <vector>

namespace {

gex_TM_t team;
gex_Rank_t rank;
int limit_ms = 20000;
uint64_t got = 0;  // requests and replies; atomic, as several threads may poll

uint64_t received() { return __atomic_load_n(&got, __ATOMIC_ACQUIRE); }
void count(gex_Token_t) { __atomic_fetch_add(&got, 1, __ATOMIC_ACQ_REL); }
void echo(gex_Token_t token) {
  count(token);
  gex_AM_ReplyShort0(token, 200, 0);
}

[[noreturn]] void give_up(const char* what) {
  std::fprintf(stderr, "rank %u: %s\n", rank, what);
  std::fflush(stderr);
  gasnet_exit(1);
  std::abort();
}
void check(bool is_good, const char* what) {
  if (!is_good) give_up(what);
}
uint64_t now_ns(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}
void rest(long ms) {
  const timespec time = {ms / 1000, ms % 1000 * 1'000'000};
  nanosleep(&time, nullptr);
}

class Descriptor {
 public:
  Descriptor() {
    check(hydrant_event_descriptor_open(&fd_) == GASNET_OK, hydrant_last_error_text());
  }
  ~Descriptor() { check(hydrant_event_descriptor_close(fd_) == GASNET_OK, "not closed"); }
  int fd() const { return fd_; }
  // Waits until `total` messages were received; returns how often it has slept.
  uint64_t wait_for(uint64_t total) const {
    uint64_t sleeps = 0;
    while (received() < total) {
      gasnet_AMPoll();
      const int armed = hydrant_event_descriptor_arm(fd_);
      if (armed == GASNET_ERR_NOT_READY || received() >= total) continue;
      check(armed == GASNET_OK, hydrant_last_error_text());
      pollfd waits = {fd_, POLLIN, 0};
      ++sleeps;
      check(poll(&waits, 1, limit_ms) == 1, "poll(2) has reached its time limit");
    }
    return sleeps;
  }

 private:
  int fd_ = -1;
};

gex_Rank_t peer() { return rank ^ 1U; }
void send() { gex_AM_RequestShort0(team, peer(), 200, 0); }

// ---- scenarios ----

// Rank 1 sleeps, by each way, until rank 0 sends, and uses next to no processor time.
void sleep_for_message() {
  const Descriptor descriptor;
  for (uint64_t round = 0; round < 2; ++round) {
    gex_Coll_BarrierBlocking(team, 0);
    if (rank == 0) {
      rest(300);
      send();
      continue;
    }
    const uint64_t wall = now_ns(CLOCK_MONOTONIC);
    const uint64_t cpu = now_ns(CLOCK_PROCESS_CPUTIME_ID);
    if (round % 2 == 0) {
      check(descriptor.wait_for(round + 1) < 100, "it did not sleep");
    } else {
      const uint64_t timeout_ns = static_cast<uint64_t>(limit_ms) * 1'000'000;
      while (received() < round + 1)
        check(hydrant_wait_for_message(timeout_ns) == GASNET_OK, "no message");
    }
    const uint64_t used = now_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    const uint64_t passed = now_ns(CLOCK_MONOTONIC) - wall;
    std::printf("round %d: %d of %d ms\n", static_cast<int>(round),
                static_cast<int>(used / 1'000'000), static_cast<int>(passed / 1'000'000));
    check(used < passed / 2, "it used processor time");
  }
}

// Requests and replies at random times between ranks that sleep at random; all ranks in pairs.
void rounds() {
  const Descriptor descriptor;
  constexpr uint64_t kRounds = 2000;
  std::minstd_rand engine(rank + 1);
  const bool asks = rank < peer();
  for (uint64_t round = 1; round <= kRounds; ++round) {
    for (auto spins = engine() % 2000; spins > 0; --spins) __asm__ volatile("");
    if (asks) gex_AM_RequestShort0(team, peer(), 201, 0);
    if (engine() % 4 != 0) {
      descriptor.wait_for(round);
    } else {
      while (received() < round)
        check(hydrant_wait_for_message(static_cast<uint64_t>(limit_ms) * 1'000'000) == GASNET_OK,
              "no message");
    }
  }
}

// By epoll(7), edge-triggered, beside a pipe of the program.
void edges() {
  const Descriptor descriptor;
  int ends[2];
  check(pipe(ends) == 0, "pipe");
  const int set = epoll_create1(0);
  epoll_event event = {};
  event.events = EPOLLIN | EPOLLET;
  check(epoll_ctl(set, EPOLL_CTL_ADD, descriptor.fd(), &event) == 0, "epoll_ctl");
  event.data.u32 = 1;
  check(epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &event) == 0, "epoll_ctl");
  uint32_t from_pipe = 0;
  for (uint64_t round = 1; round <= 200; ++round) {
    if (rank == 0 || round > 1) send();
    if (rank == 1 && round % 8 == 0) check(write(ends[1], "x", 1) == 1, "write");
    while (received() < round) {
      gasnet_AMPoll();
      if (hydrant_event_descriptor_arm(descriptor.fd()) != GASNET_OK || received() >= round)
        continue;
      epoll_event ready[2];
      const int count = epoll_wait(set, ready, 2, limit_ms);
      check(count > 0, "epoll_wait(2) has reached its time limit");
      for (int i = 0; i < count; ++i) from_pipe += ready[i].data.u32;
    }
  }
  close(set);
  if (rank == 1) send();  // the last one that rank 0 counts
  gex_Coll_BarrierBlocking(team, 0);
}

// Three threads of rank 1 wait for all messages; each sees the last one, whichever of them has handled it.
constexpr uint64_t kForThreads = 600;
void* wait_by_call(void*) {
  while (received() < kForThreads)
    check(hydrant_wait_for_message(static_cast<uint64_t>(limit_ms) * 1'000'000) == GASNET_OK,
          "no message");
  return nullptr;
}
void* wait_by_descriptor(void*) {
  Descriptor().wait_for(kForThreads);
  return nullptr;
}
void share_messages(std::initializer_list<void* (*)(void*)> waits) {
  if (rank == 1) {
    std::vector<pthread_t> all(waits.size());
    size_t started = 0;
    for (auto* wait : waits)
      check(pthread_create(&all[started++], nullptr, wait, nullptr) == 0, "thread");
    for (pthread_t thread : all) pthread_join(thread, nullptr);
  } else {
    for (uint64_t i = 0; i < kForThreads; ++i) {
      if (i % 50 == 0) rest(2);
      send();
    }
  }
}
void threads() { share_messages({wait_by_call, wait_by_descriptor, wait_by_descriptor}); }
void spinning_threads() {
  gasnet_set_waitmode(GASNET_WAIT_SPIN);
  share_messages({wait_by_call, wait_by_call, wait_by_call});
}

// A barrier is no message: its arrivals wake a rank whose descriptor is armed.
void barrier() {
  const Descriptor descriptor;
  for (int round = 0; round < 200; ++round) {
    if (rank == 0 && round % 20 == 0) rest(5);
    gasnet_barrier_notify(round, 0);
    while (gasnet_barrier_try(round, 0) == GASNET_ERR_NOT_READY) {
      if (hydrant_event_descriptor_arm(descriptor.fd()) != GASNET_OK) continue;
      if (gasnet_barrier_try(round, 0) == GASNET_OK) break;
      pollfd waits = {descriptor.fd(), POLLIN, 0};
      check(poll(&waits, 1, limit_ms) == 1, "poll(2) has reached its time limit");
    }
  }
}

// Barriers and reductions across a network complete by words that adapters write: no event ends the sleep,
// and the descriptor becomes readable all the same. At growing intervals of up to 1 s this takes minutes.
void words() {
  const Descriptor descriptor;
  constexpr uint32_t kRounds = 2000;
  for (uint32_t round = 0; round < 2 * kRounds; ++round) {
    const bool is_barrier = round < kRounds;
    const uint32_t mine = rank + round;
    uint32_t sum = 0;
    const gex_Event_t event =
        is_barrier ? gex_Coll_BarrierNB(team, 0)
                   : gex_Coll_ReduceToAllNB(team, &sum, &mine, GEX_DT_U32, sizeof mine, 1,
                                            GEX_OP_ADD, nullptr, nullptr, 0);
    for (;;) {
      gasnet_AMPoll();
      if (gex_Event_Test(event) == GASNET_OK) break;
      if (hydrant_event_descriptor_arm(descriptor.fd()) != GASNET_OK) continue;
      if (gex_Event_Test(event) == GASNET_OK) break;
      pollfd waits = {descriptor.fd(), POLLIN, 0};
      check(poll(&waits, 1, limit_ms) == 1, "poll(2) has reached its time limit");
    }
    check(is_barrier || sum == 2 * round + 1, "a wrong sum");
  }
}

// Rank 0 dies: that wakes rank 1, whose job ends.
void death() {
  const Descriptor descriptor;
  gex_Coll_BarrierBlocking(team, 0);
  if (rank == 0) {
    rest(50);
    raise(SIGKILL);
  }
  descriptor.wait_for(1);
}

// Time limits and wrong arguments.
void errors() {
  const uint64_t begin = now_ns(CLOCK_MONOTONIC);
  int status = GASNET_OK;
  while (status == GASNET_OK) status = hydrant_wait_for_message(20'000'000);
  check(status == GASNET_ERR_NOT_READY, "no time limit");
  check(now_ns(CLOCK_MONOTONIC) - begin >= 20'000'000, "too early");
  while ((status = hydrant_wait_for_message(0)) == GASNET_OK) {
  }
  check(status == GASNET_ERR_NOT_READY, "no time limit of 0");
  gex_System_SetVerboseErrors(0);
  check(hydrant_event_descriptor_arm(0) == GASNET_ERR_BAD_ARG, "descriptor 0");
  check(hydrant_event_descriptor_close(0) == GASNET_ERR_BAD_ARG, "descriptor 0");
  check(hydrant_event_descriptor_open(nullptr) == GASNET_ERR_BAD_ARG, "null");
  int fd = -1;
  check(hydrant_event_descriptor_open(&fd) == GASNET_OK, "open");
  check(hydrant_event_descriptor_arm(fd + 1) == GASNET_ERR_BAD_ARG, "another descriptor");
  check(std::strstr(hydrant_last_error_text(), "no event descriptor") != nullptr,
        hydrant_last_error_text());
  close(fd);
  check(hydrant_event_descriptor_arm(fd) == GASNET_ERR_BAD_ARG, "closed by the program");
  check(hydrant_event_descriptor_close(fd) == GASNET_OK, "close");
  check(hydrant_event_descriptor_close(fd) == GASNET_ERR_BAD_ARG, "closed twice");
}

struct Scenario {
  const char* name;
  void (*run)();
};
constexpr Scenario kScenarios[] = {{"sleep", sleep_for_message},
                                   {"rounds", rounds},
                                   {"edges", edges},
                                   {"threads", threads},
                                   {"spinning_threads", spinning_threads},
                                   {"barrier", barrier},
                                   {"words", words},
                                   {"death", death},
                                   {"errors", errors}};

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "errors") == 0) {
    int fd = -1;
    if (hydrant_wait_for_message(0) != GASNET_ERR_NOT_INIT) return 2;
    if (hydrant_event_descriptor_open(&fd) != GASNET_ERR_NOT_INIT) return 2;
    if (hydrant_event_descriptor_arm(0) != GASNET_ERR_NOT_INIT) return 2;
  }
  gex_Client_t client;
  gex_EP_t endpoint;
  if (gex_Client_Init(&client, &endpoint, &team, "waiting_client", &argc, &argv, 0) != GASNET_OK)
    return 2;
  gex_AM_Entry_t handlers[] = {{200, reinterpret_cast<gex_AM_Fn_t>(count),
                                GEX_FLAG_AM_REQREP | GEX_FLAG_AM_SHORT, 0, nullptr, "count"},
                               {201, reinterpret_cast<gex_AM_Fn_t>(echo),
                                GEX_FLAG_AM_REQUEST | GEX_FLAG_AM_SHORT, 0, nullptr, "echo"}};
  if (gex_EP_RegisterHandlers(endpoint, handlers, 2) != GASNET_OK) return 2;
  rank = gex_TM_QueryRank(team);
  if (argc > 2) limit_ms = std::atoi(argv[2]);
  gex_Coll_BarrierBlocking(team, 0);
  for (const Scenario& scenario : kScenarios) {
    if (argc > 1 && std::strcmp(argv[1], scenario.name) == 0) scenario.run();
  }
  gex_Coll_BarrierBlocking(team, 0);
  if (rank == 0) std::puts("done");
  std::fflush(stdout);
  gex_Coll_BarrierBlocking(team, 0);
  gasnet_exit(0);
}
