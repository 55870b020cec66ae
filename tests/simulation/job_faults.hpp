// Faults of a simulated job: begins and ends them, and notes which errors they allow.
#pragma once

#include "tests/simulation/job_operations.hpp"
#include "tests/simulation/job_world.hpp"

#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

namespace hydrant::simulation {

class JobFaults {
 public:
  JobFaults(JobWorld& world, JobOperations& operations) : world_(world), operations_(operations) {}
  void add(size_t action) { todo_.push_back(action); }
  // Begins and ends what is due.
  void run();
  // A rank has polled, and all adapters have gone on.
  void note_poll() {
    if (hold_ == Hold::kEnding) hold_ = Hold::kNone;
  }
  // All have ended.
  bool is_done() const { return todo_.empty() && later_.empty(); }

 private:
  struct Later {
    uint64_t at_ns = 0;
    std::function<void()> then;
  };

  // False: not now.
  bool begin(const Action& action);
  bool hold(const Action& action, uint64_t ns);
  void end_hold_after(uint64_t ns);
  bool lose_acknowledgement(const Action& action);
  void refuse(const Action& action, std::vector<fake_verbs::Call> calls);
  void break_pair(const Action& action);
  void remove_adapter(const Action& action);
  void die(Rank rank, uint64_t notice_ns);
  void end_leaving(Rank rank);
  void tell_of_losses();
  void after(uint64_t ns, std::function<void()> then);
  const char* device_of(const Action& action) const;

  JobWorld& world_;
  JobOperations& operations_;
  std::deque<size_t> todo_;  // actions
  std::vector<Later> later_;
  // An adapter stands still, or waits for an acknowledgement. kEnding: it will go on in the next poll.
  enum class Hold : uint8_t { kNone, kOn, kEnding } hold_ = Hold::kNone;
};

}  // namespace hydrant::simulation
