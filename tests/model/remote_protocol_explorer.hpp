// Every interleaving of a small history of remote pins, over the real ends: which message arrives next, who
// pins, releases, polls or loses memory next. Executions are repeated from their beginning with the choices
// of the last one but for its last open choice.
//
// Not explored twice: two steps at different ends commute (each touches its own end, and what it sends may
// arrive at any time), so that of their two orders one is enough. Sleep sets do that; they leave out
// transitions, never states, and every check is one of states. A poll that can find nothing new is no choice.
#pragma once

#include "tests/support/remote_world.hpp"

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace hydrant::model {

struct RemoteScenario {
  struct Request {
    uint32_t from, to;
    size_t page, pages = 1;
    uint32_t flags = 0;  // HYDRANT_REMOTE_CALL*
  };
  struct Loss {
    uint32_t rank;
    size_t page, pages = 1;
  };
  const char* name = "";
  uint32_t ranks = 2;
  std::vector<Request> requests;  // of one end: in this order
  std::vector<Loss> losses;       // memory that goes away; of one end: in this order
  uint64_t budget_pages = 0;      // for all peers of an end; 0: plenty
  uint32_t base_percent = 100;
  uint32_t flags = 0;         // HYDRANT_REMOTE_INLINE_*
  uint32_t refusals = 0;      // sends that find no room, wherever
  uint32_t duplicates = 0;    // releases that arrive twice, which no messenger may do
  uint32_t evictions = 0;     // times the first rank gives everything back
  uint32_t shortages = 0;     // pins of its own memory that the last rank tries
  uint64_t domain_pages = 0;  // that an end may have registered, for itself and peers; 0: plenty
  bool fresh_ends = false;    // each execution has its own: where what is lent would be remembered
  bool books = true;          // exports and firehoses are counted against each other in every state
  size_t depth = 0;           // steps that are chosen; the rest of an execution takes its course
};

struct RemoteFindings {
  uint64_t executions = 0;  // to their end
  uint64_t pruned = 0;      // begun, and found to be another order of one that is known
  uint64_t steps = 0;
  bool complete = false;
  std::string violation;  // "" or what is wrong, and the steps that lead there
  uint64_t hits = 0, answers = 0, recalls = 0, not_now = 0, reclaims = 0;
};

class RemoteExplorer {
 public:
  explicit RemoteExplorer(const RemoteScenario& scenario);

  // Depth first, until the first violation.
  RemoteFindings explore(uint64_t most_executions);
  // So many executions whose choices are random.
  RemoteFindings wander(uint64_t executions, uint64_t seed);

 private:
  enum class Kind : uint8_t {
    kDeliver,
    kPin,
    kRelease,
    kLose,
    kPoll,
    kRefuse,
    kDuplicate,
    kEvict,
    kStarve,
  };
  struct Action {
    Kind kind;
    uint32_t end;  // the one that is touched
    uint32_t arg;  // request, loss, or message
    friend bool operator==(const Action&, const Action&) = default;
  };
  struct Node {
    std::vector<Action> enabled, sleep;
    Action chosen;
  };
  struct Running {
    testing::RemoteResult result;
    bool asked = false, released = false;
    uint32_t answers = 0;
  };

  void begin();
  void finish();
  std::vector<Action> enabled() const;
  bool step(const Action& action);
  bool choose(Node* node) const;
  void ask(uint32_t request);
  void release(uint32_t request);
  void lose(uint32_t loss);
  void poll(uint32_t end);
  void starve();
  void check_reclaims();
  void note_recall(uint32_t end);
  void wait_for_drain(uint32_t end);
  void deliver(size_t i);
  void look_at_new_messages();
  void check();
  void run_to_rest();
  void check_rest();
  void wrong(const std::string& what);
  static std::string text(const Action& action);

  const RemoteScenario scenario_;
  std::unique_ptr<testing::RemoteWorld> world_;
  RemoteFindings findings_;
  std::mt19937_64 random_;

  // Of the execution under way.
  std::vector<Running> running_;
  std::vector<uint32_t> names_;        // of the messages under way, by place
  std::vector<uint32_t> sent_;         // by pair: how many
  std::vector<bool> dirty_;            // by end: poll() may find something
  std::vector<uint64_t> recalled_at_;  // by end: of the last poll, if there was a recall; else 0
  std::vector<size_t> next_loss_;      // by end
  std::vector<std::vector<uint64_t>> oldest_,
      floor_;                       // by rank and page: least serial, and said quiet
  std::vector<uint64_t> live_ids_;  // by rank: exports that a reply has told, less those given back
  uint32_t refusals_ = 0, duplicates_ = 0, evictions_ = 0, shortages_ = 0;
  uint64_t begun_at_ = 0;
  uint32_t twice_ = 0;  // the message of which a copy has arrived
  std::vector<Action> trail_;
};

}  // namespace hydrant::model
