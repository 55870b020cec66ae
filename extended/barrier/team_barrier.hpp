// GASNet-EX's barrier: no names, any number outstanding, completing in order. Barriers are numbered
// from 1. begin() starts a barrier and returns its number; is_done() tests whether that barrier is
// complete.
//
// CountedBarrier: for ranks that share memory, few enough that every rank reads the line of every other. A
// rank publishes the number of barriers that it has begun; barrier k is complete when all ranks have
// published k or more. Any number may be outstanding, and no rank has to advance them. QueuedBarrier: over
// any engine, one at a time; the next barrier starts when the previous one has finished.
//
// Threads: any thread, any call; no call waits or runs handlers.
#pragma once

#include "am/job/progress_table.hpp"
#include "extended/barrier/barrier_engine.hpp"
#include "extended/barrier/barrier_shm.hpp"
#include "rdma/transport/sleeping.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

namespace hydrant {

class TeamBarrier {
 public:
  virtual ~TeamBarrier() = default;
  TeamBarrier() = default;
  TeamBarrier(const TeamBarrier&) = delete;
  TeamBarrier& operator=(const TeamBarrier&) = delete;

  virtual uint64_t begin() noexcept = 0;
  // Also advances the barrier if possible.
  virtual bool is_done(uint64_t number) noexcept = 0;
  // True if is_done() would succeed or make progress. Checked just before a sleep.
  virtual bool ready(uint64_t number) const noexcept = 0;
  // As in BarrierEngine.
  virtual WaitTarget wait_target(uint64_t number) const noexcept = 0;
  virtual void find_missing(uint64_t number, MissingRanks* missing) const noexcept = 0;
};

class CountedBarrier final : public TeamBarrier {
 public:
  // `lines` by rank; uses the first and the last word in each line. A null `sleeping` means that no rank
  // sleeps. `threaded`: several threads may call begin() concurrently.
  CountedBarrier(Rank rank, std::vector<BarrierLines> lines, Sleeping* sleeping, bool threaded);

  uint64_t begin() noexcept override;
  bool is_done(uint64_t number) noexcept override;
  bool ready(uint64_t number) const noexcept override;
  WaitTarget wait_target(uint64_t number) const noexcept override;
  void find_missing(uint64_t number, MissingRanks* missing) const noexcept override;

 private:
  using Word = std::atomic<uint64_t>;
  bool has_arrived(size_t rank, uint64_t number) const noexcept {
    // Odd numbers are stored in one line, even numbers in the other, so each word only grows.
    return lines_[rank].of_parity[number & 1]->load(std::memory_order_acquire) >= number;
  }
  void wake_all() noexcept;

  const Rank rank_;
  const std::vector<BarrierLines> lines_;
  Sleeping* const sleeping_;
  const bool threaded_;
  std::atomic<bool> busy_{false};  // threaded: lock of begin()
  std::atomic<uint64_t> begun_{0};
  // Relaxed and lossy: the highest number for which other ranks were woken.
  std::atomic<uint64_t> woken_{0};
};

class QueuedBarrier final : public TeamBarrier {
 public:
  // Registers with `progress` while a barrier is outstanding for which other ranks may depend on this rank.
  QueuedBarrier(std::unique_ptr<BarrierEngine> engine, ProgressTable& progress)
      : engine_(std::move(engine)), progress_(progress) {}

  uint64_t begin() noexcept override;
  bool is_done(uint64_t number) noexcept override;
  bool ready(uint64_t number) const noexcept override;
  WaitTarget wait_target(uint64_t number) const noexcept override;
  void find_missing(uint64_t number, MissingRanks* missing) const noexcept override;
  BarrierEngine& engine() noexcept { return *engine_; }

 private:
  uint32_t pump() noexcept;
  static uint32_t make_progress(void* self) noexcept;

  const std::unique_ptr<BarrierEngine> engine_;
  ProgressTable& progress_;
  std::atomic<bool> busy_{false};  // lock of pump(); only begin() waits for it
  bool running_ = false;
  bool registered_ = false;
  std::atomic<uint64_t> begun_{0};
  // Stored with release, loaded by is_done() with acquire: stores before the barrier on any rank are
  // visible.
  std::atomic<uint64_t> done_{0};
};

}  // namespace hydrant
