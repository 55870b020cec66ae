// Question: what does a message through the shared-memory transport cost, without Active Messages above it?
// Round trips and floods between two processes on two processors, in ns, compared with the raw floor: two
// cache lines that the same processes pass back and forth.
//
//   shm_ring_bench [REPETITIONS]       default 9; one JSON object on standard output
//
// Each repetition runs the floor and all rows in turn. Figures are medians over the repetitions, ratios
// are medians of the ratios within each.
#include "rdma/shm/shm_transport.hpp"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sched.h>
#include <string>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace {

using namespace hydrant;

constexpr uint32_t kBudget = 32;

struct alignas(128) Turn {
  std::atomic<uint64_t> value{0};
};
// The cost of a line depends on its place in the shared cache, so the floor uses as many places as a ring
// does.
constexpr uint32_t kPlaces = 256;
struct Shared {
  Turn ping[kPlaces], pong[kPlaces];
  Turn arrived[2];
};

class Counter final : public Receiver {
 public:
  void deliver(const Incoming& message) noexcept override {
    ++count;
    const std::byte* data = message.payload != nullptr ? message.payload : message.head;
    for (uint32_t i = 0; i < touched; i += 64) sum += std::to_integer<uint64_t>(data[i]);
  }
  uint64_t count = 0;
  uint64_t sum = 0;
  uint32_t touched = 1;  // how many bytes are read, one per line
};

struct Row {
  const char* name;
  uint32_t bytes;  // head and payload in the ring
  uint32_t cell;   // payload in a cell
  bool flood;
  uint32_t rounds;
};
constexpr Row kRows[] = {
    {"round_trip_16", 16, 0, false, 2000},
    {"round_trip_56", 56, 0, false, 2000},
    {"round_trip_120", 120, 0, false, 2000},
    {"round_trip_256", 16 + 256, 0, false, 2000},
    {"round_trip_1024", 16 + 1024, 0, false, 1000},
    {"round_trip_cell_4096", 16, 4096, false, 500},
    {"round_trip_cell_65536", 16, 65536, false, 100},
    {"flood_16", 16, 0, true, 10000},
    {"flood_56", 56, 0, true, 10000},
    {"flood_256", 16 + 256, 0, true, 4000},
    {"flood_1024", 16 + 1024, 0, true, 2000},
    {"flood_cell_4096", 16, 4096, true, 1000},
};

class Side {
 public:
  Side(Shared& shared, ShmTransport& transport, uint32_t rank)
      : shared_(shared), transport_(transport), rank_(rank), other_(1 - rank) {}

  // ns per round trip of two lines.
  double floor() {
    meet();
    const uint64_t rounds = 2000;
    const uint64_t begin = now_ns();
    for (uint64_t i = base_ + 1; i <= base_ + rounds; ++i) {
      Turn& ping = shared_.ping[i % kPlaces];
      Turn& pong = shared_.pong[i % kPlaces];
      if (rank_ == 0) {
        ping.value.store(i, std::memory_order_release);
        while (pong.value.load(std::memory_order_acquire) != i) {
        }
      } else {
        while (ping.value.load(std::memory_order_acquire) != i) {
        }
        pong.value.store(i, std::memory_order_release);
      }
    }
    base_ += rounds;
    return static_cast<double>(now_ns() - begin) / static_cast<double>(rounds);
  }

  // ns per round trip, or per message of a flood.
  double measure(const Row& row) {
    counter_.touched = row.cell != 0 ? row.cell : row.bytes;
    meet();
    const uint64_t begin = now_ns();
    if (row.flood) {
      if (rank_ == 0) {
        for (uint32_t i = 0; i < row.rounds; ++i) send(row);
        await(1);
      } else {
        await(row.rounds);
        send(kRows[0]);
      }
    } else {
      for (uint32_t i = 0; i < row.rounds; ++i) {
        if (rank_ == 0) send(row);
        await(1);
        if (rank_ == 1) send(row);
      }
    }
    return static_cast<double>(now_ns() - begin) / row.rounds;
  }

 private:
  void send(const Row& row) {
    Cell cell;
    if (row.cell != 0) {
      while (transport_.messages(other_).take_cell(other_, Lane::kRequest, row.cell, &cell) !=
             Status::kOk) {
        transport_.poll(counter_, kBudget, false);
      }
      std::memset(cell.data, static_cast<int>(++stamp_ & 0x7f), row.cell);
    }
    Outgoing room;
    while (transport_.messages(other_).reserve(other_, Lane::kRequest, row.bytes, &room) !=
           Status::kOk) {
      transport_.poll(counter_, kBudget, false);
    }
    std::memset(room.head, static_cast<int>(++stamp_ & 0x7f), row.bytes);
    if (row.cell != 0) {
      transport_.messages(other_).commit_with_cell(room, 7, cell, row.cell);
    } else {
      transport_.messages(other_).commit(room, 7);
    }
  }
  void await(uint64_t messages) {
    awaited_ += messages;
    while (counter_.count < awaited_) transport_.poll(counter_, kBudget, false);
  }
  void meet() {
    ++meeting_;
    shared_.arrived[rank_].value.store(meeting_, std::memory_order_release);
    while (shared_.arrived[other_].value.load(std::memory_order_acquire) < meeting_) {
    }
  }

  Shared& shared_;
  ShmTransport& transport_;
  Counter counter_;
  uint32_t rank_;
  uint32_t other_;
  uint64_t base_ = 0;
  uint64_t meeting_ = 0;
  uint64_t awaited_ = 0;
  uint32_t stamp_ = 0;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void require(Status status, const char* what) {
  if (status == Status::kOk) return;
  std::fprintf(stderr, "%s: %s\n", what, last_error_text());
  std::exit(1);
}

void pin_to(uint32_t cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  sched_setaffinity(0, sizeof set, &set);
}

void report(const std::vector<double>& floors, const std::vector<std::vector<double>>& rows) {
  std::printf("{\"repetitions\": %zu, \"floor_round_trip_ns\": %.1f, \"rows\": [\n", floors.size(),
              median(floors));
  for (size_t i = 0; i < std::size(kRows); ++i) {
    std::vector<double> ratios;
    for (size_t r = 0; r < floors.size(); ++r) ratios.push_back(rows[i][r] / floors[r]);
    std::printf("  {\"name\": \"%s\", \"ns\": %.1f, \"best_ns\": %.1f, \"times_floor\": %.2f}%s\n",
                kRows[i].name, median(rows[i]), *std::min_element(rows[i].begin(), rows[i].end()),
                median(ratios), i + 1 < std::size(kRows) ? "," : "");
  }
  std::printf("]}\n");
}

void run_side(Shared& shared, int fd, uint32_t rank, int repetitions, bool threaded) {
  pin_to(rank);
  shm::NodeMemory memory;
  require(memory.attach(fd, rank), "attach");
  JobTopology topology;
  topology.rank = topology.node_rank = rank;
  topology.size = 2;
  topology.node_ranks = {0, 1};
  std::unique_ptr<ShmTransport> transport;
  require(ShmTransport::open(memory, topology,
                             threaded ? ShmTransport::Threads::kMany : ShmTransport::Threads::kOne,
                             &transport),
          "open");
  Side side(shared, *transport, rank);
  std::vector<double> floors;
  std::vector<std::vector<double>> rows(std::size(kRows));
  for (int r = -1; r < repetitions; ++r) {  // repetition -1 warms up
    std::vector<double> figures;
    const double floor = side.floor();
    for (const Row& row : kRows) figures.push_back(side.measure(row));
    if (r < 0) continue;
    floors.push_back(floor);
    for (size_t i = 0; i < figures.size(); ++i) rows[i].push_back(figures[i]);
  }
  if (rank == 0) report(floors, rows);
}

}  // namespace

int main(int argc, char** argv) {
  const int repetitions = argc > 1 ? std::max(1, std::atoi(argv[1])) : 9;
  const bool threaded = argc > 2 && std::string(argv[2]) == "threads";
  void* page =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return 1;
  auto& shared = *new (page) Shared;
  int fd = -1;
  require(shm::NodeMemory::create(2, &fd), "create");
  const pid_t child = fork();
  if (child < 0) return 1;
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    run_side(shared, fd, 1, repetitions, threaded);
    _exit(0);
  }
  run_side(shared, fd, 0, repetitions, threaded);
  int status = 0;
  waitpid(child, &status, 0);
  return status == 0 ? 0 : 1;
}
