// A registrar for tests and benchmarks that pins nothing: it counts, checks, delays and fails on request.
//
// Checks (except in the fast mode): each unpin matches exactly one live pin of the same range and key; keys
// are those that pin() wrote; ranges are whole granules; a pin that is undone in pieces (divisible) is undone
// once everywhere. A violation is recorded, not fatal: a fixture's TearDown asserts violations() == 0 and
// live_pins() == 0, and first_violation() has the text.
//
// Faults: fail_call() makes the n-th call fail; refuse_rights() and refuse_range() refuse like read-only or
// special memory; charge_limit makes the account full; pending_charges keeps the charge of unpinned
// memory until release_charges().
//
// Threads: everything from any thread. Settings take effect for calls that begin later.
#pragma once

#include "firehose/base/registrar.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace hydrant {

enum class FakeCompletion {
  kImmediate,   // pin_async() behaves as pin()
  kFromThread,  // pin_async() answers kNotReady; a helper thread completes it after pin_delay_ns
  kWhenTold,    // pin_async() answers kNotReady; complete_one() or complete_all() completes it
};

struct FakeOptions {
  const char* name = "fake";
  uint32_t key_bytes = 16;  // 0 to 4096; the first 8 bytes identify the pin, the rest is a pattern
  size_t granule_bytes = 4096;
  size_t max_region_bytes = SIZE_MAX;
  uint64_t max_regions = UINT64_MAX;   // beyond it pin() answers kNotReady
  uint64_t charge_limit = UINT64_MAX;  // beyond it pin() answers kNotReady
  ChargeScope charge_scope = ChargeScope::kProcess;
  Access supported = Access::kAll;
  bool divisible = false;        // needs key_bytes == 0
  bool pending_charges = false;  // unpin() answers kPending; see release_charges()
  uint64_t pin_delay_ns = 0;     // pin() sleeps this long; from 0 to 20 us it spins instead
  uint64_t unpin_delay_ns = 0;
  FakeCompletion completion = FakeCompletion::kImmediate;
  // Every call does nothing and answers kOk; keys are not written; no counting, no checks, no shared cache
  // line. For benchmarks of hits.
  bool fast = false;
};

enum class FakeCall { kPin, kUnpin };

class FakeRegistrar final : public Registrar {
 public:
  explicit FakeRegistrar(const FakeOptions& options = {});
  // Completes pins in progress (kFromThread) or fails them with kBroken (kWhenTold).
  ~FakeRegistrar() override;

  // ---- the Registrar interface
  // -----------------------------------------------------------------------------------
  const RegistrarTraits& traits() const noexcept override { return traits_; }
  Status pin(MemoryRange range, Access access, std::byte* key) noexcept override;
  UnpinResult unpin(MemoryRange range, const std::byte* key) noexcept override;
  uint64_t charge(MemoryRange range) const noexcept override;
  uint64_t pending_charge() noexcept override;
  Status pin_async(MemoryRange range, Access access, std::byte* key, PinDone done,
                   void* context) noexcept override;
  // A blob is the key itself, with its length in front.
  Status export_key(MemoryRange range, const std::byte* key, std::byte* blob,
                    size_t* len) noexcept override;
  Status import_key(const std::byte* blob, size_t len, std::byte* key) noexcept override;
  void forget_in_child() noexcept override;

  // ---- settings ---------------------------------------------------------------------------------
  // The n-th call of this kind from now (1 = the next), and with `repeat` every n-th, has no effect and
  // answers `status`. A failing unpin always answers kBroken. n == 0: none fails.
  void fail_call(FakeCall call, uint64_t n, Status status = Status::kBroken, bool repeat = false);
  // Refuses pins with any of these rights that overlap `range`.
  void refuse_rights(Access rights, MemoryRange range);
  // Refuses every pin that overlaps `range`, like unmapped memory.
  void refuse_range(MemoryRange range);
  void allow_all();  // clears both
  void set_charge_limit(uint64_t bytes);
  // Charges `per_block` for every block that a range touches, like huge pages. 0: the plain length.
  void set_charge_block(uint64_t block_bytes);
  // Runs inside pin(), after the checks and before the pin is live, without a lock: for tests that invalidate
  // at the worst moment. Null: none.
  void set_pin_hook(std::function<void(MemoryRange, Access)> hook);
  // Returns at most `bytes` of pending charges; answers how much.
  uint64_t release_charges(uint64_t bytes = UINT64_MAX);
  // kWhenTold: completes the oldest pin in progress, as pin() would now, or with `status` if it is not
  // kOk. False if there is none.
  bool complete_one(Status status = Status::kOk);
  size_t complete_all();

  // ---- counters ------------------------------------------------------------------------------
  uint64_t live_pins() const;
  uint64_t live_bytes() const;
  uint64_t charged_bytes() const;  // pending ones included
  uint64_t max_charged_bytes() const;
  uint64_t pin_calls() const;  // failed ones included
  uint64_t unpin_calls() const;
  uint64_t under_way() const;  // asynchronous pins not completed
  uint64_t violations() const;
  std::string first_violation() const;  // "" if none
  // Whether a live pin with at least these rights covers the range and has this key (null: any key).
  bool is_pinned(MemoryRange range, Access access, const std::byte* key = nullptr) const;
  // "" if no pin is live or in progress and no rule was violated; else the problems:
  //     EXPECT_EQ(fake.leftovers(), "");
  std::string leftovers() const;

 private:
  struct State;
  struct Order;
  Status admit(MemoryRange range, Access access);
  Status enter(MemoryRange range, Access access, std::byte* key);
  bool leave(MemoryRange range, const std::byte* key, uint64_t* charge_bytes);
  void complete(const Order& order, Status status);
  void run_completions();
  void make_key(uint64_t serial, std::byte* key) const noexcept;
  bool is_key(uint64_t serial, const std::byte* key) const;
  uint64_t read(uint64_t State::*counter) const;

  const FakeOptions options_;
  RegistrarTraits traits_;
  std::unique_ptr<State> state_;
  std::unique_ptr<State> spare_;  // for the child of a fork
};

}  // namespace hydrant
