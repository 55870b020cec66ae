// Question: what do a posting and an arrival that match cost, in one list without a lock and in others with?
//
// Unit: nanoseconds per matched pair *per thread* (column Time, "real_time" in the JSON), whatever the
// number of threads: the time handed to Google Benchmark is multiplied by it. p50_ns is the median of
// batches of 1024 pairs, which mostly were not interrupted.
//
// Rows   PATTERN/SUBJECT/depth:N/threads:T; N others wait, with keys that nobody asks for in this pair
//        front   the oldest posting is matched, and posted again
//        back    a posting joins N older ones and is matched
//        past    a posting goes past N unexpected arrivals, joins, and is matched
//        cross   one thread posts, another one arrives with the same keys; each runs up to 8 pairs ahead of
//                the other, and N wait on either side. Here a pair costs each of the two one call
//        back with 4 threads: two threads on each of two cores; Time has the waits for those who do not run
// Subject unified          firehose/base/match_queue.hpp
//         unified_mutex    the same list and its three dummies, under a mutex
//         two_lists        a list of postings and one of arrivals, under one mutex
//         two_lists_spin   the same under a spin lock that yields
//         hash             256 pairs of such lists by hash of the key, under one mutex
//         slots            no list: a word per key, which the first comer fills and the second one finds;
//                          for keys out of a table, as moves, ranks and rounds are
//
// One thread in a process that never had another one is a case of its own: HYDRANT_NO_THREAD=1 in the
// environment.
//
// Not included: what the caller does with a match. Elements have a line of their own each.
#include "bench/support/bench_main.hpp"
#include "bench/support/locked_queues.hpp"
#include "bench/support/machine.hpp"
#include "firehose/base/match_queue.hpp"

#include <benchmark/benchmark.h>

#include <atomic>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <sched.h>
#include <string>
#include <thread>
#include <vector>

namespace hydrant::bench {
namespace {

constexpr size_t kBatch = 1024;  // pairs between two looks at the clock
constexpr uint32_t kThreads = 4;
constexpr uint32_t kAhead = 8;
constexpr uint32_t kDepths[] = {0, 4, 8, 16, 64, 1024};
constexpr uint64_t kForeign = uint64_t{1} << 40;  // keys that nobody asks for

// ---- subjects ----

template <typename Element>
struct alignas(64) Item : Element {};

class Unified {
 public:
  using ItemType = Item<MatchElement>;
  explicit Unified(std::vector<ItemType>& items) {
    if (queue_.use(items.data(), static_cast<uint32_t>(items.size())) != Status::kOk) std::abort();
  }
  ItemType* post(ItemType& item, uint64_t key) { return queue_.post(item, {key}); }
  ItemType* arrive(ItemType& item, uint64_t key) { return queue_.arrive(item, {key}); }

 private:
  MatchQueue<ItemType> queue_;
};

template <typename Queue>
class UnderLock {
 public:
  using ItemType = Item<LockedElement>;
  explicit UnderLock(std::vector<ItemType>&) {}
  ItemType* post(ItemType& item, uint64_t key) {
    return static_cast<ItemType*>(queue_.post(item, {key}));
  }
  ItemType* arrive(ItemType& item, uint64_t key) {
    return static_cast<ItemType*>(queue_.arrive(item, {key}));
  }

 private:
  Queue queue_;
};

// A slot per key, on a line of its own, for as many keys as the row has alive at once (a power of two); a key
// that comes back finds its slot empty. The mark says which side came first: two of one side are no match.
class Slots {
 public:
  using ItemType = Item<LockedElement>;
  explicit Slots(std::vector<ItemType>& items)
      : each_(std::bit_ceil(items.size()) * kThreads), slots_(2 * each_) {}
  ItemType* post(ItemType& item, uint64_t key) { return meet(item, key, kPosting); }
  ItemType* arrive(ItemType& item, uint64_t key) { return meet(item, key, kArrival); }

 private:
  static constexpr uintptr_t kPosting = 1, kArrival = 2, kMarks = 3;
  struct alignas(64) Slot {
    std::atomic<uintptr_t> word{0};
  };

  ItemType* meet(ItemType& item, uint64_t key, uintptr_t mark) {
    // The keys of those who only wait have slots of their own.
    const size_t at = (key & (each_ - 1)) + (key >= kForeign ? each_ : 0);
    std::atomic<uintptr_t>& word = slots_[at].word;
    const uintptr_t first =
        word.exchange(reinterpret_cast<uintptr_t>(&item) | mark, std::memory_order_acq_rel);
    if (first == 0) return nullptr;
    if ((first & mark) != 0) std::abort();
    word.store(0, std::memory_order_release);  // both have come: nobody else looks at it
    return reinterpret_cast<ItemType*>(first & ~kMarks);
  }

  size_t each_;
  std::vector<Slot> slots_;
};

// A queue and its elements: for each thread those who wait, and whom its pairs need.
template <typename Subject>
struct Table {
  Table(int threads, uint32_t depth)
      : each(depth + kAhead), items(static_cast<uint32_t>(threads) * each), queue(items) {}
  typename Subject::ItemType& item(int thread, uint32_t i) {
    return items[static_cast<uint32_t>(thread) * each + i];
  }
  typename Subject::ItemType& last(int thread) { return item(thread, each - 1); }

  uint32_t each;
  std::vector<typename Subject::ItemType> items;
  Subject queue;
};

uint64_t key_of(int thread, uint32_t i) {
  return uint64_t{i} * kThreads + static_cast<uint64_t>(thread);
}

// ---- patterns: prepare() once per thread, run() for a batch; false when something did not match ----

template <typename Subject>
class Front {
 public:
  static constexpr bool kNeedsTwo = false;
  void prepare(Table<Subject>& t, int thread, uint32_t depth) {
    waiting_ = depth + 1;
    for (uint32_t i = 0; i < waiting_; ++i) t.queue.post(t.item(thread, i), key_of(thread, i));
  }
  bool run(Table<Subject>& t, int thread) {
    bool good = true;
    for (size_t i = 0; i < kBatch; ++i) {
      const uint64_t key = key_of(thread, oldest_);
      auto* match = t.queue.arrive(t.last(thread), key);
      good &= match == &t.item(thread, oldest_);
      good &= t.queue.post(t.item(thread, oldest_), key) == nullptr;
      if (++oldest_ == waiting_) oldest_ = 0;
    }
    return good;
  }

 private:
  uint32_t waiting_ = 0;
  uint32_t oldest_ = 0;
};

// Where the others wait makes the difference between the two.
template <typename Subject, bool kPosted>
class Fresh {
 public:
  static constexpr bool kNeedsTwo = false;
  void prepare(Table<Subject>& t, int thread, uint32_t depth) {
    for (uint32_t i = 0; i < depth; ++i) {
      const uint64_t key = kForeign + key_of(thread, i);
      if (kPosted) {
        t.queue.post(t.item(thread, i), key);
      } else {
        t.queue.arrive(t.item(thread, i), key);
      }
    }
  }
  bool run(Table<Subject>& t, int thread) {
    bool good = true;
    auto& posting = t.item(thread, t.each - 2);
    for (size_t i = 0; i < kBatch; ++i) {
      const uint64_t key = key_of(thread, next_++);
      good &= t.queue.post(posting, key) == nullptr;
      good &= t.queue.arrive(t.last(thread), key) == &posting;
    }
    return good;
  }

 private:
  uint32_t next_ = 0;
};
template <typename Subject>
using Back = Fresh<Subject, true>;
template <typename Subject>
using Past = Fresh<Subject, false>;

template <typename Subject>
class Cross {
 public:
  static constexpr bool kNeedsTwo = true;
  // All of the row's depth on either side.
  void prepare(Table<Subject>& t, int thread, uint32_t depth) {
    for (uint32_t i = 0; i < depth; ++i) {
      const uint64_t key = kForeign + key_of(thread, i);
      if (thread == 0) {
        t.queue.post(t.item(thread, kAhead + i), key);
      } else {
        t.queue.arrive(t.item(thread, kAhead + i), key);
      }
    }
  }
  // Both threads of a row do equally many batches.
  bool run(Table<Subject>& t, int thread) {
    static std::atomic<uint64_t> done[kThreads][8];  // a line for each thread
    auto& mine = done[thread][0];
    auto& other = done[1 - thread][0];
    bool good = true;
    for (size_t i = 0; i < kBatch; ++i) {
      const uint64_t move = mine.load(std::memory_order_relaxed);
      for (int spins = 0; other.load(std::memory_order_acquire) + kAhead <= move; ++spins) {
        if (spins % 1024 == 1023) sched_yield();
      }
      auto& item = t.item(thread, static_cast<uint32_t>(move % kAhead));
      auto* match = thread == 0 ? t.queue.post(item, move) : t.queue.arrive(item, move);
      good &=
          match == nullptr || match == &t.item(1 - thread, static_cast<uint32_t>(move % kAhead));
      mine.store(move + 1, std::memory_order_release);
    }
    return good;
  }
};

template <typename Pattern, typename Subject>
void measure(benchmark::State& state, Table<Subject>& table, Pattern& pattern) {
  const OnCore here(state.thread_index());
  bool good = true;
  std::vector<double> batch_ns;
  while (state.KeepRunningBatch(kBatch)) {
    const uint64_t start = now_ns();
    good &= pattern.run(table, state.thread_index());
    const auto elapsed = static_cast<double>(now_ns() - start);
    state.SetIterationTime(elapsed * 1e-9 * state.threads());
    batch_ns.push_back(elapsed / kBatch);
  }
  using benchmark::Counter;
  state.counters["p50_ns"] = Counter(quantile(batch_ns, 0.50), Counter::kAvgThreads);
  if (!good) state.SkipWithError("a pair did not match as it should");
}

// Table and patterns are made when the row's first thread comes, and stay: all repetitions measure the same.
template <typename Pattern, typename Subject>
void add_row(const std::string& name, uint32_t depth, int threads) {
  struct Made {
    Made(int threads, uint32_t each) : table(threads, each) {}
    Table<Subject> table;
    Pattern patterns[kThreads];
  };
  struct Shared {
    std::once_flag once;
    std::unique_ptr<Made> made;
  };
  const auto shared = std::make_shared<Shared>();
  const auto body = [=](benchmark::State& state) {
    std::call_once(shared->once, [&] {
      const auto each = Pattern::kNeedsTwo ? depth : depth / static_cast<uint32_t>(threads);
      shared->made = std::make_unique<Made>(threads, each);
      for (int t = 0; t < threads; ++t) {
        shared->made->patterns[t].prepare(shared->made->table, t, each);
      }
    });
    Made& made = *shared->made;
    measure<Pattern, Subject>(state, made.table, made.patterns[state.thread_index()]);
  };
  benchmark::RegisterBenchmark((name + "/depth:" + std::to_string(depth)).c_str(), body)
      ->UseManualTime()
      ->Threads(threads);
}

template <template <typename> class Pattern>
void add_subjects(const std::string& pattern, uint32_t depth, int threads) {
  using TwoListsMutex = UnderLock<TwoLists<Mutex>>;
  using TwoListsSpin = UnderLock<TwoLists<SpinLock>>;
  using UnifiedMutex = UnderLock<UnifiedUnderLock<Mutex>>;
  using Hash = UnderLock<HashedLists<Mutex>>;
  add_row<Pattern<Unified>, Unified>(pattern + "/unified", depth, threads);
  add_row<Pattern<UnifiedMutex>, UnifiedMutex>(pattern + "/unified_mutex", depth, threads);
  add_row<Pattern<TwoListsMutex>, TwoListsMutex>(pattern + "/two_lists", depth, threads);
  add_row<Pattern<TwoListsSpin>, TwoListsSpin>(pattern + "/two_lists_spin", depth, threads);
  add_row<Pattern<Hash>, Hash>(pattern + "/hash", depth, threads);
  add_row<Pattern<Slots>, Slots>(pattern + "/slots", depth, threads);
}

void add_all_rows() {
  const bool two_cores = usable_cores().size() >= 2;
  for (const uint32_t depth : kDepths) {
    for (const int threads : {1, 2}) {
      if (threads == 2 && !two_cores) continue;
      add_subjects<Front>("front", depth, threads);
      add_subjects<Back>("back", depth, threads);
      add_subjects<Past>("past", depth, threads);
    }
    if (two_cores) add_subjects<Cross>("cross", depth, 2);
  }
  // On two cores, two threads each: who has to wait for one that does not run?
  add_subjects<Back>("back", 4, static_cast<int>(kThreads));
}

}  // namespace
}  // namespace hydrant::bench

int main(int argc, char** argv) {
  // Until a process starts its first thread, glibc's mutex does without locked instructions: every row is to
  // have them, whichever rows run. HYDRANT_NO_THREAD in the environment measures the other case.
  if (std::getenv("HYDRANT_NO_THREAD") == nullptr) std::thread([] {}).join();
  hydrant::bench::add_all_rows();
  return hydrant::bench::run_program(argc, argv, "0.01");
}
