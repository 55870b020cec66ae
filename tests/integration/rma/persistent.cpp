// Persistent puts and gets: prepared once and executed repeatedly.
#include <hydrant/persistent.h>

#include "tests/integration/rma/client.hpp"

#include <cstdio>
#include <cstring>
#include <iterator>
#include <string_view>
#include <sys/mman.h>
#include <thread>
#include <vector>

namespace rma_client {
namespace {

constexpr size_t kSizes[] = {0, 1, 8, 100, 4096, 70000, 600000};

void good(int code, const char* what) {
  if (code != GASNET_OK) wrong("%s: %d, %s", what, code, hydrant_last_error_text());
}
void bad(int code, int wanted, const char* what, std::string_view text) {
  if (code != wanted) wrong("%s: %d instead of %d", what, code, wanted);
  if (std::string_view(hydrant_last_error_text()).find(text) == std::string_view::npos)
    wrong("%s: '%s'", what, hydrant_last_error_text());
}
std::byte value_of(size_t i, unsigned round) {
  return static_cast<std::byte>(i * 31 + round * 17 + 3);
}

uint64_t all_operations() {
  uint64_t sum = 0;
  for (uint32_t path = 0; path < HYDRANT_PATH_COUNT; ++path) {
    hydrant_path_counts_t counts;
    good(hydrant_query_path(GEX_RANK_INVALID, static_cast<hydrant_path_t>(path), &counts),
         "counts");
    sum += counts.put_ops + counts.get_ops;
  }
  return sum;
}

// Transfers to and from `far` of `peer`, several times each.
void there_and_back(gex_Rank_t peer, std::byte* far, size_t bytes) {
  std::vector<std::byte> source(bytes);
  std::vector<std::byte> target(bytes + 1, std::byte{0x77});
  hydrant_operation_t put = nullptr;
  hydrant_operation_t get = nullptr;
  good(hydrant_put_init(team, peer, far, source.data(), bytes, &put), "put_init");
  good(hydrant_get_init(team, peer, far, target.data(), bytes, &get), "get_init");
  // The operation was never started.
  good(hydrant_wait(put), "wait for nothing");
  good(hydrant_test(get), "test of nothing");
  for (unsigned round = 0; round < 6; ++round) {
    for (size_t i = 0; i < bytes; ++i) source[i] = value_of(i, round);
    const uint64_t operations = all_operations();
    good(hydrant_start(put), "start of a put");
    if (round % 2 == 0) {
      good(hydrant_wait(put), "wait");
    } else {
      int code = hydrant_test(put);
      while (code == GASNET_ERR_NOT_READY) code = hydrant_test(put);
      good(code, "test");
    }
    // The firehose is given up: the next start must handle that.
    if (round == 2) good(hydrant_evict(peer, far, bytes), "evict");
    if (round == 4) good(hydrant_prefetch(peer, far, bytes), "prefetch");
    good(hydrant_start_all(&get, 1), "start of a get");
    good(hydrant_wait(get), "wait for a get");
    if (all_operations() != operations + (bytes != 0 ? 2 : 0))
      wrong("two operations are counted as %llu",
            static_cast<unsigned long long>(all_operations() - operations));
    for (size_t i = 0; i < bytes; ++i) {
      if (target[i] != value_of(i, round))
        wrong("%zu bytes, round %u: byte %zu differs", bytes, round, i);
    }
    if (target[bytes] != std::byte{0x77}) wrong("the get wrote a byte beyond the buffer");
  }
  // Freeing an operation that is under way waits for it.
  for (size_t i = 0; i < bytes; ++i) source[i] = value_of(i, 9);
  good(hydrant_start(put), "start");
  good(hydrant_operation_free(&put), "free");
  good(hydrant_start(get), "start");
  good(hydrant_operation_free(&get), "free");
  if (put != nullptr || get != nullptr) wrong("free leaves the operation");
  good(hydrant_operation_free(&put), "free of null");
  for (size_t i = 0; i < bytes; ++i) {
    if (target[i] != value_of(i, 9)) wrong("after free: byte %zu differs", i);
  }
}

void several_at_once(gex_Rank_t peer, std::byte* far) {
  constexpr size_t kCount = 24;
  constexpr size_t kBytes = 3000;
  std::vector<std::byte> source(kCount * kBytes);
  std::vector<std::byte> target(kCount * kBytes);
  hydrant_operation_t puts[kCount] = {};
  hydrant_operation_t gets[kCount] = {};
  for (size_t i = 0; i < kCount; ++i) {
    const size_t at = i * kBytes;
    good(hydrant_put_init(team, peer, far + at, &source[at], kBytes, &puts[i]), "put_init");
    good(hydrant_get_init(team, peer, far + at, &target[at], kBytes, &gets[i]), "get_init");
  }
  for (unsigned round = 0; round < 4; ++round) {
    for (size_t i = 0; i < source.size(); ++i) source[i] = value_of(i, round);
    good(hydrant_start_all(puts, kCount), "start_all");
    for (hydrant_operation_t put : puts) good(hydrant_wait(put), "wait");
    good(hydrant_start_all(gets, kCount), "start_all");
    for (hydrant_operation_t get : gets) good(hydrant_wait(get), "wait");
    if (target != source) wrong("several at once, round %u: the data differ", round);
  }
  good(hydrant_start_all(nullptr, 0), "start_all of nothing");
  for (size_t i = 0; i < kCount; ++i) {
    good(hydrant_operation_free(&puts[i]), "free");
    good(hydrant_operation_free(&gets[i]), "free");
  }
}

// Created by one thread, executed by another, and by a third; started and awaited by the same thread.
void by_other_threads(gex_Rank_t peer, std::byte* far) {
  uint64_t source = 1;
  uint64_t target = 0;
  hydrant_operation_t put = nullptr;
  hydrant_operation_t get = nullptr;
  good(hydrant_put_init(team, peer, far, &source, sizeof source, &put), "put_init");
  good(hydrant_get_init(team, peer, far, &target, sizeof target, &get), "get_init");
  for (int round = 0; round < 5; ++round) {
    ++source;
    std::thread([&] {
      good(hydrant_start(put), "start");
      good(hydrant_wait(put), "wait");
      good(hydrant_start(get), "start");
      good(hydrant_wait(get), "wait");
    }).join();
    if (target != source) wrong("by another thread: the data differ");
  }
  std::thread([&] {
    good(hydrant_operation_free(&put), "free");
    good(hydrant_operation_free(&get), "free");
  }).join();
}

void misused(gex_Rank_t peer, std::byte* far) {
  std::vector<std::byte> near(600000);
  hydrant_operation_t none = nullptr;
  auto* const high = reinterpret_cast<std::byte*>(UINTPTR_MAX - 9);
  constexpr int kBad = GASNET_ERR_BAD_ARG;
  bad(hydrant_put_init(team, size, far, near.data(), 8, &none), kBad, "no rank", "does not exist");
  bad(hydrant_get_init(team, peer, nullptr, near.data(), 8, &none), kBad, "null",
      "remote address is NULL");
  bad(hydrant_put_init(team, peer, far, nullptr, 8, &none), kBad, "null", "local address is NULL");
  bad(hydrant_put_init(team, peer, high, near.data(), 100, &none), kBad, "wrap", "wrap around");
  bad(hydrant_put_init(team, peer, far, near.data(), 8, nullptr), kBad, "no operation", "is NULL");
  if (none != nullptr) wrong("an invalid call created an operation");
  bad(hydrant_start(nullptr), kBad, "start", "is NULL");
  bad(hydrant_wait(nullptr), kBad, "wait", "is NULL");
  bad(hydrant_test(nullptr), kBad, "test", "is NULL");
  bad(hydrant_start_all(nullptr, 2), kBad, "start_all", "is NULL");
  bad(hydrant_start_all(&none, 1), kBad, "start_all", "is NULL");
  bad(hydrant_prefetch(size, far, 8), kBad, "prefetch", "rank");
  bad(hydrant_evict(size, far, 8), kBad, "evict", "rank");
  bad(hydrant_prefetch(peer, high, 100), kBad, "prefetch", "wrap around");
  bad(hydrant_evict(peer, high, 100), kBad, "evict", "wrap around");
  good(hydrant_evict(peer, nullptr, 0), "evict of nothing");
  good(hydrant_prefetch(me, far, 8), "prefetch of own memory");
  // The second start is refused while the first is under way, and changes nothing.
  hydrant_operation_t put = nullptr;
  good(hydrant_put_init(team, peer, far, near.data(), near.size(), &put), "put_init");
  good(hydrant_start(put), "start");
  const int code = hydrant_start(put);
  if (code != GASNET_OK) bad(code, kBad, "start twice", "under way");
  good(hydrant_wait(put), "wait");
  good(hydrant_start(put), "start again");
  good(hydrant_operation_free(&put), "free");
}

// The owner replaces memory at the same address: the other ranks' next rounds find the new memory.
void after_it_went_away() {
  constexpr size_t kBytes = 65536;
  constexpr unsigned kRounds = 6;
  static std::byte* mine = nullptr;
  mine = static_cast<std::byte*>(
      mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  if (mine == MAP_FAILED) wrong("mmap");
  std::memcpy(area(me, kHeap), &mine, sizeof mine);
  barrier();
  const gex_Rank_t peer = (me + 1) % size;
  std::byte* far = nullptr;
  gasnet_get(&far, peer, area(peer, kHeap), sizeof far);
  std::vector<std::byte> source(kBytes);
  hydrant_operation_t put = nullptr;
  good(hydrant_put_init(team, peer, far, source.data(), kBytes, &put), "put_init");
  for (unsigned round = 0; round < kRounds; ++round) {
    barrier();
    if (mmap(mine, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
             0) != mine)
      wrong("mmap");
    barrier();
    for (size_t i = 0; i < kBytes; ++i) source[i] = value_of(i, round);
    good(hydrant_start(put), "start");
    good(hydrant_wait(put), "wait");
    barrier();
    for (size_t i = 0; i < kBytes; ++i) {
      if (mine[i] != value_of(i, round)) wrong("new memory, round %u: byte %zu differs", round, i);
    }
  }
  good(hydrant_operation_free(&put), "free");
  barrier();
  munmap(mine, kBytes);
}

}  // namespace

void persistent() {
  const gex_Rank_t peer = (me + 1) % size;
  for (size_t bytes : kSizes) {
    // The range crosses a page boundary at an odd address.
    there_and_back(peer, area(peer, kSegment) + 1, bytes);
    there_and_back(peer, area(peer, kHeap) + 4095, bytes);
    there_and_back(me, area(me, kStatic) + 1, bytes);
    barrier();
  }
  several_at_once(peer, area(peer, kMapped) + 7);
  by_other_threads(peer, area(peer, kSegment) + 8);
  by_other_threads(me, area(me, kStatic));
  barrier();
  misused(peer, area(peer, kMapped));
  barrier();
  after_it_went_away();
}

}  // namespace rma_client
