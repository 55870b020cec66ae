// The state of a simulated job, which its operations, its faults and its schedule share.
#pragma once

#include "tests/simulation/job_plan.hpp"
#include "tests/simulation/memory_oracle.hpp"
#include "tests/simulation/virtual_time.hpp"
#include "tests/unit/rdma/ibv/ibv_world.hpp"

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace hydrant::simulation {

struct Outcome {
  std::string failure;  // empty: none
  uint64_t hash = 0;    // of everything that happened, and when
  uint64_t virtual_ns = 0;
  uint64_t steps = 0;
  // How often something happened, for a check that the simulation reaches it.
  std::map<std::string_view, uint64_t> counts;
};

// Records what happens. Nothing in it depends on addresses or on numbers that the stand-in draws.
class Recorder {
 public:
  // `prints`: a line for each event.
  explicit Recorder(bool prints) : prints_(prints) {}
  // `what` is a literal.
  void note(const char* what, uint64_t a = 0, uint64_t b = 0, uint64_t c = 0);
  void count(std::string_view what, uint64_t times = 1) { outcome_.counts[what] += times; }
  // The first failure stays.
  void fail(const std::string& what);
  bool has_failed() const { return !outcome_.failure.empty(); }
  Outcome& outcome() { return outcome_; }
  // When something happened last.
  uint64_t last_ns() const { return last_ns_; }

 private:
  Outcome outcome_;
  uint64_t last_ns_ = 0;
  const bool prints_;
};

// A rank and what it still has to do.
struct SimulatedRank {
  struct Reply {
    Rank to = 0;
    uint64_t request = 0;
  };
  std::unique_ptr<testing::IbvRank> ibv;
  std::unique_ptr<testing::PinnedMemory> memory;  // as MemoryLayout has it
  struct Remote {
    uintptr_t address = 0;
    std::array<std::byte, 64> key = {};
  };
  std::vector<Remote> remote;  // the ranks' shared memory, as this one knows it
  std::deque<size_t> todo;     // actions
  std::deque<Reply> replies;
  std::map<uint64_t, Rank> requests;  // that have no reply yet
  uint64_t computes_until_ns = 0;
  uint32_t waits = 0;                   // operations under way
  bool is_told_of_its_adapter = false;  // by an event, that it has died
  uint64_t leaves_since_ns = 0;  // its adapter was removed: it ends once its waits have; 0: no
  PinnedOperations::Pinned memory_of(Rank peer, size_t offset) const {
    return {remote[peer].address + offset, remote[peer].key.data()};
  }
  bool is_alive() const { return ibv != nullptr; }
  bool is_leaving() const { return leaves_since_ns != 0; }
  IbvTransport& transport() const { return *ibv->transport; }
};

// Facts of pairs of ranks.
class Pairs {
 public:
  explicit Pairs(Rank ranks) : ranks_(ranks), facts_(size_t{ranks} * ranks) {}
  // A fault allows connections of this rank, or all, to fail.
  void disturb(Rank rank) {
    for (Rank other = 0; other < ranks_; ++other)
      at(rank, other).may_fail = at(other, rank).may_fail = true;
  }
  void disturb_all() {
    for (Facts& facts : facts_) facts.may_fail = true;
  }
  bool may_fail(Rank a, Rank b) const { return at(a, b).may_fail; }
  void lose(Rank a, Rank b) { at(a, b).is_lost = true; }
  // `a` knows that `b` is gone.
  bool is_lost(Rank a, Rank b) const { return at(a, b).is_lost; }

 private:
  struct Facts {
    bool may_fail = false;
    bool is_lost = false;
  };
  Facts& at(Rank a, Rank b) { return facts_[size_t{a} * ranks_ + b]; }
  const Facts& at(Rank a, Rank b) const { return facts_[size_t{a} * ranks_ + b]; }
  Rank ranks_;
  std::vector<Facts> facts_;
};

struct JobWorld {
  JobWorld(const JobPlan& its_plan, bool prints)
      : plan(its_plan),
        recorder(prints),
        random(its_plan.seed ^ 0x5eed),
        memory(its_plan),
        ranks(its_plan.ranks),
        pairs(its_plan.ranks) {}

  const JobPlan& plan;
  Recorder recorder;
  Random random;  // of the schedule
  MemoryOracle memory;
  testing::CardBox box;
  std::vector<std::string> devices;  // names, those of a rank together
  std::vector<SimulatedRank> ranks;
  Pairs pairs;
  bool may_lack_resources = false;  // a fault allows kResource
  bool may_stay_half_open = false;  // an adapter may refuse to end a connection
};

}  // namespace hydrant::simulation
