// Two processes with several threads each pin each other's memory and their own, in C++, while memory
// is invalidated. Registrations are recorded in shared words, so the holder of a request can check that
// the other process has not deregistered the memory.
#include <firehose.h>

#include <atomic>
#include <new>
#include <random>
#include <sys/mman.h>
#include <thread>
#include <vector>

#include "check.h"
#include "network.h"

namespace {

constexpr size_t kPages = 512;
constexpr size_t kLargest = 4;
constexpr size_t kThreads = 3;
constexpr size_t kSteps = 2000;

struct Shared {
  std::atomic<uint32_t> registered[2][kPages];
  std::atomic<bool> done[2];
};
Shared* shared;

size_t page_of(uintptr_t addr) { return (addr - network_start()) / NETWORK_PAGE; }

void check_registered(const firehose_request_t& request, size_t page, size_t pages) {
  CHECK(page_of(request.addr) <= page);
  CHECK(page_of(request.addr) + request.len / NETWORK_PAGE >= page + pages);
  for (size_t i = 0; i < request.len / NETWORK_PAGE; ++i)
    CHECK(shared->registered[request.node][page_of(request.addr) + i] != 0);
}

void count(const firehose_region_t& region, bool pin) {
  for (size_t i = 0; i < region.len / NETWORK_PAGE; ++i) {
    std::atomic<uint32_t>& pins = shared->registered[peer_me][page_of(region.addr) + i];
    if (pin) {
      ++pins;
    } else {
      CHECK(pins-- != 0);
    }
  }
}

struct Answer {
  std::atomic<const firehose_request_t*> request{nullptr};
};

void completed(void* context, const firehose_request_t* request, int) {
  static_cast<Answer*>(context)->request.store(request, std::memory_order_release);
}

void progress() {
  client_poll();
  firehose_poll();
  std::this_thread::yield();
}

void pin_the_other(size_t page, size_t pages, firehose_request_t* storage) {
  Answer answer;
  const firehose_request_t* request =
      firehose_remote_pin(1 - peer_me, network_page(page), pages * NETWORK_PAGE,
                          FIREHOSE_FLAG_RETURN_IF_PINNED, storage, nullptr, completed, &answer);
  while (request == nullptr && answer.request.load(std::memory_order_acquire) == nullptr)
    progress();
}

void work(unsigned seed) {
  std::mt19937 random(seed);
  for (size_t step = 0; step < kSteps; ++step) {
    const size_t range = random() % 2 == 0 ? 16 : kPages - kLargest;
    const size_t page = random() % range;
    const size_t pages = 1 + random() % kLargest;
    const size_t own_page = random() % (kPages - kLargest);
    firehose_request_t theirs;
    firehose_request_t mine;
    const firehose_request_t* both[2] = {&theirs, &mine};
    pin_the_other(page, pages, &theirs);
    check_registered(theirs, page, pages);
    firehose_local_pin(network_page(own_page), pages * NETWORK_PAGE, &mine);
    check_registered(mine, own_page, pages);
    if (random() % 3 == 0) progress();
    if (random() % 16 == 0)
      firehose_local_invalidate(network_page(random() % range), kLargest * NETWORK_PAGE);
    check_registered(theirs, page, pages);
    firehose_release(both, 2);
    const firehose_request_t* part = firehose_partial_remote_pin(
        1 - peer_me, network_page(page), kLargest * NETWORK_PAGE, 0, nullptr);
    if (part == nullptr) continue;
    check_registered(*part, page_of(part->addr), 1);
    firehose_release(&part, 1);
  }
}

// Both nodes run the same code.
void run() {
  firehose_info_t info;
#ifdef FIREHOSE_PAGE
  const size_t largest = 0;
#else
  const size_t largest = kLargest * NETWORK_PAGE;
#endif
  firehose_init(160 * NETWORK_PAGE, 0, largest, nullptr, 0, FIREHOSE_INIT_FLAG_UNPIN_ON_FINI,
                &info);
  CHECK(info.max_RemotePinSize == (largest != 0 ? largest : 120 * NETWORK_PAGE));
  peer_meet();
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < kThreads; ++i) threads.emplace_back(work, 10 * peer_me + i);
  for (std::thread& thread : threads) thread.join();
  shared->done[peer_me] = true;
  while (!shared->done[1 - peer_me]) progress();
}

void end() {
  firehose_fini();
  for (size_t page = 0; page < kPages; ++page) CHECK(shared->registered[peer_me][page] == 0);
}

}  // namespace

int firehose_move_callback(gex_Rank_t, const firehose_region_t* unpin_list, size_t unpin_num,
                           firehose_region_t* pin_list, size_t pin_num) {
  for (size_t i = 0; i < unpin_num; ++i) count(unpin_list[i], false);
  for (size_t i = 0; i < pin_num; ++i) {
    count(pin_list[i], true);
#ifdef FIREHOSE_CLIENT_T
    pin_list[i].client.registration = 1;
#endif
  }
  return 0;
}

int firehose_remote_callback(gex_Rank_t, const firehose_region_t*, size_t,
                             firehose_remotecallback_args_t*) {
  return -1;  // no test uses it
}

void client_poll() { peer_receive(); }

int main() {
  hydrant_test_alarm(120);
  network_start();
  void* memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED);
  shared = new (memory) Shared{};
  peer_start(run, run, end);
  return 0;
}
