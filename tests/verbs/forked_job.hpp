// Ranks as processes that a test forks; they exchange addresses through shared memory.
#pragma once

#include "firehose/base/thread.hpp"
#include "rdma/bootstrap/bootstrap.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <ctime>
#include <functional>
#include <sys/mman.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace hydrant::testing {

struct SharedJob {
  static constexpr Rank kMax = 8;
  struct Slot {
    size_t bytes = 0;
    std::byte endpoint[Bootstrap::kMaxValueBytes];
    // Values that a test's ranks exchange, by index.
    std::atomic<uint64_t> words[8];
  };
  std::atomic<uint32_t> arrived{0};
  Slot slots[kMax];
};

class ForkedBootstrap final : public Bootstrap {
 public:
  ForkedBootstrap(SharedJob& job, Rank rank, Rank size) : job_(job) {
    place_.rank = rank;
    place_.size = size;
    place_.node_ranks = {rank};
  }
  const char* name() const noexcept override { return "test"; }
  const JobTopology& topology() const noexcept override { return place_; }
  Status put(std::string_view, std::span<const std::byte> endpoint) noexcept override {
    SharedJob::Slot& slot = job_.slots[place_.rank];
    std::memcpy(slot.endpoint, endpoint.data(), endpoint.size());
    slot.bytes = endpoint.size();
    return Status::kOk;
  }
  Status fence(uint64_t deadline_ns) noexcept override {
    job_.arrived.fetch_add(1);
    while (job_.arrived.load() < place_.size) {
      if (now_ns() > deadline_ns) return Status::kBroken;
      sched_yield();
    }
    return Status::kOk;
  }
  Status get(Rank rank, std::string_view, std::span<std::byte> endpoint, size_t* bytes,
             uint64_t) noexcept override {
    const SharedJob::Slot& slot = job_.slots[rank];
    *bytes = std::min(slot.bytes, endpoint.size());
    std::memcpy(endpoint.data(), slot.endpoint, *bytes);
    return *bytes != 0 ? Status::kOk : Status::kNotReady;
  }
  void leave(int, ExitReason, uint64_t) noexcept override {}

 private:
  SharedJob& job_;
  JobTopology place_;
};

// Runs body(job, rank) in `size` processes; answers each one's status as of waitpid(2). Processes that run
// for more than a minute are killed.
inline std::vector<int> run_ranks(Rank size, const std::function<int(SharedJob&, Rank)>& body) {
  void* mapped =
      mmap(nullptr, sizeof(SharedJob), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return {};
  auto* job = new (mapped) SharedJob;
  std::vector<pid_t> children;
  for (Rank rank = 0; rank < size; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);
      _exit(body(*job, rank));
    }
    children.push_back(child);
  }
  std::vector<int> ends;
  for (const pid_t child : children) {
    int status = -1;
    waitpid(child, &status, 0);
    ends.push_back(status);
  }
  munmap(mapped, sizeof(SharedJob));
  return ends;
}

}  // namespace hydrant::testing
