// GASNet-EX's barrier: no names, any number outstanding, completing in order. Barriers have numbers
// from 1 on; begin() answers the number of one that it has started, is_done() whether that one is
// complete.
//
// CountedBarrier: among ranks that share memory, few enough that everybody looks at everybody. A rank shows
// how many barriers it has begun; barrier k is done when all show k or more. Nothing has to be driven,
// however many are outstanding.
// QueuedBarrier: over any engine, one at a time; the next starts when the one before is finished.
//
// Threads: any, any call; nothing here waits or runs handlers.
#pragma once

#include "am/progress.hpp"
#include "extended/barrier_engine.hpp"
#include "extended/barrier_shm.hpp"
#include "rdma/transport.hpp"

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
  // Does what can be done for it, too.
  virtual bool is_done(uint64_t number) noexcept = 0;
  // True if is_done() would be, or would get on. For whoever is about to sleep.
  virtual bool ready(uint64_t number) const noexcept = 0;
  // As BarrierEngine.
  virtual WaitsFor waits_for(uint64_t number) const noexcept = 0;
  virtual void find_missing(uint64_t number, std::vector<Rank>* missing) const = 0;
};

class CountedBarrier final : public TeamBarrier {
 public:
  // `lines` by rank; the first and last word of each are used. transport may be null: nobody sleeps.
  // `threaded`: begin() may be called by several threads at once.
  CountedBarrier(Rank rank, std::vector<BarrierLines> lines, Transport* transport, bool threaded);

  uint64_t begin() noexcept override;
  bool is_done(uint64_t number) noexcept override;
  bool ready(uint64_t number) const noexcept override;
  WaitsFor waits_for(uint64_t number) const noexcept override;
  void find_missing(uint64_t number, std::vector<Rank>* missing) const override;

 private:
  using Word = std::atomic<uint64_t>;
  bool has_come(size_t rank, uint64_t number) const noexcept {
    // Odd numbers are shown in one line, even ones in the other: each only grows.
    return lines_[rank].of_parity[number & 1]->load(std::memory_order_acquire) >= number;
  }
  void wake_all() noexcept;

  const Rank rank_;
  const std::vector<BarrierLines> lines_;
  Transport* const transport_;
  const bool threaded_;
  std::atomic<bool> busy_{false};  // threaded: whoever begins
  std::atomic<uint64_t> begun_{0};
  // Relaxed and lossy: the highest number that others were woken for.
  std::atomic<uint64_t> woken_{0};
};

class QueuedBarrier final : public TeamBarrier {
 public:
  // Registers with `progress` while something is outstanding that others may need this rank for.
  QueuedBarrier(std::unique_ptr<BarrierEngine> engine, ProgressTable& progress)
      : engine_(std::move(engine)), progress_(progress) {}

  uint64_t begin() noexcept override;
  bool is_done(uint64_t number) noexcept override;
  bool ready(uint64_t number) const noexcept override;
  WaitsFor waits_for(uint64_t number) const noexcept override;
  void find_missing(uint64_t number, std::vector<Rank>* missing) const override;
  BarrierEngine& engine() noexcept { return *engine_; }

 private:
  uint32_t pump() noexcept;
  static uint32_t drive(void* self) noexcept;

  const std::unique_ptr<BarrierEngine> engine_;
  ProgressTable& progress_;
  std::atomic<bool> busy_{false};  // whoever gets it on; waited for in begin() alone
  bool running_ = false;
  bool registered_ = false;
  std::atomic<uint64_t> begun_{0};
  // Release, paired with the acquire in is_done(): what came before the barrier anywhere is seen.
  std::atomic<uint64_t> done_{0};
};

}  // namespace hydrant
