// Carries out the operations of a simulated job, and checks them: messages come once, whole and in order;
// memory has what puts have written; each wait ends with success, or with an error that a fault allows.
#pragma once

#include "tests/simulation/job_collectives.hpp"
#include "tests/simulation/job_pins.hpp"
#include "tests/simulation/job_world.hpp"

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

namespace hydrant::simulation {

class JobOperations {
 public:
  explicit JobOperations(JobWorld& world);
  JobOperations(const JobOperations&) = delete;
  JobOperations& operator=(const JobOperations&) = delete;

  JobCollectives& collectives() { return collectives_; }
  JobPins& pins() { return pins_; }
  // Tries one of the rank's next actions, and its replies, and goes on with its collectives.
  void act(Rank rank);
  void deliver(Rank to, const Incoming& message);
  // The rank learns that the peer is gone, by an error or from its transport.
  void lose_peer(Rank rank, Rank peer, const char* why);
  // True: no rank waits, and all messages that can come have come.
  bool is_done() const;
  std::string describe_waits() const;
  // Compares the words of atomics with the sums.
  void check_sums();

 private:
  struct Operation : Completion {
    JobOperations* owner = nullptr;
    const Action* action = nullptr;
    size_t index = 0;
    uint32_t version = 0;  // of a put; the oldest that a get may read
    bool is_done = false;
  };
  struct Sent {
    uint64_t number = 0;
    uint32_t bytes = 0;
    uint32_t payload = 0;
    bool has_cell = false;
    bool has_reply = false;
    uint64_t answers = 0;  // the request; 0: none
    MemoryOracle::Versions versions = {};
    std::function<void()> then;  // null: nothing
  };
  struct Sum {
    uint64_t done = 0;
    bool is_known = true;  // no atomic has failed
  };

  Status start(const Action& action, size_t index);
  Status send_message(const Action& action);
  Status send(Rank from, Rank to, Lane lane, Sent message);
  // Sends a message whose delivery calls `then`. False: retry later, unless the peer is lost.
  bool carry(Rank from, Rank to, Lane lane, std::function<void()> then);
  // Sets the key to the peer's memory.
  Status pin_remote(const Action& action, size_t index, PinnedOperations::Pinned* at);
  Status start_put(const Action& action, size_t index);
  Status start_get(const Action& action, size_t index);
  Status start_atomic(const Action& action, size_t index);
  Status note_start(Operation& operation, Status status);
  Operation& add(const Action& action, size_t index);
  static void complete(Completion& completion, Status status) noexcept;
  void check_result(Operation& operation, Status status);
  void check_message(Rank from, Rank to, const Sent& sent, const Incoming& message);
  void send_replies(Rank rank);
  // Whether the action is over; checks an error.
  bool is_over(Rank rank, Rank peer, Status status);
  std::deque<Sent>& sent(Rank from, Rank to, Lane lane) {
    return sent_[(size_t{from} * world_.plan.ranks + to) * kLaneCount +
                 static_cast<uint32_t>(lane)];
  }
  // Whether the action's rank has a put, or a get, of that slot under way.
  std::vector<bool>::reference is_busy(const Action& action) {
    const size_t pair = size_t{action.rank} * world_.plan.ranks + action.peer;
    return is_busy_[(pair * kSlots + action.slot) * 2 + (action.kind == Kind::kGet ? 1 : 0)];
  }
  bool has_undelivered(Rank from, Rank to) const;

  JobWorld& world_;
  const MemoryLayout& layout_;
  std::deque<Operation> operations_;
  std::vector<std::deque<Sent>> sent_;  // and not delivered, by sender, receiver and lane
  std::vector<bool> is_busy_;
  std::vector<Sum> sums_;  // by target
  uint64_t messages_ = 0;
  JobCollectives collectives_;
  JobPins pins_;
};

}  // namespace hydrant::simulation
