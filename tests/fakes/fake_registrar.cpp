// The fake registrar: pins nothing, checks each call, and injects faults.
#include "tests/fakes/fake_registrar.hpp"

#include "firehose/base/thread.hpp"
#include "firehose/registrars/page_pin_counts.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

namespace hydrant {
namespace {

constexpr uint64_t kSpinNs = 20'000;
constexpr std::byte kFiller{0xA5};
constexpr size_t kBlobHeaderBytes = sizeof(uint32_t);

void delay(uint64_t ns) noexcept {
  if (ns == 0) return;
  if (ns > kSpinNs) {
    std::this_thread::sleep_for(std::chrono::nanoseconds(ns));
    return;
  }
  const uint64_t end_ns = now_ns() + ns;
  while (now_ns() < end_ns) {
  }
}

std::string text_of(MemoryRange range) {
  char text[64];
  std::snprintf(text, sizeof text, "[0x%llx, +%zu)", static_cast<unsigned long long>(range.addr),
                range.len);
  return text;
}

}  // namespace

// An asynchronous pin in progress.
struct FakeRegistrar::Order {
  MemoryRange range;
  Access access;
  PinDone done;
  void* context;
};

struct FakeRegistrar::State {
  struct Live {
    MemoryRange range;
    Access access;
    uint64_t charge;
    uint64_t serial;
  };
  struct Refusal {
    Access rights;
    MemoryRange range;
    bool always;
  };
  struct Plan {
    uint64_t countdown = 0;
    uint64_t period = 0;
    Status status = Status::kOk;
  };

  // Guards everything below; never held while a hook, a delay or a completion runs.
  mutable std::mutex mu;
  std::condition_variable orders_changed;
  std::multimap<uintptr_t, Live> live;
  NodePool nodes;
  PagePinCounts pieces{&nodes};  // divisible: instead of `live`
  std::vector<Refusal> refusals;
  std::deque<Order> orders;
  Plan plans[2];
  std::function<void(MemoryRange, Access)> hook;
  std::thread helper;
  bool stopping = false;
  uint64_t charge_limit = UINT64_MAX;
  std::atomic<uint64_t> charge_block{0};  // relaxed: a setting
  uint64_t serials = 0, live_bytes = 0, charged = 0, pending = 0, max_charged = 0;
  uint64_t pin_calls = 0, unpin_calls = 0, violations = 0, completing = 0;
  std::string first_violation;

  void violate(const std::string& text) {
    if (violations++ == 0) first_violation = text;
  }
  // The planned answer of this call; kOk if it may proceed.
  Status planned(FakeCall call) {
    Plan& plan = plans[static_cast<size_t>(call)];
    if (plan.countdown == 0 || --plan.countdown > 0) return Status::kOk;
    plan.countdown = plan.period;
    return plan.status;
  }
};

FakeRegistrar::FakeRegistrar(const FakeOptions& options)
    : options_(options), state_(std::make_unique<State>()), spare_(std::make_unique<State>()) {
  traits_.name = options.name;
  traits_.key_bytes = options.key_bytes;
  traits_.granule_bytes = options.granule_bytes;
  traits_.max_region_bytes = options.max_region_bytes;
  traits_.max_regions = options.max_regions;
  traits_.max_charge_bytes = options.charge_limit;
  traits_.charge_scope = options.charge_scope;
  traits_.supported = options.supported;
  traits_.divisible = options.divisible;
  traits_.exports = options.key_bytes != 0;
  traits_.export_bytes =
      traits_.exports ? static_cast<uint32_t>(kBlobHeaderBytes) + options.key_bytes : 0;
  traits_.asynchronous = options.completion != FakeCompletion::kImmediate;
  state_->charge_limit = options.charge_limit;
  spare_->charge_limit = options.charge_limit;
}

FakeRegistrar::~FakeRegistrar() {
  std::unique_lock lock(state_->mu);
  state_->stopping = true;
  state_->orders_changed.notify_all();
  if (state_->helper.joinable()) {
    lock.unlock();
    state_->helper.join();
    lock.lock();
  }
  while (!state_->orders.empty()) {
    const Order order = state_->orders.front();
    state_->orders.pop_front();
    lock.unlock();
    order.done(order.context, fail(Status::kBroken, "fake: the registrar ended"), nullptr);
    lock.lock();
  }
}

void FakeRegistrar::make_key(uint64_t serial, std::byte* key) const noexcept {
  const size_t head = std::min<size_t>(sizeof serial, options_.key_bytes);
  if (head == 0) return;
  std::memcpy(key, &serial, head);
  std::fill(key + head, key + options_.key_bytes, kFiller);
}

bool FakeRegistrar::is_key(uint64_t serial, const std::byte* key) const {
  if (options_.key_bytes == 0) return true;
  std::vector<std::byte> expected(options_.key_bytes);
  make_key(serial, expected.data());
  return std::equal(expected.begin(), expected.end(), key);
}

// Refusals and the granule. Requires: state_->mu held.
Status FakeRegistrar::admit(MemoryRange range, Access access) {
  const uintptr_t mask = options_.granule_bytes - 1;
  if (!range.valid() || (range.addr & mask) != 0 || (range.len & mask) != 0) {
    state_->violate("pin of " + text_of(range) + ", which is not a range of whole granules");
    return fail(Status::kBadArg, "fake: not a range of whole granules");
  }
  if (range.len > options_.max_region_bytes) {
    return fail(Status::kResource, "fake: %zu bytes exceed the largest region", range.len);
  }
  if (!includes(options_.supported, access))
    return fail(Status::kRefused, "fake: unsupported right");
  for (const State::Refusal& refusal : state_->refusals) {
    if (refusal.range.overlaps(range) && (refusal.always || bits(refusal.rights & access) != 0)) {
      return fail(Status::kRefused, "fake: refused at the test's request");
    }
  }
  return Status::kOk;
}

// Makes the pin live if the account has room. Requires: state_->mu held.
Status FakeRegistrar::enter(MemoryRange range, Access access, std::byte* key) {
  State& s = *state_;
  const uint64_t bytes = charge(range);
  const uint64_t used = s.charged + s.pending;
  if (used > s.charge_limit || bytes > s.charge_limit - used) {
    return fail(Status::kNotReady, "fake: %llu bytes charged of %llu",
                static_cast<unsigned long long>(used),
                static_cast<unsigned long long>(s.charge_limit));
  }
  if (!options_.divisible && s.live.size() >= options_.max_regions) {
    return fail(Status::kNotReady, "fake: the table is full");
  }
  s.charged += bytes;
  s.max_charged = std::max(s.max_charged, s.charged + s.pending);
  s.live_bytes += range.len;
  if (options_.divisible) {
    if (!s.pieces.reserve(range)) std::abort();
    s.pieces.add(range);
    return Status::kOk;
  }
  const uint64_t serial = ++s.serials;
  s.live.emplace(range.addr, State::Live{range, access, bytes, serial});
  make_key(serial, key);
  return Status::kOk;
}

Status FakeRegistrar::pin(MemoryRange range, Access access, std::byte* key) noexcept {
  if (options_.fast) return Status::kOk;
  std::function<void(MemoryRange, Access)> hook;
  {
    std::lock_guard lock(state_->mu);
    ++state_->pin_calls;
    Status status = state_->planned(FakeCall::kPin);
    if (status != Status::kOk) return fail(status, "fake: planned failure");
    status = admit(range, access);
    if (status != Status::kOk) return status;
    hook = state_->hook;
  }
  delay(options_.pin_delay_ns);
  if (hook) hook(range, access);
  std::lock_guard lock(state_->mu);
  return enter(range, access, key);
}

UnpinResult FakeRegistrar::unpin(MemoryRange range, const std::byte* key) noexcept {
  if (options_.fast) return UnpinResult::kDone;
  delay(options_.unpin_delay_ns);
  State& s = *state_;
  std::lock_guard lock(s.mu);
  ++s.unpin_calls;
  if (s.planned(FakeCall::kUnpin) != Status::kOk) {
    (void)fail(Status::kBroken, "fake: planned failure");
    return UnpinResult::kBroken;
  }
  uint64_t bytes = 0;
  if (!leave(range, key, &bytes)) {
    s.violate("unpin of " + text_of(range) + ", which is not pinned with that key");
    (void)fail(Status::kBroken, "fake: no such pin");
    return UnpinResult::kBroken;
  }
  s.charged -= bytes;
  s.live_bytes -= range.len;
  if (!options_.pending_charges) return UnpinResult::kDone;
  s.pending += bytes;
  return UnpinResult::kPending;
}

// Removes the pin. Requires: state_->mu held.
bool FakeRegistrar::leave(MemoryRange range, const std::byte* key, uint64_t* charge_bytes) {
  State& s = *state_;
  if (!range.valid()) return false;
  if (options_.divisible) {
    if (!s.pieces.covers(range)) return false;
    s.pieces.remove(range, [](MemoryRange) noexcept {});
    *charge_bytes = charge(range);
    return true;
  }
  const auto [first, last] = s.live.equal_range(range.addr);
  const auto found = std::find_if(first, last, [&](const auto& entry) {
    return entry.second.range == range && is_key(entry.second.serial, key);
  });
  if (found == last) return false;
  *charge_bytes = found->second.charge;
  s.live.erase(found);
  return true;
}

uint64_t FakeRegistrar::charge(MemoryRange range) const noexcept {
  const uint64_t block = state_->charge_block.load(std::memory_order_relaxed);
  return block == 0 ? range.len : round_out(range, block).len;
}

uint64_t FakeRegistrar::pending_charge() noexcept {
  std::lock_guard lock(state_->mu);
  return state_->pending;
}

Status FakeRegistrar::pin_async(MemoryRange range, Access access, std::byte* key, PinDone done,
                                void* context) noexcept {
  if (options_.fast || options_.completion == FakeCompletion::kImmediate) {
    return pin(range, access, key);
  }
  std::lock_guard lock(state_->mu);
  if (options_.completion == FakeCompletion::kFromThread && !state_->helper.joinable()) {
    state_->helper = std::thread([this] { run_completions(); });
  }
  state_->orders.push_back({range, access, done, context});
  state_->orders_changed.notify_all();
  return Status::kNotReady;
}

void FakeRegistrar::complete(const Order& order, Status status) {
  std::vector<std::byte> key(std::max<size_t>(options_.key_bytes, 1));
  if (status == Status::kOk) {
    status = pin(order.range, order.access, key.data());
  } else {
    status = fail(status, "fake: completed with a failure at the test's request");
  }
  order.done(order.context, status, status == Status::kOk ? key.data() : nullptr);
  std::lock_guard lock(state_->mu);
  --state_->completing;
}

void FakeRegistrar::run_completions() {
  State& s = *state_;
  std::unique_lock lock(s.mu);
  while (!s.stopping || !s.orders.empty()) {
    if (s.orders.empty()) {
      s.orders_changed.wait(lock);
      continue;
    }
    const Order order = s.orders.front();
    s.orders.pop_front();
    ++s.completing;
    lock.unlock();
    complete(order, Status::kOk);
    lock.lock();
  }
}

bool FakeRegistrar::complete_one(Status status) {
  Order order{};
  {
    std::lock_guard lock(state_->mu);
    if (state_->orders.empty()) return false;
    order = state_->orders.front();
    state_->orders.pop_front();
    ++state_->completing;
  }
  complete(order, status);
  return true;
}

size_t FakeRegistrar::complete_all() {
  size_t n = 0;
  while (complete_one()) ++n;
  return n;
}

Status FakeRegistrar::export_key(MemoryRange range, const std::byte* key, std::byte* blob,
                                 size_t* len) noexcept {
  if (!traits_.exports) return Registrar::export_key(range, key, blob, len);
  if (*len < traits_.export_bytes) return fail(Status::kBadArg, "fake: no room for the blob");
  if (!is_pinned(range, Access::kLocalRead, key)) {
    return fail(Status::kBadArg, "fake: export of a key that is not live");
  }
  const uint32_t key_bytes = options_.key_bytes;
  std::memcpy(blob, &key_bytes, kBlobHeaderBytes);
  std::memcpy(blob + kBlobHeaderBytes, key, key_bytes);
  *len = traits_.export_bytes;
  return Status::kOk;
}

Status FakeRegistrar::import_key(const std::byte* blob, size_t len, std::byte* key) noexcept {
  if (!traits_.exports) return Registrar::import_key(blob, len, key);
  uint32_t key_bytes = 0;
  if (len == traits_.export_bytes) std::memcpy(&key_bytes, blob, kBlobHeaderBytes);
  if (key_bytes != options_.key_bytes) return fail(Status::kBadArg, "fake: malformed blob");
  std::memcpy(key, blob + kBlobHeaderBytes, key_bytes);
  return Status::kOk;
}

void FakeRegistrar::forget_in_child() noexcept {
  // Leaked, because a thread of the parent may have been inside.
  (void)state_.release();
  state_ = std::move(spare_);
}

void FakeRegistrar::fail_call(FakeCall call, uint64_t n, Status status, bool repeat) {
  std::lock_guard lock(state_->mu);
  state_->plans[static_cast<size_t>(call)] = {n, repeat ? n : 0, status};
}

void FakeRegistrar::refuse_rights(Access rights, MemoryRange range) {
  std::lock_guard lock(state_->mu);
  state_->refusals.push_back({rights, range, false});
}

void FakeRegistrar::refuse_range(MemoryRange range) {
  std::lock_guard lock(state_->mu);
  state_->refusals.push_back({Access::kAll, range, true});
}

void FakeRegistrar::allow_all() {
  std::lock_guard lock(state_->mu);
  state_->refusals.clear();
}

void FakeRegistrar::set_charge_limit(uint64_t bytes) {
  std::lock_guard lock(state_->mu);
  state_->charge_limit = bytes;
}

void FakeRegistrar::set_charge_block(uint64_t block_bytes) {
  state_->charge_block.store(block_bytes, std::memory_order_relaxed);
}

void FakeRegistrar::set_pin_hook(std::function<void(MemoryRange, Access)> hook) {
  std::lock_guard lock(state_->mu);
  state_->hook = std::move(hook);
}

uint64_t FakeRegistrar::release_charges(uint64_t bytes) {
  std::lock_guard lock(state_->mu);
  const uint64_t given = std::min(bytes, state_->pending);
  state_->pending -= given;
  return given;
}

uint64_t FakeRegistrar::live_pins() const {
  std::lock_guard lock(state_->mu);
  return options_.divisible ? state_->pieces.intervals() : state_->live.size();
}

uint64_t FakeRegistrar::read(uint64_t State::*counter) const {
  std::lock_guard lock(state_->mu);
  return (*state_).*counter;
}

uint64_t FakeRegistrar::live_bytes() const { return read(&State::live_bytes); }
uint64_t FakeRegistrar::max_charged_bytes() const { return read(&State::max_charged); }
uint64_t FakeRegistrar::pin_calls() const { return read(&State::pin_calls); }
uint64_t FakeRegistrar::unpin_calls() const { return read(&State::unpin_calls); }
uint64_t FakeRegistrar::violations() const { return read(&State::violations); }

uint64_t FakeRegistrar::charged_bytes() const {
  std::lock_guard lock(state_->mu);
  return state_->charged + state_->pending;
}

uint64_t FakeRegistrar::under_way() const {
  std::lock_guard lock(state_->mu);
  return state_->orders.size() + state_->completing;
}

std::string FakeRegistrar::first_violation() const {
  std::lock_guard lock(state_->mu);
  return state_->first_violation;
}

bool FakeRegistrar::is_pinned(MemoryRange range, Access access, const std::byte* key) const {
  std::lock_guard lock(state_->mu);
  if (options_.divisible) return state_->pieces.covers(range);
  for (const auto& [addr, pin] : state_->live) {
    if (addr > range.addr) break;
    if (!pin.range.covers(range) || !includes(pin.access, access)) continue;
    if (key == nullptr || is_key(pin.serial, key)) return true;
  }
  return false;
}

std::string FakeRegistrar::leftovers() const {
  std::string text;
  if (live_pins() != 0) text += std::to_string(live_pins()) + " pins are live; ";
  if (under_way() != 0) text += std::to_string(under_way()) + " pins are in progress; ";
  if (violations() != 0) text += "violation: " + first_violation() + "; ";
  return text;
}

}  // namespace hydrant
