#include "tests/unit/firehose/watch/arena/fake_monitor.hpp"

#include <utility>

namespace hydrant::testing {
namespace {

constexpr size_t kMaxCalls = 100'000;

bool overlap(uintptr_t a, size_t a_len, uintptr_t b, size_t b_len) {
  return a < b + b_len && b < a + a_len;
}

}  // namespace

FakeMonitor& FakeMonitor::instance() {
  static FakeMonitor monitor;
  return monitor;
}

const hydrant_monitor_t* FakeMonitor::table() {
  static const hydrant_monitor_t table = [] {
    hydrant_monitor_t made{};
    made.size = sizeof made;
    made.version = HYDRANT_MONITOR_VERSION;
    made.invalidate = [](uintptr_t addr, size_t len) { instance().invalidate(addr, len); };
    made.pinned = [](uintptr_t addr, size_t len) { return instance().pinned(addr, len) ? 1 : 0; };
    made.add_arena = [](uintptr_t addr, size_t len) {
      return instance().add_arena(addr, len, false) ? 0 : 1;
    };
    made.add_kept_arena = [](uintptr_t addr, size_t len) {
      return instance().add_arena(addr, len, true) ? 0 : 1;
    };
    made.drop_arena = [](uintptr_t, size_t) {};
    made.settle = [] {};
    made.sync = [] { instance().sync(); };
    made.files_changed = [] {};
    return made;
  }();
  return &table;
}

void FakeMonitor::pin(const void* addr, size_t len) {
  const std::lock_guard lock(mu_);
  pins_.push_back({reinterpret_cast<uintptr_t>(addr), len});
}

void FakeMonitor::pin_in_invalidate(const void* addr, size_t len) {
  pins_.push_back({reinterpret_cast<uintptr_t>(addr), len});
}

void FakeMonitor::unpin_all() {
  const std::lock_guard lock(mu_);
  pins_.clear();
}

void FakeMonitor::on_invalidate(std::function<void(uintptr_t, size_t)> look) {
  const std::lock_guard lock(mu_);
  look_ = std::move(look);
}

void FakeMonitor::refuse_arenas(bool refuse) {
  const std::lock_guard lock(mu_);
  refuse_arenas_ = refuse;
}

std::vector<FakeMonitor::Call> FakeMonitor::calls() {
  const std::lock_guard lock(mu_);
  return calls_;
}

void FakeMonitor::clear_calls() {
  const std::lock_guard lock(mu_);
  calls_.clear();
}

bool FakeMonitor::announced(const void* addr, size_t len) {
  const std::lock_guard lock(mu_);
  const auto start = reinterpret_cast<uintptr_t>(addr);
  for (const Range& arena : arenas_) {
    if (arena.addr <= start && start + len <= arena.addr + arena.len) return true;
  }
  return false;
}

void FakeMonitor::invalidate(uintptr_t addr, size_t len) {
  const std::lock_guard lock(mu_);
  if (calls_.size() < kMaxCalls) calls_.push_back({Kind::kInvalidate, addr, len});
  if (look_) look_(addr, len);
}

bool FakeMonitor::pinned(uintptr_t addr, size_t len) {
  const std::lock_guard lock(mu_);
  if (calls_.size() < kMaxCalls) calls_.push_back({Kind::kPinned, addr, len});
  for (const Range& pin : pins_) {
    if (overlap(pin.addr, pin.len, addr, len)) return true;
  }
  return false;
}

bool FakeMonitor::add_arena(uintptr_t addr, size_t len, bool kept) {
  const std::lock_guard lock(mu_);
  calls_.push_back({kept ? Kind::kAddKeptArena : Kind::kAddArena, addr, len});
  if (!refuse_arenas_) arenas_.push_back({addr, len});
  return !refuse_arenas_;
}

void FakeMonitor::sync() {
  const std::lock_guard lock(mu_);
  calls_.push_back({Kind::kSync, 0, 0});
}

}  // namespace hydrant::testing

const hydrant_monitor_t* hydrant_monitor(uint32_t version) {
  using hydrant::testing::FakeMonitor;
  const bool known = version == HYDRANT_MONITOR_VERSION && FakeMonitor::instance().present();
  return known ? FakeMonitor::table() : nullptr;
}
