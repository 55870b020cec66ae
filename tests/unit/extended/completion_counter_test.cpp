// Synchronisation between a thread that starts pieces and one that completes them: the data is visible,
// and the object may be freed.
#include "extended/event/completion_counter.hpp"

#include "extended/rma/common/count_pieces.hpp"
#include "extended/rma/common/rma_thread.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>

namespace hydrant {
namespace {

TEST(CompletionCounter, AreVisibleAndReusableOnceAllAreCounted) {
  constexpr int kRounds = 100'000;
  constexpr int kPieces = 5;
  RmaThread home;
  struct Operation {
    CompletionCounter pieces;
    int data[kPieces] = {};
  };
  std::atomic<Operation*> begun{nullptr};
  std::atomic<int> posted{0};
  std::thread hears([&] {
    for (int round = 0; round < kRounds; ++round) {
      Operation* operation = nullptr;
      while ((operation = begun.exchange(nullptr, std::memory_order_acquire)) == nullptr)
        std::this_thread::yield();
      for (int i = 0; i < kPieces; ++i) {
        while (posted.load(std::memory_order_acquire) <= round * kPieces + i)
          std::this_thread::yield();
        operation->data[i] = round;
        count_done(operation->pieces);
      }
    }
  });
  for (int round = 0; round < kRounds; ++round) {
    auto operation = std::make_unique<Operation>();
    operation->pieces.thread = &home;
    begun.store(operation.get(), std::memory_order_release);
    for (int i = 0; i < kPieces; ++i) {
      count_start(operation->pieces, static_cast<Rank>(i));
      posted.fetch_add(1, std::memory_order_release);
    }
    for (int looks = 1; !operation->pieces.all_done(); ++looks) {
      if (looks % 1000 == 0) std::this_thread::yield();
    }
    for (const int value : operation->data) ASSERT_EQ(value, round);
    // The thread that counted the last piece no longer accesses the object; ThreadSanitizer and
    // AddressSanitizer check that.
    operation->pieces.thread = nullptr;
    operation.reset();
    // A thread regains its room as soon as it sees its pieces complete.
    ASSERT_EQ(home.under_way(), 0u);
  }
  hears.join();
}

}  // namespace
}  // namespace hydrant
