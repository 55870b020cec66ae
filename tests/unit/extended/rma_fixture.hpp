// This process as rank 0 of a job whose rank 1 is reached over a LoopNetwork.
#pragma once

#include <hydrant/gasnet/rma1.h>
#include <hydrant/rma.h>

#include "extended/rma/common/rma_path.hpp"
#include "extended/rma/paths/rma_messages.hpp"
#include "extended/rma/rma.hpp"
#include "tests/unit/am/job_fixture.hpp"
#include "tests/unit/extended/loop_network.hpp"

#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace hydrant::test {

class RmaFixture : public JobFixture {
 protected:
  using Knobs = std::vector<std::pair<const char*, const char*>>;

  void SetUp() override {
    // Settings that are read once per process.
    setenv("HYDRANT_ON_FAULT", "return", 1);
    setenv("HYDRANT_BOUNCE_MAX", "4096", 1);
    setenv("HYDRANT_BOUNCE_POOL", "32768", 1);
    JobFixture::SetUp();
    job().single_threaded = false;
    auto owned = make_network();
    network = owned.get();
    transport = owned.get();
    ASSERT_EQ(job().use(std::move(owned)), Status::kOk);
    add_rma_handlers();
    choose({});
  }
  void TearDown() override {
    for (const auto& [name, value] : knobs_) unsetenv(name);
    EXPECT_EQ(network->under_way(), 0u) << "an operation was forgotten";
    JobFixture::TearDown();
  }

  virtual std::unique_ptr<LoopNetwork> make_network() { return std::make_unique<LoopNetwork>(); }

  // Rebuilds the decision table with these settings; threads that start afterwards use it.
  void choose(Knobs knobs) {
    for (const auto& [name, value] : knobs_) unsetenv(name);
    knobs_ = std::move(knobs);
    knobs_.emplace_back("HYDRANT_USE_LONG_GETS", "n");
    knobs_.emplace_back("HYDRANT_USE_LONG_PUTS", "n");
    for (const auto& [name, value] : knobs_) setenv(name, value, 1);
    EXPECT_EQ(choose_paths(), Status::kOk) << last_error_text();
  }

  // A thread's state follows the decision table at its start.
  static void in_new_thread(const std::function<void()>& act) { std::thread(act).join(); }

  static constexpr gex_Rank_t kPeer = 1;
  LoopNetwork* network = nullptr;

 private:
  Knobs knobs_;
};

inline hydrant_path_counts_t count_of(gex_Rank_t rank, hydrant_path_t path) {
  hydrant_path_counts_t counts = {};
  EXPECT_EQ(hydrant_query_path(rank, path, &counts), GASNET_OK);
  return counts;
}

}  // namespace hydrant::test
