// Two ranks on two machines, started by a launcher: what the tests of a pair share. A launcher starts a
// process of each rank once, so that each case needs a start of its own (tests/verbs/pair/cases).
#pragma once

#include "rdma/bootstrap.hpp"
#include "tests/verbs/rank_process.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace hydrant::testing {

class PairJob : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  Rank self() const { return bootstrap->place().rank; }
  Rank other() const { return 1 - self(); }
  // Until both ranks are here, by the launcher: nothing of it goes over the link that is tested.
  bool meet() const { return bootstrap->fence(in_seconds(kLongSeconds)) == Status::kOk; }
  // Messages in both lanes, some with cells, and puts and gets between them, with a content that each
  // receiver knows. Both ranks call it with the same count; `before(i)` is called before message i of each
  // lane. kOk when all that was sent to this rank has come and its operations are over; for what came wrong,
  // see wrong().
  Status exchange(uint32_t count, const std::function<void(uint32_t)>& before = {});
  const std::string& wrong() const { return wrong_; }
  // A put of so many bytes, to its end; after an exchange.
  Status put_once(size_t bytes);
  static constexpr uint64_t kProbeNs = 200'000'000;
  // The adapter repeats a packet after 0.27 s and gives up after 1.9 s: emulated machines may wait for a
  // processor for longer than real ones.
  static constexpr uint8_t kTimeout = 16;
  static constexpr unsigned kRetryMs = 1500;  // ... less what a late timer may take

  static constexpr size_t kPutBytes = 32768;  // longer than many packets
  // How long the puts and gets of an exchange are, at most that.
  size_t put_bytes_ = kPutBytes;

  std::unique_ptr<Bootstrap> bootstrap;
  RankProcess process;

 private:
  static constexpr uint32_t kSlots = 4;     // puts that the peer has not seen yet
  static constexpr uint32_t kPutEvery = 8;  // messages
  static constexpr uint32_t kAhead = 16;    // messages: a put is seen before others need its slot
  static constexpr size_t kWindow = 0;      // what the peer puts into
  static constexpr size_t kSource = kWindow + kSlots * kPutBytes;  // what this rank puts
  static constexpr size_t kShown = kSource + kSlots * kPutBytes;   // what the peer gets
  static constexpr size_t kGot = kShown + kPutBytes;               // what this rank has got
  static constexpr size_t kAllBytes = kGot + kPutBytes;

  Status introduce();
  void take(const Incoming& message);
  void take_message(const Incoming& message, uint32_t index);
  Status send_one(Lane lane, uint32_t index);
  Status move(uint32_t number);
  void complain(const char* what, uint64_t index);

  std::unique_ptr<PinnedMemory> memory_;
  std::array<std::byte, 64> their_key_ = {};
  uintptr_t their_memory_ = 0;
  uint32_t sent_ = 0;               // messages of each lane
  uint32_t next_[kLaneCount] = {};  // the message that must come next
  uint32_t puts_seen_ = 0;          // of the peer
  uint32_t puts_told_ = 0;          // of ours, that the peer has seen
  std::string wrong_;
};

}  // namespace hydrant::testing
