// Leaves out the last ranks, the actions of a rank, then halves, quarters and so on of all actions, then
// single ones.
#include "tests/simulation/shrinking.hpp"

#include "tests/simulation/simulated_job.hpp"

#include <algorithm>
#include <functional>

namespace hydrant::simulation {

namespace {

class Shrinker {
 public:
  Shrinker(JobPlan failing, uint32_t runs) : plan_(std::move(failing)), runs_left_(runs) {}

  void leave_out_ranks() {
    for (Rank below = 2; below < plan_.ranks; ++below) {
      JobPlan smaller = plan_;
      smaller.keep_ranks(below);
      if (try_instead(std::move(smaller))) break;
    }
    for (Rank rank = 0; rank < plan_.ranks; ++rank) {
      (void)try_without([&](size_t i) {
        const Action& action = plan_.actions[i];
        return action.rank == rank || (!is_fault(action.kind) && action.peer == rank);
      });
    }
  }
  void leave_out_actions() {
    for (size_t length = plan_.actions.size() / 2; length != 0; length /= 2) {
      for (size_t first = 0; first < plan_.actions.size(); first += length)
        (void)try_without([&](size_t i) { return i >= first && i < first + length; });
    }
  }
  const JobPlan& plan() const { return plan_; }

 private:
  bool try_without(const std::function<bool(size_t)>& leaves_out) {
    JobPlan smaller = plan_;
    for (size_t i = 0; i < smaller.kept.size(); ++i) {
      if (leaves_out(i)) smaller.kept[i] = false;
    }
    return smaller.count() != plan_.count() && try_instead(std::move(smaller));
  }
  bool try_instead(JobPlan smaller) {
    if (runs_left_ == 0) return false;
    --runs_left_;
    if (run_job(smaller).failure.empty()) return false;
    plan_ = std::move(smaller);
    return true;
  }

  JobPlan plan_;
  uint32_t runs_left_;
};

}  // namespace

JobPlan shrink(JobPlan failing, uint32_t runs) {
  Shrinker shrinker(std::move(failing), runs);
  shrinker.leave_out_ranks();
  shrinker.leave_out_actions();
  shrinker.leave_out_actions();
  return shrinker.plan();
}

}  // namespace hydrant::simulation
