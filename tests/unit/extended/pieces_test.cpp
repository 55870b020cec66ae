// What threads have of each other when one starts pieces and another hears that they are complete: the data,
// and leave to let go of the object.
#include "extended/pieces.hpp"

#include "extended/rma_thread.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>

namespace hydrant {
namespace {

TEST(Pieces, AreWholeAndNobodysOnceAllAreCounted) {
  constexpr int kRounds = 100'000;
  constexpr int kPieces = 5;
  RmaThread home;
  struct Operation {
    Pieces pieces;
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
    // Whoever counted the last one has let go; ThreadSanitizer and AddressSanitizer look.
    operation->pieces.thread = nullptr;
    operation.reset();
    // A thread may have its room back as soon as it finds its pieces complete.
    ASSERT_EQ(home.under_way(), 0u);
  }
  hears.join();
}

}  // namespace
}  // namespace hydrant
