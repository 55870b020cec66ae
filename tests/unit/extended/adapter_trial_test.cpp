// The trial of an adapter's atomic operations, with adapters that are atomic with processors, that only claim
// it, and that return wrong values.
#include "extended/atomics/adapter_trial.hpp"

#include "tests/unit/extended/pinned_fixture.hpp"

#include <atomic>
#include <memory>
#include <sched.h>

namespace hydrant::test {
namespace {

// Executes atomic operations on the memory of this process when they complete.
class TriedNetwork final : public LoopNetwork, public PinnedOperations {
 public:
  bool claims = true;        // to be atomic with processors
  uint32_t losing = 0;       // that many additions of 1 lose what processors add meanwhile
  bool swaps_bytes = false;  // of the values that it returns
  bool refuses = false;      // accepts nothing

  uint32_t capabilities() const noexcept override {
    return kPinned | kAtomics | (claims ? uint32_t{kAtomicWithProcessors} : 0);
  }
  PinnedOperations* pinned() noexcept override { return this; }
  std::unique_ptr<Registrar> make_registrar() noexcept override {
    // The pool of buffers, which the process pins once, outlives this network.
    static LoopPins pins;
    return std::make_unique<LoopRegistrar>(PinnedLoop().ranges, pins);
  }
  uint32_t keyless_bytes() const noexcept override { return 64; }
  using LoopNetwork::get;
  using LoopNetwork::put;
  Status put(Rank, const Pinned&, const Pinned&, size_t, Completion*) noexcept override {
    return Status::kUnsupported;
  }
  Status get(Rank, const Pinned&, const Pinned&, size_t, Completion*) noexcept override {
    return Status::kUnsupported;
  }
  Status start_atomic(Rank, const Pinned& remote, const Pinned& local, const Atomic& what,
                      Completion* completion) noexcept override {
    if (refuses) return fail(Status::kBroken, "the test's adapter refuses");
    return start({.to = reinterpret_cast<void*>(local.addr),
                  .from = &old_,
                  .bytes = sizeof old_,
                  .completion = completion,
                  .allows =
                      [this, word = reinterpret_cast<uint64_t*>(remote.addr), what] {
                        old_ = execute(*word, what);
                        if (swaps_bytes) old_ = __builtin_bswap64(old_);
                        return true;
                      }},
                 nullptr);
  }

 protected:
  bool has_one_sided() const noexcept override { return true; }

 private:
  uint64_t execute(uint64_t& place, const Atomic& what) {
    const std::atomic_ref<uint64_t> word(place);
    uint64_t old = word.load();
    if (what.kind == Atomic::Kind::kCompareSwap) {
      word.compare_exchange_strong(old = what.expected, what.operand);
      return old;
    }
    if (what.operand != 1 || losing == 0) return word.fetch_add(what.operand);
    --losing;
    // The trial adds ones while a thread of it does so, too.
    while (word.load() == old) sched_yield();
    word.store(old + what.operand);
    return old;
  }

  uint64_t old_ = 0;
};

class AdapterTrial : public PinnedFixture {
 protected:
  std::unique_ptr<LoopNetwork> make_network() override {
    auto owned = std::make_unique<TriedNetwork>();
    adapter = owned.get();
    return owned;
  }
  TriedNetwork* adapter = nullptr;
};

TEST_F(AdapterTrial, AdapterThatIsAtomicWithProcessorsIsBelieved) {
  EXPECT_EQ(try_adapter_atomics(), AdapterAtomics::kWithProcessors);
}

TEST_F(AdapterTrial, AdapterThatLosesUpdatesOfProcessorsIsNotBelieved) {
  adapter->losing = 3;
  EXPECT_EQ(try_adapter_atomics(), AdapterAtomics::kAmongAdapters);
}

TEST_F(AdapterTrial, AdapterThatClaimsNothingIsNotTriedWithAThread) {
  adapter->claims = false;
  EXPECT_EQ(try_adapter_atomics(), AdapterAtomics::kAmongAdapters);
  EXPECT_EQ(adapter->completions, 3u);
}

TEST_F(AdapterTrial, AdapterThatReturnsWrongValuesIsNotUsed) {
  adapter->swaps_bytes = true;
  EXPECT_EQ(try_adapter_atomics(), AdapterAtomics::kNone);
}

TEST_F(AdapterTrial, AdapterWithoutLoopbackIsNotUsed) {
  adapter->refuses = true;
  EXPECT_EQ(try_adapter_atomics(), AdapterAtomics::kNone);
}

}  // namespace
}  // namespace hydrant::test
