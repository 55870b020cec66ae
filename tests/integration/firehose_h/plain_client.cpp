// The minimal client, in C++: regions without keys and no poll function. Runs several threads that come
// and go, without limits, and across a fork.
#include <firehose.h>

#include <random>
#include <thread>
#include <vector>

#include "check.h"
#include "network.h"

int firehose_move_callback(gex_Rank_t, const firehose_region_t* unpin_list, size_t unpin_num,
                           firehose_region_t* pin_list, size_t pin_num) {
  for (size_t i = 0; i < unpin_num; ++i) network_unpin(unpin_list[i].addr, unpin_list[i].len);
  for (size_t i = 0; i < pin_num; ++i) network_pin(pin_list[i].addr, pin_list[i].len);
  return 0;
}

namespace {

constexpr uint32_t kFlags = FIREHOSE_INIT_FLAG_LOCAL_ONLY | FIREHOSE_INIT_FLAG_UNPIN_ON_FINI;
constexpr size_t kSteps = 20000;

// Pins, checks and releases at random; requests outlive the step that made them.
void use_memory(unsigned seed, size_t pages, size_t longest) {
  std::mt19937 random(seed);
  std::vector<const firehose_request_t*> held;
  for (size_t step = 0; step < kSteps; ++step) {
    const size_t len = (1 + random() % longest) * NETWORK_PAGE;
    const uintptr_t addr = network_page(random() % pages);
    // A thread that holds requests must not wait: firehose.h's rule against deadlock.
    const firehose_request_t* request = held.empty() ? firehose_local_pin(addr, len, nullptr)
                                                     : firehose_try_local_pin(addr, len, nullptr);
    if (request != nullptr) {
      CHECK(request->addr <= addr && request->addr + request->len >= addr + len);
      CHECK(network_is_pinned(request->addr, request->len));
      held.push_back(request);
    }
    if (held.size() < 4 && random() % 2 == 0) continue;
    for (const firehose_request_t* each : held) {
      CHECK(network_is_pinned(each->addr, each->len));
    }
    firehose_release(held.data(), static_cast<int>(held.size()));
    held.clear();
  }
  firehose_release(held.data(), static_cast<int>(held.size()));
}

void threads_share_a_small_budget() {
  network_start();
  firehose_info_t info;
  // Room for the pins that four threads may hold while waiting, and little more.
  firehose_init(64 * NETWORK_PAGE, 64, 8 * NETWORK_PAGE, nullptr, 0, kFlags, &info);
  for (unsigned round = 0; round < 2; ++round) {
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < 4; ++i) threads.emplace_back(use_memory, 10 * round + i, 512, 8);
    for (std::thread& thread : threads) thread.join();
  }
  CHECK(network_counts().max_bytes <= 64 * NETWORK_PAGE);
  CHECK(network_counts().unpins != 0);
  firehose_fini();
  CHECK(network_counts().bytes == 0);
}

void zero_lifts_limits() {
  network_start();
  firehose_info_t info;
  firehose_init(0, 0, 0, nullptr, 0, kFlags, &info);
  CHECK(info.max_LocalRegions == 0);
  CHECK(info.max_LocalPinSize >= NETWORK_PAGE);
  const firehose_request_t* request =
      firehose_local_pin(network_page(5), 3 * NETWORK_PAGE, nullptr);
  CHECK(request->len >= 3 * NETWORK_PAGE);
  firehose_release(&request, 1);
  firehose_fini();
  CHECK(network_counts().bytes == 0);
}

// A hold taken before a fork is the parent's: its release in the child has no effect.
void child_of_a_fork_starts_empty() {
  network_start();
  firehose_init(1 << 20, 64, 1 << 18, nullptr, 0, kFlags, nullptr);
  const firehose_request_t* request = firehose_local_pin(network_page(5), NETWORK_PAGE, nullptr);
  const pid_t child = fork();
  if (child == 0) {
    CHECK(firehose_try_local_pin(network_page(5), NETWORK_PAGE, nullptr) == nullptr);
    firehose_release(&request, 1);
    const size_t pins = network_counts().pins;
    request = firehose_local_pin(network_page(5), NETWORK_PAGE, nullptr);
    CHECK(network_counts().pins == pins + 1);
    firehose_release(&request, 1);
    _exit(0);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  CHECK(network_counts().pins == 1 && network_counts().unpins == 0);
  firehose_release(&request, 1);
  firehose_fini();
}

const scenario_t kScenarios[] = {
    {"threads_share_a_small_budget", threads_share_a_small_budget},
    {"zero_lifts_limits", zero_lifts_limits},
    {"child_of_a_fork_starts_empty", child_of_a_fork_starts_empty},
};

}  // namespace

int main(int argc, char** argv) {
  return run_scenario(kScenarios, sizeof kScenarios / sizeof *kScenarios, argc, argv);
}
