// Question: what do idle rings and sleeping cost? The constants of NodeRings rest on these figures: a poll
// that finds no message, by the number of active rings; a review that retires rings (one membarrier beside a
// spinning process); a bell; and a round trip of two processes that sleep after every message.
//
//   shm_idle_bench          one JSON object on standard output, ns; medians of 9
#include "rdma/shm/memory/global_membarrier.hpp"
#include "rdma/shm/shm_transport.hpp"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace {

using namespace hydrant;

constexpr uint32_t kRanks = 65;
constexpr int kRepetitions = 9;

class Counter final : public Receiver {
 public:
  void deliver(const Incoming&) noexcept override { ++count; }
  uint64_t count = 0;
};

void require(Status status) {
  if (status == Status::kOk) return;
  std::fprintf(stderr, "%s\n", last_error_text());
  std::exit(1);
}

struct Member {
  Member(int fd, uint32_t rank) {
    require(memory.attach(fd, rank));
    JobTopology topology;
    topology.rank = topology.node_rank = rank;
    topology.size = kRanks;
    topology.node_ranks.resize(kRanks);
    for (uint32_t i = 0; i < kRanks; ++i) topology.node_ranks[i] = i;
    require(ShmTransport::open(memory, topology, ShmTransport::Threads::kOne, &transport));
  }
  void send(Rank to) {
    Outgoing room;
    require(transport->messages(to).reserve(to, Lane::kRequest, 8, &room));
    std::memset(room.head, 0, 8);
    transport->messages(to).commit(room, 1);
  }
  shm::NodeMemory memory;
  std::unique_ptr<ShmTransport> transport;
};

template <typename Body>
double median_ns(uint32_t times, Body body) {
  std::vector<double> values;
  for (int r = 0; r < kRepetitions; ++r) {
    const uint64_t begin = now_ns();
    for (uint32_t i = 0; i < times; ++i) body();
    values.push_back(static_cast<double>(now_ns() - begin) / times);
  }
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void pin_to(uint32_t cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  sched_setaffinity(0, sizeof set, &set);
}

template <typename Body>
pid_t child(uint32_t cpu, Body body) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  pin_to(cpu);
  body();
  _exit(0);
}

void end(pid_t pid) {
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
}

void empty_polls(int fd, Member& reader) {
  Counter counter;
  uint32_t active = 0;
  for (const uint32_t wanted : {1u, 8u, 64u}) {
    for (; active < wanted; ++active) {
      Member(fd, active + 1).send(0);
      reader.transport->poll(counter, 10, false);
    }
    // Few enough repetitions that no review occurs meanwhile.
    const double ns = median_ns(400, [&] { reader.transport->poll(counter, 10, false); });
    std::printf("  \"empty_poll_of_%u\": %.1f,\n", reader.transport->active_rings(), ns);
  }
}

void sleeping_round_trip(int fd, Member& reader) {
  const auto await = [](Member& member, Counter& counter, uint64_t count) {
    while (counter.count < count) {
      if (member.transport->poll(counter, 10, false) == 0) {
        member.transport->sleeping().sleep(now_ns() + 1'000'000'000);
      }
    }
  };
  const pid_t pid = child(1, [&] {
    Member other(fd, 64);
    Counter counter;
    for (uint64_t i = 1;; ++i) {
      await(other, counter, i);
      other.send(0);
    }
  });
  Counter counter;
  uint64_t sent = 0;
  const double ns = median_ns(200, [&] {
    reader.send(64);
    await(reader, counter, ++sent);
  });
  std::printf("  \"round_trip_asleep\": %.0f\n", ns);
  end(pid);
}

}  // namespace

int main() {
  pin_to(0);
  int fd = -1;
  require(shm::NodeMemory::create(kRanks, &fd));
  Member reader(fd, 0);
  std::printf("{\n");
  empty_polls(fd, reader);
  std::printf("  \"fence_alone\": %.0f,\n", median_ns(100, [] { shm::GlobalMembarrier::issue(); }));
  const pid_t spinner = child(1, [&] {
    shm::GlobalMembarrier::enable();
    for (;;) hydrant::pause();
  });
  usleep(20000);
  std::printf("  \"fence_beside_a_spinning_rank\": %.0f,\n",
              median_ns(100, [] { shm::GlobalMembarrier::issue(); }));
  end(spinner);
  int two = -1;
  require(shm::NodeMemory::create(kRanks, &two));
  Member sleeper(two, 0);
  // A reader that retires its ring after each message, in this process: the cost of the transition alone.
  Member sender(two, 1);
  Counter counter;
  std::printf("  \"message_with_bell_and_retirement\": %.0f,\n", median_ns(200, [&] {
                sender.send(0);
                while (sleeper.transport->poll(counter, 10, false) == 0) {
                }
                sleeper.transport->sleeping().sleep(0);
              }));
  sleeping_round_trip(two, sleeper);
  std::printf("}\n");
  return 0;
}
