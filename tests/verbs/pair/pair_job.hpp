// Shared by the tests of a pair: two ranks on two machines, started by a launcher. A launcher starts each
// rank's process once, so each case needs a new start (tests/verbs/pair/cases).
#pragma once

#include "rdma/bootstrap/bootstrap.hpp"
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

  // With a patience of 1.9 s, so that a cut need not last as long as by default.
  virtual IbvTransport::Options options() const;
  Rank self() const { return bootstrap->topology().rank; }
  Rank other() const { return 1 - self(); }
  // Waits for both ranks through the launcher, without traffic on the tested link.
  bool meet() const { return bootstrap->fence(in_seconds(kLongSeconds)) == Status::kOk; }
  // Exchanges messages in both lanes, some with cells, and puts and gets between them, with contents that the
  // receivers check. Both ranks call it with the same count; `before(i)` runs before message i of each lane.
  // kOk when all messages to this rank have arrived and its operations are complete; wrong() has any errors.
  Status exchange(uint32_t count, const std::function<void(uint32_t)>& before = {});
  const std::string& wrong() const { return wrong_; }
  // Does a put of this many bytes and waits for its completion. Requires an earlier exchange.
  Status put_once(size_t bytes);
  // The time until the adapter gives up by options(), less the delay of a late timer.
  static constexpr unsigned kRetryMs = 1500;

  static constexpr size_t kPutBytes = 32768;  // longer than many packets
  // Length of the puts and gets of an exchange, at most kPutBytes.
  size_t put_bytes_ = kPutBytes;

  std::unique_ptr<Bootstrap> bootstrap;
  RankProcess process;

 private:
  static constexpr uint32_t kSlots = 4;     // puts that the peer has not checked yet
  static constexpr uint32_t kPutEvery = 8;  // messages per put
  static constexpr uint32_t kAhead =
      16;  // lead in messages: a put is checked before its slot is needed again
  static constexpr size_t kWindow = 0;                             // target of the peer's puts
  static constexpr size_t kSource = kWindow + kSlots * kPutBytes;  // source of this rank's puts
  static constexpr size_t kShown = kSource + kSlots * kPutBytes;   // source of the peer's gets
  static constexpr size_t kGot = kShown + kPutBytes;               // target of this rank's gets
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
  uint32_t next_[kLaneCount] = {};  // index of the next expected message
  uint32_t puts_seen_ = 0;          // puts of the peer that were checked
  uint32_t puts_told_ = 0;          // puts of this rank that the peer has checked
  std::string wrong_;
};

}  // namespace hydrant::testing
