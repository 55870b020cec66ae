// Between pinned memory: messages of hits and misses, hits while the target is inactive, and a target
// that must wait for a peer that does not poll.
#include "extended/binding/firehose_binding.hpp"
#include "extended/rma/pinned/rma_pinned.hpp"
#include "tests/integration/rma/client.hpp"
#include "tests/support/patience.hpp"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

namespace rma_client {
namespace {

constexpr size_t kPage = 4096;

hydrant_remote_stats_t remote_statistics() {
  hydrant_remote_stats_t stats{};
  stats.size = sizeof stats;
  if (hydrant_remote_get_stats(hydrant::firehose().end, &stats) != GASNET_OK)
    wrong("this job has no firehoses");
  return stats;
}

// Messages of rank 0 and its peer for puts and gets, and the paths of rank 0's operations.
struct Book {
  hydrant_remote_stats_t mine;
  hydrant_path_counts_t paths[HYDRANT_PATH_COUNT];

  Book() : mine(remote_statistics()) {
    for (uint32_t i = 0; i < HYDRANT_PATH_COUNT; ++i)
      hydrant_query_path(1, static_cast<hydrant_path_t>(i), &paths[i]);
  }
  uint64_t operations(hydrant_path_t path) const {
    return paths[path].put_ops + paths[path].get_ops;
  }
};

// Expects `operations` operations on `path` and no other since `before`, with that many requests of
// this rank, no reply, and that many hits.
void expect(const char* what, const Book& before, hydrant_path_t path, uint64_t operations,
            uint64_t requests, uint64_t hits) {
  const Book now;
  for (uint32_t i = 0; i < HYDRANT_PATH_COUNT; ++i) {
    const auto one = static_cast<hydrant_path_t>(i);
    const uint64_t wanted = one == path ? operations : 0;
    const uint64_t made = now.operations(one) - before.operations(one);
    if (made != wanted)
      wrong("%s: %llu operations by %s instead of %llu", what,
            static_cast<unsigned long long>(made), hydrant_path_name(one),
            static_cast<unsigned long long>(wanted));
  }
  const auto same = [what](const char* name, uint64_t made, uint64_t wanted) {
    if (made != wanted)
      wrong("%s: %llu %s instead of %llu", what, static_cast<unsigned long long>(made), name,
            static_cast<unsigned long long>(wanted));
  };
  same("requests", now.mine.requests - before.mine.requests, requests);
  same("replies", now.mine.replies - before.mine.replies, 0);
  same("moves", now.mine.moves - before.mine.moves, requests);
  same("hits", now.mine.hits - before.mine.hits, hits);
}

std::byte byte_of(size_t i) { return static_cast<std::byte>(i * 7 + 1); }

struct Case {
  const char* what;
  bool is_put;
  size_t bytes;
  hydrant_path_t path;
};
// Small: at most HYDRANT_PUT_IN_MOVE_MAX, 4096. For a large get the target puts the data before it replies.
constexpr Case kMisses[] = {
    {"a small put", true, 100, HYDRANT_PATH_IN_MOVE},
    {"a small get", false, 100, HYDRANT_PATH_IN_MOVE},
    {"a put of one byte", true, 1, HYDRANT_PATH_IN_MOVE},
    {"the longest put in a move", true, 4096, HYDRANT_PATH_IN_MOVE},
    {"a large put", true, 50000, HYDRANT_PATH_RENDEZVOUS},
    {"a large get", false, 50000, HYDRANT_PATH_IN_MOVE},
    {"a get into memory of its own", false, 4097, HYDRANT_PATH_IN_MOVE},
};
constexpr size_t kApart = size_t{1} << 20;

void transfer(const Case& one, std::byte* far, std::byte* near) {
  if (one.is_put) {
    gex_RMA_PutBlocking(team, 1, far, near, one.bytes, 0);
  } else {
    gex_RMA_GetBlocking(team, near, 1, far, one.bytes, 0);
  }
}

// A range that does not start at a page boundary needs one page more.
void initiate() {
  std::vector<std::byte> near(65536);
  for (uint32_t i = 0; i < std::size(kMisses); ++i) {
    const Case& one = kMisses[i];
    std::byte* const far = area(1, kMapped) + i * kApart + 5 * kPage;
    for (size_t at = 0; at < one.bytes; ++at) near[at] = one.is_put ? byte_of(at) : std::byte{0};
    Book before;
    transfer(one, far, near.data());
    expect(one.what, before, one.path, 1, 1, 0);
    for (size_t at = 0; !one.is_put && at < one.bytes; ++at) {
      if (near[at] != byte_of(at)) wrong("%s: byte %zu is another", one.what, at);
    }
    const Book after;
    for (int hit = 0; hit < 50; ++hit) transfer(one, far, near.data());
    expect(one.what, after, HYDRANT_PATH_FIREHOSE, 50, 0, 50);
  }
  // Prefetched before use.
  std::byte* const far = area(1, kMapped) + std::size(kMisses) * kApart;
  const Book before;
  if (hydrant_prefetch(1, far, 100) != GASNET_OK) wrong("hydrant_prefetch");
  const double limit = now_s() + 60 * hydrant::testing::patience();
  hydrant_pin_t pin{};
  while (pin.region == nullptr && now_s() < limit) {
    gasnet_AMPoll();
    pin = hydrant_try_remote_pin(hydrant::firehose().end, 1, reinterpret_cast<uintptr_t>(far), 100,
                                 HYDRANT_REMOTE_WRITE);
  }
  if (pin.region == nullptr || hydrant_remote_release(pin) != GASNET_OK) wrong("no firehose comes");
  const Book asked;
  if (asked.mine.requests != before.mine.requests + 1) wrong("a prefetch is not one request");
  gex_RMA_PutBlocking(team, 1, far, near.data(), 100, 0);
  expect("a put after a prefetch", asked, HYDRANT_PATH_FIREHOSE, 1, 0, 1);
  // After an eviction the next access misses; the move carries the returned firehose, or it is sent alone.
  if (hydrant_evict(1, far, 100) != GASNET_OK) wrong("hydrant_evict");
  gex_RMA_PutBlocking(team, 1, far, near.data(), 100, 0);
  if (remote_statistics().moves != asked.mine.moves + 1) wrong("after hydrant_evict it still hits");
  if (hydrant::refused_operation_count() != 0) wrong("the network has refused something");
}

}  // namespace

// Rank 0 works on memory of rank 1, whose own counters record received and sent messages.
void count_messages() {
  for (uint32_t i = 0; i < std::size(kMisses) && me == 1; ++i) {
    for (size_t at = 0; !kMisses[i].is_put && at < kMisses[i].bytes; ++at)
      area(me, kMapped)[i * kApart + 5 * kPage + at] = byte_of(at);
  }
  const hydrant_remote_stats_t before = remote_statistics();
  barrier();
  if (me == 0) initiate();
  barrier();
  const hydrant_remote_stats_t now = remote_statistics();
  const uint64_t moves = std::size(kMisses) + 2;
  if (me == 1 && (now.served - before.served != moves || now.replies - before.replies != moves ||
                  now.requests != before.requests || now.declined != before.declined))
    wrong("%llu moves were served, with %llu replies and %llu requests, instead of %llu",
          static_cast<unsigned long long>(now.served - before.served),
          static_cast<unsigned long long>(now.replies - before.replies),
          static_cast<unsigned long long>(now.requests - before.requests),
          static_cast<unsigned long long>(moves));
  for (uint32_t i = 0; i < std::size(kMisses) && me == 1; ++i) {
    for (size_t at = 0; at < kMisses[i].bytes; ++at) {
      if (area(me, kMapped)[i * kApart + 5 * kPage + at] != byte_of(at))
        wrong("%s: byte %zu is another", kMisses[i].what, at);
    }
  }
}

namespace {

// In a mapping of the program's file.
std::byte initialised[64 * kPage] = {std::byte{1}};

hydrant_stats_t own_statistics() {
  hydrant_stats_t stats{};
  stats.size = sizeof stats;
  if (hydrant_get_stats(hydrant::firehose().domain, &stats) != GASNET_OK) wrong("no statistics");
  return stats;
}

}  // namespace

// Static memory at both ends is pinned and requested once, like other memory.
void use_variables() {
  std::byte* far = initialised + 7;
  std::byte* const near = initialised + 32 * kPage + 9;
  if (me == 1) std::memcpy(area(1, kMapped), &far, sizeof far);
  barrier();
  if (me == 0) {
    gex_RMA_GetBlocking(team, &far, 1, area(1, kMapped), sizeof far, 0);
    const Case one{"a put between variables", true, 50000, HYDRANT_PATH_RENDEZVOUS};
    for (size_t at = 0; at < one.bytes; ++at) near[at] = byte_of(at);
    const Book first;
    transfer(one, far, near);
    expect(one.what, first, one.path, 1, 1, 0);
    const Book second;
    const hydrant_stats_t mine = own_statistics();
    for (int hit = 0; hit < 50; ++hit) transfer(one, far, near);
    expect("more of them", second, HYDRANT_PATH_FIREHOSE, 50, 0, 50);
    const hydrant_stats_t now = own_statistics();
    if (now.pins != mine.pins)
      wrong("this end's variables were pinned %llu times again",
            static_cast<unsigned long long>(now.pins - mine.pins));
  }
  barrier();
  for (size_t at = 0; me == 1 && at < 50000; ++at) {
    if (initialised[7 + at] != byte_of(at)) wrong("byte %zu is another", at);
  }
}

// Rank 1 reads its memory until a word shows that everything has arrived; it makes no library calls.
void hits_without_target() {
  constexpr uint64_t kOperations = 500;
  auto* const word = static_cast<std::atomic<uint64_t>*>(static_cast<void*>(area(1, kMapped)));
  if (me == 1) word->store(0);
  barrier();
  uint64_t value = 0;
  if (me == 0) gex_RMA_PutBlocking(team, 1, word, &value, 8, 0);
  barrier();
  if (me == 1) {
    const double limit = now_s() + 60 * hydrant::testing::patience();
    while (word->load(std::memory_order_acquire) != kOperations) {
      usleep(1000);
      if (now_s() > limit)
        wrong("%llu puts have come", static_cast<unsigned long long>(word->load()));
    }
  } else if (me == 0) {
    const Book before;
    for (uint64_t i = 1; i <= kOperations; ++i) {
      if (i % 2 == 0) {
        gex_RMA_PutBlocking(team, 1, word, &i, 8, 0);
      } else {
        gex_Event_Wait(gex_RMA_PutNB(team, 1, word, &i, 8, GEX_EVENT_NOW, 0));
      }
      if (i == kOperations) break;  // rank 1 continues now
      uint64_t got = 0;
      gex_RMA_GetBlocking(team, &got, 1, word, 8, 0);
      if (got != i) wrong("%llu came back", static_cast<unsigned long long>(got));
    }
    expect("without the target", before, HYDRANT_PATH_FIREHOSE, 2 * kOperations - 1, 0,
           2 * kOperations - 1);
  }
  barrier();
}

namespace {

volatile std::sig_atomic_t told = 0;

void wait_until_told(double seconds) {
  for (const double end = now_s() + seconds; told == 0 && now_s() < end;) usleep(10000);
}

}  // namespace

// SIGUSR1 tells rank 0 that rank 1 has stopped polling, and tells rank 1 to continue.
void recall_from_deaf(double seconds) {
  std::signal(SIGUSR1, [](int) { told = 1; });
  std::printf("rank %u of %u by %d\n", me, size, static_cast<int>(getpid()));
  std::fflush(stdout);
  void* mine = nullptr;
  if (me == 0) {
    mine = mmap(nullptr, 16 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mine == MAP_FAILED) wrong("mmap");
    std::memcpy(area(0, kHeap), &mine, sizeof mine);
  }
  barrier();
  if (me == 1) {
    std::byte* far = nullptr;
    gasnet_get(&far, 0, area(0, kHeap), sizeof far);
    for (int i = 0; i < 2; ++i) gasnet_put(0, far, area(1, kHeap), 1000);
    if (remote_statistics().firehoses == 0) wrong("rank 1 has no firehose");
  }
  barrier();
  if (me == 1) {
    std::printf("deaf\n");
    std::fflush(stdout);
    wait_until_told(seconds);
  } else if (me == 0) {
    wait_until_told(60 * hydrant::testing::patience());
    if (munmap(mine, 16 * kPage) != 0) wrong("munmap");
    // munmap() does not wait; but a rank that gets a message must not reach the old memory.
    const hydrant_remote_stats_t before = remote_statistics();
    uint64_t value = 1;
    gasnet_put(2, area(2, kHeap), &value, sizeof value);
    const hydrant_remote_stats_t now = remote_statistics();
    const bool is_bad = before.exports == 0 || now.zombies != 0 || now.recalls == 0;
    // If the job ends, this wait ends too, with this rank.
    if (is_bad) usleep(3'000'000);
    if (is_bad)
      wrong("%llu exports before, %llu zombies now, %llu recalls",
            static_cast<unsigned long long>(before.exports),
            static_cast<unsigned long long>(now.zombies),
            static_cast<unsigned long long>(now.recalls));
  }
  barrier();
  if (me == 1 && remote_statistics().recalled == 0) wrong("nothing was taken back from rank 1");
}

}  // namespace rma_client
