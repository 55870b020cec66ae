// A hunt for stale pins with several ends in one process: a thread for each rank, and helpers that deliver
// and poll for all. Ranks write into each other's pages through remote pins, and now and then replace pages
// of their own at the same addresses. Once quiet() confirms that no rank reaches the old pages, they announce
// the new ones.
//
// The hunt detects writes through undone registrations, writes into memory that was reported as out of reach,
// and writes that the pages' owner does not see although it had announced them before.
#pragma once

#include <hydrant/remote_pin.h>

#include "tests/stale/hunt/random.hpp"
#include "tests/stale/remote/paged_memory.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace hydrant::stale {

struct RemoteHuntOptions {
  uint64_t operations = 0;  // writes of all ranks
  uint32_t ranks = 3;
  uint32_t helpers = 2;  // threads that deliver and poll for all ranks
  size_t pages = 48;     // pages of each rank
  bool real_pins = false;
  uint32_t watch = HYDRANT_WATCH_CLIENT;
  uint64_t budget_pages = 40;  // budget of a rank for all its peers
  uint32_t base_percent = 50;
  uint32_t max_peer_regions = 24;
  uint32_t replace_one_in = 10;  // series of writes per replacement
  uint64_t seed = 1;
};

struct RemoteHuntResult {
  std::string skipped;    // the reason if the hunt did not run
  std::string violation;  // the first one
  uint64_t operations = 0, hits = 0, moves = 0, recalls = 0, reorderings = 0;
  uint64_t replacements = 0;
  uint64_t opportunities = 0;  // replacements of pages on which peers had firehoses
  uint64_t checked = 0;        // writes whose value the owner had to see
};

class RemoteStaleHunt {
 public:
  explicit RemoteStaleHunt(const RemoteHuntOptions& options);
  ~RemoteStaleHunt();
  RemoteHuntResult run();

 private:
  static constexpr size_t kOps = 8;  // concurrent operations of a rank
  struct Message {
    uint32_t from, lane;
    std::vector<std::byte> bytes;
  };
  // A remote pin and the write through it.
  struct Op {
    RemoteStaleHunt* hunt = nullptr;
    uint32_t from = 0, to = 0;
    size_t page = 0, cell = 0;
    uint64_t epoch = 0;
    hydrant_pin_t pin{};
    std::atomic<bool> busy{false};
  };
  struct Rank {
    RemoteStaleHunt* hunt = nullptr;
    uint32_t number = 0;
    std::unique_ptr<PagedMemory> memory;
    hydrant_domain_t domain = 0;
    hydrant_remote_t end = 0;
    std::mutex inbox_mu;
    std::vector<Message> inbox;
    // By page: replacements begun, and announced.
    std::unique_ptr<std::atomic<uint64_t>[]> begun, told;
    Op ops[kOps];
    std::vector<Op*> held;  // used by the rank's own thread
  };

  bool set_up();
  static int send(void* user, uint32_t peer, uint32_t lane, void* reply_to, const void* bytes,
                  size_t len);
  static void done(void* context, hydrant_pin_t pin, const hydrant_remote_outcome_t* outcome);
  bool deliver_one(Rank* rank, Random* random);
  void work(Rank* rank);
  void help(uint32_t number);
  void write_somewhere(Rank* rank, Random* random);
  bool write(Rank* rank, Op* op, size_t first, size_t pages);
  void make_progress(Random* random);
  void replace_some(Rank* rank, Random* random);
  void use(Op* op);
  void end(Op* op);
  void fail(const std::string& what);
  void come_to_rest();
  bool is_over() const {
    return failed_.load(std::memory_order_relaxed) ||
           operations_.load(std::memory_order_relaxed) >= options_.operations;
  }

  const RemoteHuntOptions options_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::atomic<bool> failed_{false}, ended_{false};
  std::atomic<uint64_t> operations_{0}, replacements_{0}, opportunities_{0}, checked_{0},
      reorderings_{0};
  std::atomic<uint64_t> sends_{0};
  std::atomic<uint32_t> next_value_{1};
  std::mutex result_mu_;
  RemoteHuntResult result_;
};

}  // namespace hydrant::stale
