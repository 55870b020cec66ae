// Question: what does it cost to take a pre-pinned buffer from the pool and to return it?
//
// Unit: nanoseconds per take+return *per thread* (column Time, "real_time" in the JSON). Google Benchmark
// divides by the number of threads, so the time that it is given is multiplied by it. p50_ns is the median of
// batches of 4096, most of which were not interrupted.
//
// Rows   PATTERN/SUBJECT/bytes:SIZE/threads:T
//        pair       take one, return it
//        burst      take 32, return 32: more than a magazine, so that the stack takes part
//        handoff    one thread takes, another returns: through a ring, which every subject's row includes
//        exhausted  a take that answers "not now" because all buffers are out
// Subject pool          the pool with its default magazines
//         stack         the same pool without magazines: the shared stack alone
//         malloc        malloc and free of the same size
//         mutex_list    a vector of free buffers under a std::mutex
//         floor         pair, burst: a locked increment and decrement in a cache line of the thread;
//                       handoff: the ring alone
//
// Not included: creating the pool (mapping, page faults, registration; the registrar does nothing here),
// using the memory, which no row touches, and a thread's first call. These rows cause no thefts (`raided`
// would show them). FIREHOSE_MEMBARRIER=n in the environment measures owners with a full fence.
#include "bench/support/bench_main.hpp"
#include "bench/support/machine.hpp"
#include "bench/support/memory.hpp"
#include "firehose/base/buffer_pool/buffer_pool.hpp"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace hydrant::bench {
namespace {

constexpr size_t kBatch = 4096;  // between two readings of the clock
constexpr size_t kBurst = 32;
constexpr uint32_t kBuffers = 1024;
constexpr size_t kSizes[] = {4 * kKiB, 64 * kKiB};

class NoRegistrar final : public Registrar {
 public:
  const RegistrarTraits& traits() const noexcept override { return traits_; }
  Status pin(MemoryRange, Access, std::byte*) noexcept override { return Status::kOk; }
  UnpinResult unpin(MemoryRange, const std::byte*) noexcept override { return UnpinResult::kDone; }

 private:
  RegistrarTraits traits_{};
};

// ---- subjects: take() returns null if no buffer is free ----

class Pool {
 public:
  Pool(size_t bytes, uint32_t depth) : bytes_(bytes) {
    BufferPoolOptions options;
    options.smallest_bytes = bytes;
    options.largest_bytes = bytes;
    options.counts[0] = kBuffers;
    options.magazine_depth = depth;
    if (BufferPool::create(registrar_, options, &pool_) != Status::kOk) {
      std::fprintf(stderr, "%s\n", last_error_text());
      std::exit(1);
    }
  }
  void* take() {
    PoolBuffer buffer;
    return pool_->take(bytes_, &buffer) == Status::kOk ? buffer.addr : nullptr;
  }
  bool give_back(void* addr) { return pool_->release_buffer(addr) == Status::kOk; }
  double stolen() const { return static_cast<double>(pool_->stats(0).stolen); }

 private:
  NoRegistrar registrar_;
  size_t bytes_;
  std::unique_ptr<BufferPool> pool_;
};

class WithMagazines : public Pool {
 public:
  explicit WithMagazines(size_t bytes) : Pool(bytes, BufferPoolOptions{}.magazine_depth) {}
};

class StackAlone : public Pool {
 public:
  explicit StackAlone(size_t bytes) : Pool(bytes, 0) {}
};

class Malloc {
 public:
  explicit Malloc(size_t bytes) : bytes_(bytes) {}
  void* take() { return std::malloc(bytes_); }
  bool give_back(void* addr) {
    std::free(addr);
    return true;
  }

 private:
  size_t bytes_;
};

class MutexList {
 public:
  explicit MutexList(size_t bytes) : memory_(bytes * kBuffers, PageKind::kReserved) {
    for (uint32_t i = kBuffers; i-- > 0;) free_.push_back(memory_.at(i * bytes));
  }
  void* take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return nullptr;
    void* addr = free_.back();
    free_.pop_back();
    return addr;
  }
  bool give_back(void* addr) {
    const std::lock_guard lock(mutex_);
    free_.push_back(addr);
    return true;
  }

 private:
  Memory memory_;
  std::mutex mutex_;
  std::vector<void*> free_;
};

// A subject all of whose buffers are out.
template <typename Subject>
class Drained : public Subject {
 public:
  explicit Drained(size_t bytes) : Subject(bytes) {
    while (Subject::take() != nullptr) {
    }
  }
};

class Floor {
 public:
  explicit Floor(size_t) {}
  static void* take() {
    count().fetch_add(1, std::memory_order_acquire);
    return &count();
  }
  static bool give_back(void*) {
    count().fetch_sub(1, std::memory_order_release);
    return true;
  }

 private:
  static std::atomic<int>& count() {
    alignas(64) static thread_local std::atomic<int> own{0};
    return own;
  }
};

class Nothing {
 public:
  explicit Nothing(size_t) {}
  void* take() { return this; }
  static bool give_back(void*) { return true; }
};

// ---- patterns: kBatch takes and returns; false if one failed ----

struct Pair {
  template <typename Subject>
  static bool run(Subject& subject, int /*thread*/) {
    bool good = true;
    for (size_t i = 0; i < kBatch; ++i) {
      void* addr = subject.take();
      benchmark::DoNotOptimize(addr);
      good &= addr != nullptr && subject.give_back(addr);
    }
    return good;
  }
};

struct Burst {
  template <typename Subject>
  static bool run(Subject& subject, int /*thread*/) {
    bool good = true;
    void* held[kBurst];
    for (size_t done = 0; done < kBatch; done += kBurst) {
      for (void*& addr : held) {
        addr = subject.take();
        benchmark::DoNotOptimize(addr);
        good &= addr != nullptr;
      }
      for (void* addr : held) good &= subject.give_back(addr);
    }
    return good;
  }
};

// A ring between two threads. Both yield while they wait, for machines with few processors.
class Ring {
 public:
  void put(void* addr) {
    const size_t at = tail_.load(std::memory_order_relaxed);
    wait([&] { return at - head_.load(std::memory_order_acquire) < kPlaces; });
    places_[at % kPlaces] = addr;
    tail_.store(at + 1, std::memory_order_release);
  }
  void* get() {
    const size_t at = head_.load(std::memory_order_relaxed);
    wait([&] { return tail_.load(std::memory_order_acquire) != at; });
    void* addr = places_[at % kPlaces];
    head_.store(at + 1, std::memory_order_release);
    return addr;
  }

 private:
  static constexpr size_t kPlaces = 256;
  template <typename Condition>
  static void wait(Condition condition) {
    for (int spins = 0; !condition(); ++spins) {
      if (spins % 1024 == 1023) sched_yield();
    }
  }
  alignas(64) std::atomic<size_t> head_{0};
  alignas(64) std::atomic<size_t> tail_{0};
  alignas(64) void* places_[kPlaces] = {};
};

struct Handoff {
  // Both threads of a row do equally many batches, so the ring is empty at the end of each row.
  template <typename Subject>
  static bool run(Subject& subject, int thread) {
    static Ring ring;
    bool good = true;
    for (size_t i = 0; i < kBatch; ++i) {
      if (thread == 0) {
        void* addr = subject.take();
        good &= addr != nullptr;
        ring.put(addr);
      } else {
        void* addr = ring.get();
        good &= addr != nullptr && subject.give_back(addr);
      }
    }
    return good;
  }
};

struct Exhausted {
  template <typename Subject>
  static bool run(Subject& subject, int /*thread*/) {
    bool good = true;
    for (size_t i = 0; i < kBatch; ++i) good &= subject.take() == nullptr;
    return good;
  }
};

template <typename Pattern, typename Subject>
void measure(benchmark::State& state, Subject& subject) {
  const OnCore here(state.thread_index());
  bool good = true;
  std::vector<double> batch_ns;
  while (state.KeepRunningBatch(kBatch)) {
    const uint64_t start = now_ns();
    good &= Pattern::run(subject, state.thread_index());
    const auto elapsed = static_cast<double>(now_ns() - start);
    set_thread_time(state, elapsed);
    batch_ns.push_back(elapsed / kBatch);
  }
  using benchmark::Counter;
  state.counters["p50_ns"] = Counter(quantile(batch_ns, 0.50), Counter::kAvgThreads);
  if constexpr (requires { subject.stolen(); }) set_counter(state, "raided", subject.stolen());
  if (!good) state.SkipWithError("a take failed, or succeeded on an empty pool");
}

// The first thread creates the subject; all repetitions measure that one.
template <typename Pattern, typename Subject>
void add_row(const std::string& name, size_t bytes, const std::vector<int>& threads) {
  struct Shared {
    std::once_flag once;
    std::unique_ptr<Subject> subject;
  };
  const auto shared = std::make_shared<Shared>();
  auto* row = benchmark::RegisterBenchmark(
      (name + "/bytes:" + std::to_string(bytes)).c_str(), [shared, bytes](benchmark::State& state) {
        std::call_once(shared->once, [&] { shared->subject = std::make_unique<Subject>(bytes); });
        measure<Pattern>(state, *shared->subject);
      });
  row->UseManualTime();
  for (const int count : threads) row->Threads(count);
}

template <typename Pattern>
void add_subjects(const std::string& pattern, size_t bytes, const std::vector<int>& threads) {
  add_row<Pattern, WithMagazines>(pattern + "/pool", bytes, threads);
  add_row<Pattern, StackAlone>(pattern + "/stack", bytes, threads);
  add_row<Pattern, Malloc>(pattern + "/malloc", bytes, threads);
  add_row<Pattern, MutexList>(pattern + "/mutex_list", bytes, threads);
}

void add_all_rows() {
  for (const size_t bytes : kSizes) {
    add_subjects<Pair>("pair", bytes, thread_counts());
    add_subjects<Burst>("burst", bytes, thread_counts());
    if (usable_cores().size() >= 2) add_subjects<Handoff>("handoff", bytes, {2});
  }
  const size_t bytes = kSizes[0];
  add_row<Pair, Floor>("pair/floor", bytes, thread_counts());
  if (usable_cores().size() >= 2) add_row<Handoff, Nothing>("handoff/floor", bytes, {2});
  add_row<Exhausted, Drained<WithMagazines>>("exhausted/pool", bytes, {1});
  add_row<Exhausted, Drained<StackAlone>>("exhausted/stack", bytes, {1});
  add_row<Exhausted, Drained<MutexList>>("exhausted/mutex_list", bytes, {1});
}

}  // namespace
}  // namespace hydrant::bench

int main(int argc, char** argv) {
  hydrant::bench::add_all_rows();
  return hydrant::bench::run_program(argc, argv, "0.02");
}
