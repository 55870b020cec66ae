// A thread of a hunt: owns blocks, does random operations on them, and checks them through pins.
#pragma once

#include "tests/stale/hunt/exchange.hpp"
#include "tests/stale/hunt/handler.hpp"
#include "tests/stale/hunt/hunt.hpp"
#include "tests/stale/hunt/random.hpp"
#include "tests/stale/hunt/supply.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace hydrant::stale {

// State shared by the threads of a hunt.
struct Ground {
  Ground(const HuntOptions& hunt, Cache& subject)
      : options(hunt), cache(subject), magic(magic_of(hunt.seed)), exchange(hunt.threads) {}

  const HuntOptions& options;
  Cache& cache;
  const uint64_t magic;
  Book book;
  Windows windows, vouched_windows, owner_windows;
  Exchange exchange;
  std::vector<std::unique_ptr<Supply>> supplies;
  bool stacks = false;  // start and end threads
  bool forks = false;
  bool signals = false;  // let signal handlers replace memory
  bool trims = false;
  std::atomic<bool> stop{false};
  std::atomic<uint32_t> owners{
      0};  // owners that have not ended: without them bystanders may find no memory

  std::mutex findings_mutex;
  std::vector<std::string> findings;  // under findings_mutex
};

class Worker {
 public:
  Worker(Ground& ground, uint32_t index);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // False if the pipe could not be opened.
  bool usable() const { return pipe_[0] >= 0; }
  // Runs until ground.stop, or until `operations` are done (0: no limit). A thread that only pins other
  // threads' memory runs until the owners have ended.
  void run(uint64_t operations);
  // Releases everything. Call it after run() of all workers has ended.
  void clean_up();

  // -- for the watching thread, from any thread --
  void add_counts(HuntCounts* sum) const;
  uint64_t operations() const { return count(kOperations); }
  const char* doing() const { return doing_.load(std::memory_order_relaxed); }
  uint64_t done() const { return done_.load(std::memory_order_relaxed); }

  // -- for supplies, on the worker's thread --
  Random& random() { return random_; }
  Ground& ground() { return ground_; }
  uint32_t index() const { return index_; }
  void doing(const char* what) { doing_.store(what, std::memory_order_relaxed); }
  // Starts a new life of this memory.
  Life begin(Source source, Range range);
  // Call it before the system call that removes pages of `range`: makes the client's announcements, and
  // prepares the holds on these pages.
  void leaving(Range range, Fate fate);
  // The same for vouched memory: its announcement is never omitted.
  void leaving_vouched(Range range, Fate fate);
  // Checks a cell of this memory.
  void check(const Block& block);
  void check_part(const Block& block, Range part, Source source);
  // Takes ownership of a block; false if there is no room for more.
  bool adopt(const Block& block);
  // Drops a block that no longer exists: `block` is the worker's own record of it.
  void forget(const Block& block);
  void count_contest() { add(kContests); }

 private:
  enum Counter {
    kOperations,
    kOpportunities,
    kStale,
    kStaleBefore,
    kUnwatchedKept,
    kBroken,
    kPins,
    kNotNow,
    kRefused,
    kChecks,
    kLateChecks,
    kContests,
    kChildren,
    kCounters
  };
  static constexpr size_t kMaxHolds = 8;
  // A hold that is kept for some time.
  struct Kept {
    Hold hold;
    Life life = 0;  // the life in which it was taken
    Source source = Source::kCount;
    uintptr_t cell = 0;
    Tag last;               // the expected tag behind the hold, if `orphan`
    bool orphan = false;    // its memory was released, but the page must still exist
    uint64_t prepared = 0;  // the call of prepare_holds() that made it an orphan
  };

  // -- operations (worker.cpp); false if not applicable --
  bool operation();
  bool get();
  bool change();
  bool free_block(size_t which);
  void look_at_new(const Block& block);
  bool hand_over();
  bool take_parcel();
  bool look_at_hold();
  bool bystander();
  bool bystander_and_pause();
  bool upkeep();
  bool handlers_memory();
  // -- episodes (episodes.cpp) --
  bool thread_episode();
  void on_stack();
  static void* stack_main(void* worker);
  bool fork_episode();
  [[noreturn]] void child();
  void child_hunt();
  // -- checks (checks.cpp) --
  Range choose_range(Range within, uintptr_t cell);
  uintptr_t choose_cell(Range within);
  PinAnswer take_hold(How how, const Block& block, Range range, Hold* hold);
  void check_with(How how, const Block& block, uintptr_t cell);
  bool check_many();
  void sweep(const Block& block);
  bool compare(const Hold& hold, const Block& block, uintptr_t cell, bool write_first);
  bool move_out(const Hold& hold, uintptr_t cell, Tag* found);
  bool move_in(const Hold& hold, uintptr_t cell, const Tag& tag);
  void check_kept(Kept& kept);
  void keep_or_release(const Hold& hold, const Block& block, uintptr_t cell);
  void release_kept(size_t which);
  void check_unwatched(const Block& block, Range range);
  bool note_pin(const Block& block, Range range, uintptr_t cell);
  void prepare_holds(Range range, Fate fate);
  Tag new_tag(uintptr_t cell, Life life);
  void report(Counter kind, const std::string& text);
  void report_stale(const char* what, const Hold& hold, Source source, uintptr_t cell, Life life,
                    const Tag& expected, const Tag& found);
  void drain();

  uint64_t count(Counter counter) const {
    return counters_[counter].load(std::memory_order_relaxed);
  }
  // A single writer, so no locked instruction is needed.
  static void add_one(std::atomic<uint64_t>& counter) {
    counter.store(counter.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  void add(Counter counter) { add_one(counters_[counter]); }

  Ground& ground_;
  Cache& cache_;
  const uint32_t index_;
  Random random_;
  const bool only_bystander_;
  uint64_t checks_made_ = 0, prepared_ = 0;
  std::vector<Block> blocks_;
  std::vector<Kept> holds_;
  int pipe_[2] = {-1, -1};
  std::optional<Handler> handler_;
  std::array<Life, Handler::kAreas> handlers_lives_{};  // current lives of the areas
  uint64_t handlers_count_ = 0;                         // Handler::lives() at that time
  const char* in_child_ = "";

  // Written by the worker (or the thread or child that acts for it), read by the watching thread.
  std::array<std::atomic<uint64_t>, kCounters> counters_{};
  std::array<std::atomic<uint64_t>, kSources> lives_{}, opportunities_{}, stale_{};
  std::array<std::atomic<uint64_t>, kCoverages> pins_{};
  std::atomic<uint64_t> done_{0};  // changes while the worker makes progress
  std::atomic<const char*> doing_{"start"};
};

}  // namespace hydrant::stale
