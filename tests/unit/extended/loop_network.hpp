// A network in one process: rank 1 is this process itself. Messages to rank 1 are delivered here as if
// rank 1 had sent them. One-sided operations copy within the process when they complete, at the
// earliest in a poll. Calls and completions fail when a test demands it.
#pragma once

#include "am/handler/deliver.hpp"
#include "tests/unit/am/fake_transport.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <set>
#include <utility>
#include <vector>

namespace hydrant::test {

class LoopNetwork : public FakeTransport {
 public:
  enum class Order { kFirst, kLast, kRandom };

  // ---- settings of a test ----
  bool one_sided = true;
  Order order = Order::kFirst;
  uint32_t most = 64;          // maximum under way
  bool frozen = false;         // no operation completes
  uint32_t late_polls = 0;     // this many polls deliver only messages
  uint64_t refused_call = 0;   // counted from 1: this put(), get() or send returns `refusal`, ...
  uint64_t refused_calls = 1;  // ... and this many calls in all
  Status refusal = Status::kOk;
  uint64_t broken_completion = 0;  // the same for completions
  Status breakage = Status::kOk;

  // ---- results ----
  uint64_t calls = 0;
  uint64_t completions = 0;
  size_t max_under_way = 0;
  size_t under_way() const { return posted_.size(); }
  std::set<const Completion*> records;  // all completion objects seen
  std::vector<const void*> locals;      // local addresses of puts and gets, as posted

  uint32_t capabilities() const noexcept override { return one_sided ? uint32_t{kOneSided} : 0; }
  uint32_t depth() const noexcept override { return one_sided ? most : 0; }

  Status put(Rank, uintptr_t remote, const void* local, size_t bytes,
             Completion* completion) noexcept override {
    return start({reinterpret_cast<void*>(remote), local, bytes, completion}, local);
  }
  Status get(Rank, uintptr_t remote, void* local, size_t bytes,
             Completion* completion) noexcept override {
    return start({local, reinterpret_cast<const void*>(remote), bytes, completion}, local);
  }
  Status reserve(Rank peer, Lane lane, uint32_t bytes, Outgoing* room) noexcept override {
    if (const Status status = count_call(true); status != Status::kOk) return status;
    return FakeTransport::reserve(peer, lane, bytes, room);
  }

  uint32_t poll(Receiver& receiver, uint32_t, bool replies_only) noexcept override {
    if (frozen) return 0;
    const bool is_late = late_polls != 0;
    if (is_late) --late_polls;
    if (const uint32_t events =
            (is_late ? 0 : complete_one()) + (delivers() ? deliver_one(receiver, replies_only) : 0);
        events != 0) {
      idle_polls_ = 0;
      return events;
    }
    if (++idle_polls_ > 20'000'000) {
      std::fprintf(stderr, "loop network: 20'000'000 idle polls; the awaited event cannot come\n");
      std::abort();
    }
    return 0;
  }

 protected:
  struct Posted {
    void* to = nullptr;
    const void* from = nullptr;
    size_t bytes = 0;
    Completion* completion = nullptr;
    std::function<bool()> allows = {};  // evaluated when the data arrives; empty: yes
    std::vector<std::byte> copy = {};   // used in place of `from`, if it is not empty
  };
  virtual bool has_one_sided() const noexcept { return one_sided; }
  virtual bool delivers() const noexcept { return true; }
  Status start(const Posted& operation, const void* local) {
    if (!has_one_sided()) return Status::kUnsupported;
    if (posted_.size() >= most) return Status::kNotReady;
    if (const Status status = count_call(false); status != Status::kOk) return status;
    posted_.push_back(operation);
    records.insert(operation.completion);
    locals.push_back(local);
    max_under_way = std::max(max_under_way, posted_.size());
    return Status::kOk;
  }

 private:
  Status count_call(bool is_message) {
    ++calls;
    // Messages reach all memory.
    if (is_message && refusal == Status::kUnsupported) return Status::kOk;
    if (refusal == Status::kOk || calls < refused_call || calls >= refused_call + refused_calls)
      return Status::kOk;
    return refusal == Status::kNotReady ? refusal : fail(refusal, "refused by the test");
  }
  uint32_t complete_one() {
    if (posted_.empty()) return 0;
    size_t at = 0;
    if (order == Order::kLast) at = posted_.size() - 1;
    if (order == Order::kRandom) at = random_() % posted_.size();
    const Posted operation = posted_[at];
    posted_.erase(posted_.begin() + static_cast<ptrdiff_t>(at));
    Status status = Status::kOk;
    if (++completions == broken_completion) status = breakage;
    if (status == Status::kOk && operation.allows && !operation.allows()) status = Status::kRefused;
    const void* from = operation.copy.empty() ? operation.from : operation.copy.data();
    if (status == Status::kOk) std::memcpy(operation.to, from, operation.bytes);
    operation.completion->done(*operation.completion, status);
    return 1;
  }
  uint32_t deliver_one(Receiver& receiver, bool replies_only) {
    for (size_t i = 0; i < sent.size(); ++i) {
      if (replies_only && sent[i].lane == Lane::kRequest) continue;
      const SentMessage message = sent[i];
      sent.erase(sent.begin() + static_cast<ptrdiff_t>(i));
      deliver(receiver, message);
      return 1;
    }
    return 0;
  }

  std::vector<Posted> posted_;
  std::mt19937 random_{1};
  uint64_t idle_polls_ = 0;
};

}  // namespace hydrant::test
