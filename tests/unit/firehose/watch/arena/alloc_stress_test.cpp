// Threads allocate, resize, exchange and free at random, while caches pin and free memory is returned to the
// kernel. Every allocation carries marks, so that memory that is handed out twice, or emptied while it is in
// use, is detected.
#include <hydrant/alloc.h>

#include "tests/support/test_seed.hpp"
#include "tests/support/threads.hpp"
#include "tests/unit/firehose/watch/arena/fake_monitor.hpp"
#include "tests/unit/firehose/watch/arena/tagged.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <mutex>
#include <random>
#include <string>
#include <vector>

namespace hydrant::testing {
namespace {

constexpr int kThreads = 4;
constexpr int kSteps = 6000;
constexpr size_t kMaxLive = 64;

struct Piece {
  void* p;
  size_t bytes;
  uint64_t tag;
};

// Blocks that a thread allocates and another one frees.
class Exchange {
 public:
  void give(Piece piece) {
    const std::lock_guard lock(mu_);
    pieces_.push_back(piece);
  }
  bool take(Piece* piece) {
    const std::lock_guard lock(mu_);
    if (pieces_.empty()) return false;
    *piece = pieces_.back();
    pieces_.pop_back();
    return true;
  }

 private:
  std::mutex mu_;
  std::vector<Piece> pieces_;
};

class Storm {
 public:
  Storm(uint64_t seed, Exchange& exchange, std::atomic<int>& faults)
      : random_(seed), tags_(seed << 32), exchange_(exchange), faults_(faults) {}

  void run() {
    for (int i = 0; i < kSteps && faults_ == 0; ++i) step();
    for (const Piece& piece : live_) end(piece);
  }

 private:
  uint64_t below(uint64_t n) { return random_() % n; }

  // Small ones mostly, up to 4 MiB.
  size_t some_size() {
    const double bits = std::pow(static_cast<double>(below(1000)) / 1000.0, 2.0) * 22.0;
    return static_cast<size_t>(std::exp2(bits)) + below(8);
  }

  void check(const Piece& piece, size_t present) {
    if (!has_marks(piece.p, piece.bytes, piece.tag, present)) ++faults_;
  }
  void end(const Piece& piece) {
    check(piece, piece.bytes);
    hydrant_free(piece.p);
  }
  void begin() {
    const size_t bytes = some_size();
    void* p = nullptr;
    switch (below(10)) {
      case 0: p = hydrant_aligned_alloc(size_t{1} << below(16), bytes); break;
      case 1: p = hydrant_alloc_shared(1, bytes); break;
      case 2: p = hydrant_calloc(1, bytes); break;
      default: p = hydrant_alloc(bytes);
    }
    if (p == nullptr) {
      ++faults_;
      return;
    }
    write_marks(p, bytes, ++tags_);
    live_.push_back({p, bytes, tags_});
  }
  void resize(Piece& piece) {
    const size_t bytes = some_size();
    void* p = hydrant_realloc(piece.p, bytes);
    if (p == nullptr) {
      ++faults_;
      return;
    }
    piece.p = p;
    check(piece, std::min(bytes, piece.bytes));
    piece.bytes = bytes;
    write_marks(p, bytes, piece.tag);
  }
  Piece take_any() {
    std::swap(live_[below(live_.size())], live_.back());
    const Piece piece = live_.back();
    live_.pop_back();
    return piece;
  }

  void step() {
    const uint64_t what = below(100);
    Piece other{};
    if (live_.empty() || (live_.size() < kMaxLive && what < 50)) {
      begin();
    } else if (what < 60) {
      resize(live_[below(live_.size())]);
    } else if (what < 70) {
      exchange_.give(take_any());
    } else if (what < 80 && exchange_.take(&other)) {
      end(other);
    } else if (what == 80) {
      (void)hydrant_alloc_trim();
    } else if (what == 81) {
      FakeMonitor::instance().pin(live_[below(live_.size())].p, some_size());
    } else if (what == 82) {
      FakeMonitor::instance().unpin_all();
    } else {
      end(take_any());
    }
  }

  std::mt19937_64 random_;
  uint64_t tags_;
  Exchange& exchange_;
  std::atomic<int>& faults_;
  std::vector<Piece> live_;
};

TEST(AllocStress, NoMemoryIsHandedOutTwiceOrEmptiedInUse) {
  FakeMonitor::instance().appear();
  const uint64_t seed = testing::test_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::atomic<int> faults{0};
  Exchange exchange;
  {
    Threads threads;
    // Half of the threads end and are followed by others: their caches must give everything back.
    for (uint64_t i = 0; i < kThreads; ++i) {
      threads.start([&, i] {
        Storm(seed + i, exchange, faults).run();
        Threads later;
        if (i % 2 == 0) {
          later.start([&, i] { Storm(seed + 100 + i, exchange, faults).run(); });
        }
      });
    }
  }
  Piece left{};
  while (exchange.take(&left)) {
    EXPECT_TRUE(has_marks(left.p, left.bytes, left.tag));
    hydrant_free(left.p);
  }
  FakeMonitor::instance().unpin_all();
  EXPECT_EQ(faults, 0);
  (void)hydrant_alloc_trim();
  hydrant_alloc_stats_t stats{};
  stats.size = sizeof stats;
  hydrant_alloc_get_stats(&stats);
  EXPECT_EQ(stats.shared.in_use_bytes, 0u);
  EXPECT_EQ(stats.own.in_use_bytes, 0u);
  EXPECT_EQ(stats.own.idle_bytes, 0u);
}

}  // namespace
}  // namespace hydrant::testing
