// Explores every interleaving of a small history of remote pins, with the real ends: which message arrives
// next, and which rank pins, releases, polls or loses memory next. Each execution restarts from the beginning
// and repeats the choices of the previous one up to its last open choice.
//
// Partial-order reduction: two steps at different ends commute (each touches only its own end, and its
// messages may arrive at any time), so one of their orders suffices. Sleep sets implement this; they omit
// transitions, never states, and every check is one of states. A poll that cannot find new work is not a
// choice.
#pragma once

#include "tests/support/remote_pin_cluster.hpp"

#include <cstddef>
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
  std::vector<Request> requests;  // in this order at each end
  std::vector<Loss> losses;       // released memory; those of one end happen in this order
  uint64_t budget_pages = 0;      // of an end for all peers; 0: ample
  uint32_t base_percent = 100;
  uint32_t flags = 0;       // HYDRANT_REMOTE_INLINE_*
  uint32_t refusals = 0;    // number of sends that find no room
  uint32_t duplicates = 0;  // number of releases that arrive twice, which messengers must not do
  uint32_t evictions = 0;   // how often the first rank releases everything
  uint32_t shortages = 0;   // number of pins of its own memory by the last rank
  // The last rank first holds this many pages of its own, and releases them at some step. A declined rank
  // waits for room and repeats its request when it is notified.
  size_t own_pages = 0;
  bool answers_at_once = false;  // a waiting rank asks at each poll and always gets an answer
  uint64_t domain_pages = 0;     // pages that an end may register, for itself and peers; 0: ample
  bool fresh_ends = false;       // each execution creates new ends, because ends remember leases
  bool books = true;             // compare exports with firehoses in every state
  size_t depth = 0;  // number of chosen steps; the rest of an execution is deterministic
};

struct RemoteFindings {
  uint64_t executions = 0;  // complete ones
  uint64_t pruned = 0;      // stopped as equivalent to a known execution
  uint64_t steps = 0;
  bool complete = false;
  std::string violation;  // "" or the violation, and the steps that lead to it
  uint64_t hits = 0, answers = 0, recalls = 0, not_now = 0, reclaims = 0, told_of_room = 0;
};

class RemoteExplorer {
 public:
  explicit RemoteExplorer(const RemoteScenario& scenario);
  ~RemoteExplorer();
  RemoteExplorer(const RemoteExplorer&) = delete;
  RemoteExplorer& operator=(const RemoteExplorer&) = delete;

  // Depth first, until the first violation.
  RemoteFindings explore(uint64_t max_executions);
  // Runs executions with random choices.
  RemoteFindings wander(uint64_t executions, uint64_t seed);

 private:
  static constexpr size_t kPages = 8;          // of each end
  static constexpr uint32_t kCopy = 1u << 31;  // in the name of a message: it arrives twice

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
    kFree,  // the last rank releases its own pages
  };
  struct Action {
    Kind kind;
    uint32_t end;  // the end that the action touches
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
    bool waits = false;  // declined, and not yet notified of room
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
  void free_own();
  void await_room(uint32_t end);
  void hear_of_room(uint32_t end, uint32_t peer);
  bool awaits() const;
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
  std::unique_ptr<testing::RemotePinCluster> world_;
  RemoteFindings findings_;
  std::mt19937_64 random_;

  // State of the current execution.
  std::vector<Running> running_;
  std::vector<uint32_t> names_;  // names of the messages in flight, by position
  std::vector<uint32_t> sent_;   // number of messages sent, by pair
  std::vector<bool> dirty_;      // by end: poll() may find something
  std::vector<uint64_t>
      recalled_at_;                // by end: time of the last poll if there was a recall, else 0
  std::vector<size_t> next_loss_;  // by end
  std::vector<std::vector<uint64_t>> oldest_,
      floor_;  // by rank and page: least serial, and that at the last quiet report
  std::vector<uint64_t> live_ids_;  // by rank: exports in delivered replies, minus released ones
  hydrant_pin_t own_{};             // pin of the last rank
  uint32_t refusals_ = 0, duplicates_ = 0, evictions_ = 0, shortages_ = 0;
  uint64_t begun_at_ = 0;
  uint32_t twice_ = 0;  // the message whose copy has arrived
  std::vector<Action> trail_;
};

}  // namespace hydrant::model
