// The rules of the unified queue, one call after the other; then many threads, with an account of every
// posting and every arrival.
#include "firehose/base/match_queue.hpp"

#include "firehose/base/thread.hpp"
#include "tests/support/threads.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <latch>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace hydrant::testing {
namespace {

struct Request : MatchElement {
  int number = 0;
};

class MatchQueueTest : public ::testing::Test {
 protected:
  MatchQueueTest() {
    for (size_t i = 0; i < requests_.size(); ++i) requests_[i].number = static_cast<int>(i);
    EXPECT_EQ(queue_.use(requests_.data(), static_cast<uint32_t>(requests_.size())), Status::kOk);
  }
  // The number of the match, or -1 when the request waits.
  int post(size_t number, MatchKey key) { return answer(queue_.post(requests_[number], key)); }
  int arrive(size_t number, MatchKey key) { return answer(queue_.arrive(requests_[number], key)); }
  static int answer(const Request* match) { return match == nullptr ? -1 : match->number; }

  // From the middle outwards.
  std::vector<int> posted() const {
    std::vector<int> all;
    queue_.visit_posted([&](const Request& r) { all.push_back(r.number); });
    return all;
  }
  std::vector<int> unexpected() const {
    std::vector<int> all;
    queue_.visit_unexpected([&](const Request& r) { all.push_back(r.number); });
    return all;
  }

  std::array<Request, 16> requests_;
  MatchQueue<Request> queue_;
};

using Numbers = std::vector<int>;

TEST_F(MatchQueueTest, IsEmptyAtFirst) {
  EXPECT_EQ(posted(), Numbers{});
  EXPECT_EQ(unexpected(), Numbers{});
  EXPECT_EQ(queue_.take_posted({0, 0}), nullptr);
  EXPECT_EQ(queue_.take_unexpected({0, 0}), nullptr);
}

TEST_F(MatchQueueTest, BothPartsGrowBesideTheMiddleEachOnItsSide) {
  EXPECT_EQ(post(0, {10}), -1);
  EXPECT_EQ(arrive(1, {11}), -1);
  EXPECT_EQ(post(2, {12}), -1);
  EXPECT_EQ(arrive(3, {13}), -1);
  EXPECT_EQ(post(4, {14}), -1);
  EXPECT_EQ(posted(), (Numbers{4, 2, 0})) << "the newest is beside the middle";
  EXPECT_EQ(unexpected(), (Numbers{3, 1}));
}

TEST_F(MatchQueueTest, PostingTakesTheArrivalThatWaitsAndDoesNotJoin) {
  arrive(0, {7});
  EXPECT_EQ(post(1, {7}), 0);
  EXPECT_EQ(unexpected(), Numbers{});
  EXPECT_EQ(posted(), Numbers{});
}

TEST_F(MatchQueueTest, ArrivalTakesThePostingThatWaitsAndDoesNotJoin) {
  post(0, {7});
  EXPECT_EQ(arrive(1, {7}), 0);
  EXPECT_EQ(posted(), Numbers{});
  EXPECT_EQ(unexpected(), Numbers{});
}

TEST_F(MatchQueueTest, EqualsOnOneSideDoNotMatchEachOther) {
  EXPECT_EQ(post(0, {7}), -1);
  EXPECT_EQ(post(1, {7}), -1);
  EXPECT_EQ(posted(), (Numbers{1, 0}));
}

TEST_F(MatchQueueTest, OldestMatchIsServedFirst) {
  for (const size_t number : {0, 1, 2}) post(number, {7});
  EXPECT_EQ(arrive(3, {7}), 0);
  EXPECT_EQ(arrive(3, {7}), 1);
  EXPECT_EQ(arrive(3, {7}), 2);
  for (const size_t number : {4, 5}) arrive(number, {8});
  EXPECT_EQ(post(6, {8}), 4);
  EXPECT_EQ(post(6, {8}), 5);
}

TEST_F(MatchQueueTest, TakesFromAnywhereAndKeepsTheOthersInOrder) {
  for (const size_t number : {0, 1, 2, 3, 4}) post(number, {10 + number});
  EXPECT_EQ(arrive(5, {12}), 2) << "from the midst";
  EXPECT_EQ(posted(), (Numbers{4, 3, 1, 0}));
  EXPECT_EQ(arrive(5, {10}), 0) << "beside the head";
  EXPECT_EQ(posted(), (Numbers{4, 3, 1}));
  EXPECT_EQ(arrive(5, {14}), 4) << "beside the middle";
  EXPECT_EQ(posted(), (Numbers{3, 1}));
}

TEST_F(MatchQueueTest, ElementsCanBeUsedAgainAtOnceOnEitherSide) {
  for (int round = 0; round < 1000; ++round) {
    ASSERT_EQ(post(0, {7}), -1);
    ASSERT_EQ(arrive(1, {7}), 0);
    ASSERT_EQ(arrive(0, {8}), -1);
    ASSERT_EQ(post(1, {8}), 0);
  }
}

TEST_F(MatchQueueTest, EveryBitOfTheKeyCounts) {
  post(0, {0});
  for (int bit = 0; bit < 64; ++bit) {
    EXPECT_EQ(queue_.take_posted({uint64_t{1} << bit}), nullptr) << bit;
  }
  EXPECT_EQ(queue_.take_posted({0}), &requests_[0]);
}

TEST_F(MatchQueueTest, MaskedBitsDoNotCount) {
  post(0, {0x1200, 0xff00});
  EXPECT_EQ(arrive(1, {0x1334}), -1);
  EXPECT_EQ(arrive(2, {0x1234}), 0);
  EXPECT_EQ(post(3, {0, 0}), 1) << "a posting that takes anything";
}

TEST_F(MatchQueueTest, OldestAmongMasksAndExactKeys) {
  post(0, {0, 0});
  post(1, {7});
  EXPECT_EQ(arrive(2, {7}), 0) << "older, though less exact";
  EXPECT_EQ(arrive(2, {7}), 1);
}

TEST_F(MatchQueueTest, TakingDoesNotJoin) {
  post(0, {5});
  arrive(1, {6});
  EXPECT_EQ(queue_.take_posted({6}), nullptr);
  EXPECT_EQ(queue_.take_unexpected({5}), nullptr);
  EXPECT_EQ(queue_.take_posted({5}), &requests_[0]);
  EXPECT_EQ(queue_.take_unexpected({6}), &requests_[1]);
  EXPECT_EQ(posted(), Numbers{});
  EXPECT_EQ(unexpected(), Numbers{});
}

TEST(MatchQueueLimits, MoreElementsThanNumbersAreRefusedWithAdvice) {
  std::vector<Request> requests(MatchQueue<Request>::kMaxElements);
  MatchQueue<Request> queue;
  EXPECT_EQ(queue.use(requests.data(), MatchQueue<Request>::kMaxElements + 1), Status::kBadArg);
  EXPECT_NE(std::string(last_error_text()).find("4095"), std::string::npos);
  ASSERT_EQ(queue.use(requests.data(), MatchQueue<Request>::kMaxElements), Status::kOk);
  EXPECT_EQ(queue.post(requests.back(), {1}), nullptr);
  EXPECT_EQ(queue.post(requests.front(), {2}), nullptr);
  EXPECT_EQ(queue.arrive(requests[1], {1}), &requests.back());
  EXPECT_EQ(queue.arrive(requests[1], {2}), &requests.front());
}

// ---- many threads ----

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int kSteps = 40000;
#else
constexpr int kSteps = 100000;
#endif

// Now and then somebody else runs between two steps of a call.
struct Yield {
  static void here() noexcept {
    thread_local std::minstd_rand random(static_cast<unsigned>(now_ns()));
    if (random() % 16 == 0) std::this_thread::yield();
  }
};

// What a request carries: plain memory, so that ThreadSanitizer sees whether it is handed over.
struct Letter : MatchElement {
  bool is_posting = false;
  uint64_t key = 0;
  uint64_t serial = 0;
};

// Threads post and arrive with few keys, as long as they have letters, and use every letter they get.
// Each serial number is entered where it was matched, and where it was left over.
class MatchQueueStorm : public ::testing::TestWithParam<uint32_t> {
 protected:
  static constexpr uint32_t kLettersEach = 6;

  void run(uint32_t thread) {
    std::mt19937 random(thread + 1);
    std::vector<Letter*> own;
    for (uint32_t i = 0; i < kLettersEach; ++i) own.push_back(&letters_[thread * kLettersEach + i]);
    start_->arrive_and_wait();
    for (uint32_t step = 0; step < kSteps; ++step) {
      if (own.empty()) {
        // Everything of this thread waits: it takes out what it can, as a deadline would.
        const MatchKey any{0, 0};
        Letter* left = step % 2 == 0 ? queue_.take_posted(any) : queue_.take_unexpected(any);
        if (left == nullptr) continue;
        account(*left, kTakenOut);
        own.push_back(left);
        continue;
      }
      Letter& letter = *own.back();
      letter.is_posting = random() % 2 == 0;
      letter.key = random() % keys_;
      letter.serial = thread * kSteps + step;
      const MatchKey key{letter.key};
      const bool is_posting = letter.is_posting;
      const uint64_t serial = letter.serial;
      Letter* match = is_posting ? queue_.post(letter, key) : queue_.arrive(letter, key);
      calls_.fetch_add(1, std::memory_order_relaxed);
      if (match == nullptr) {
        own.pop_back();
        continue;
      }
      if (match->key != key.id || match->is_posting == is_posting) ++wrong_;
      account(*match, kMatched);
      if (ends_[serial].exchange(kMatched) != kOpen) ++wrong_;
      own.push_back(match);
    }
  }
  void account(const Letter& letter, uint8_t end) {
    if (ends_[letter.serial].exchange(end) != kOpen) ++wrong_;
  }

  enum End : uint8_t { kOpen, kMatched, kTakenOut, kLeft };

  uint32_t keys_ = 3;
  std::vector<Letter> letters_;
  std::vector<std::atomic<uint8_t>> ends_;
  MatchQueue<Letter, Yield> queue_;
  std::unique_ptr<std::latch> start_;
  std::atomic<uint64_t> calls_{0}, wrong_{0};
};

TEST_P(MatchQueueStorm, EveryPostingMeetsOneArrivalAndNobodyIsLost) {
  constexpr uint32_t kThreads = 4;
  keys_ = GetParam();
  letters_ = std::vector<Letter>(kThreads * kLettersEach);
  ends_ = std::vector<std::atomic<uint8_t>>(kThreads * kSteps);
  start_ = std::make_unique<std::latch>(kThreads);
  ASSERT_EQ(queue_.use(letters_.data(), static_cast<uint32_t>(letters_.size())), Status::kOk);
  Threads threads;
  for (uint32_t t = 0; t < kThreads; ++t) threads.start([this, t] { run(t); });
  threads.join();

  // No key waits on both sides, and nobody is in the list who was matched.
  std::vector<uint64_t> posted_keys;
  queue_.visit_posted([&](const Letter& letter) {
    posted_keys.push_back(letter.key);
    account(letter, kLeft);
  });
  queue_.visit_unexpected([&](const Letter& letter) {
    for (const uint64_t key : posted_keys) EXPECT_NE(letter.key, key) << "they missed each other";
    account(letter, kLeft);
  });
  EXPECT_EQ(wrong_.load(), 0u);
  std::array<uint64_t, 4> ends{};
  for (const auto& end : ends_) ++ends[end.load()];
  EXPECT_EQ(ends[kMatched] + ends[kTakenOut] + ends[kLeft], calls_.load()) << "a letter was lost";
  EXPECT_EQ(ends[kMatched] % 2, 0u);
  EXPECT_GT(ends[kMatched], 0u);
}

INSTANTIATE_TEST_SUITE_P(Keys, MatchQueueStorm, ::testing::Values(1u, 3u, 1000u));

// A reply and a recall for each move, from two threads that run ahead of each other: each move meets once.
TEST(MatchQueueMoves, RepliesAndRecallsInEitherOrderMeetOnce) {
  constexpr uint64_t kAhead = 8;
  constexpr uint64_t kMoves = kSteps;
  std::vector<Letter> letters(2 * kAhead);
  std::vector<std::atomic<uint8_t>> met(kMoves);
  MatchQueue<Letter, Yield> queue;
  ASSERT_EQ(queue.use(letters.data(), 2 * kAhead), Status::kOk);
  std::atomic<uint64_t> wrong{0};
  std::atomic<bool> stop{false};
  std::array<std::atomic<uint64_t>, 2> done{};
  Threads threads;
  for (const size_t side : {size_t{0}, size_t{1}}) {
    threads.start([&, side] {
      for (uint64_t move = 0; move < kMoves; ++move) {
        // Once the other one is through with this place's last move, both letters of it are free; if
        // they missed each other they are not, and must not be used again.
        while (!stop.load() && done[1 - side].load() + kAhead <= move) std::this_thread::yield();
        if (stop.load() || (move >= kAhead && met[move - kAhead].load() == 0)) {
          stop.store(true);
          return;
        }
        Letter& letter = letters[2 * (move % kAhead) + side];
        letter.is_posting = side == 0;
        letter.key = move;
        Letter* match = side == 0 ? queue.post(letter, {move}) : queue.arrive(letter, {move});
        if (match != nullptr) {
          if (match->key != move || match->is_posting == (side == 0)) ++wrong;
          if (met[move].exchange(1) != 0) ++wrong;
        }
        done[side].store(move + 1);
      }
    });
  }
  threads.join();
  EXPECT_EQ(wrong.load(), 0u);
  for (uint64_t move = 0; move < kMoves; ++move) ASSERT_EQ(met[move].load(), 1) << "move " << move;
  EXPECT_EQ(queue.take_posted({0, 0}), nullptr);
  EXPECT_EQ(queue.take_unexpected({0, 0}), nullptr);
}

}  // namespace
}  // namespace hydrant::testing
