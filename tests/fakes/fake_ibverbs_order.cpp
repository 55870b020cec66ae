// Decides when RDMA writes become visible: each device keeps those that it has taken and memory does not show
// yet. Keeps atomics between their read and their write, too.
#include "tests/fakes/fake_ibverbs.hpp"
#include "tests/fakes/fake_ibverbs_world.hpp"

#include <infiniband/verbs.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace hydrant::fake_verbs {
namespace {

// splitmix64
uint64_t draw(uint64_t below) {
  uint64_t bits = world().random += 0x9e37'79b9'7f4a'7c15;
  bits = (bits ^ bits >> 30) * 0xbf58'476d'1ce4'e5b9;
  bits = (bits ^ bits >> 27) * 0x94d0'49bb'1331'11eb;
  return (bits ^ bits >> 31) % below;
}

void show(FakeDevice& device, size_t count) {
  for (; count != 0; --count) {
    auto next = device.posted_writes.begin();
    if (device.facts.write_order == WriteOrder::kRelaxed)
      next += static_cast<std::ptrdiff_t>(draw(device.posted_writes.size()));
    std::memcpy(reinterpret_cast<void*>(next->addr), next->data.data(), next->data.size());
    device.posted_writes.erase(next);
  }
}

FakeDevice& device_of(const FakeQp& qp) { return *fake_of(qp.verbs.context)->device; }

// Whether the device has read a word that it has not written.
bool is_changing_a_word(const FakeDevice& device) {
  const World& w = world();
  return std::any_of(w.qps.begin(), w.qps.end(), [&](const auto& numbered) {
    const FakeQp& qp = *numbered.second;
    const auto there = w.qps.find(qp.destination);
    return there != w.qps.end() && &device_of(*there->second) == &device &&
           std::any_of(qp.work.begin(), qp.work.end(),
                       [](const Work& work) { return work.before.has_value() && !work.is_done; });
  });
}

}  // namespace

void take_write(FakeQp& there, uint64_t addr, std::vector<std::byte> data) {
  if (data.empty()) return;
  FakeDevice& device = device_of(there);
  device.posted_writes.push_back({addr, std::move(data)});
  if (device.facts.write_order == WriteOrder::kAtOnce) show(device, 1);
}

void show_writes(const FakeDevice* taken_by) {
  for (const auto& device : world().devices) {
    if (taken_by == nullptr || taken_by == device.get())
      show(*device, device->posted_writes.size());
  }
}

void show_before_read(FakeQp& there) {
  const FakeDevice& device = device_of(there);
  if (device.facts.write_order != WriteOrder::kRelaxed) show_writes(&device);
}

bool read_word(const FakeQp& there, Work& work) {
  if (!work.before.has_value()) {
    if (is_changing_a_word(device_of(there))) return false;
    work.before = *reinterpret_cast<const uint64_t*>(work.request.wr.atomic.remote_addr);
  }
  return !world().holds_atomics;
}

void show_some_writes() {
  World& w = world();
  if (w.holds_writes) return;
  for (const auto& device : w.devices) {
    if (!device->posted_writes.empty() && draw(4) == 0)
      show(*device, draw(device->posted_writes.size() + 1));
  }
}

bool may_read_pass(const FakeQp& there) {
  return device_of(there).facts.write_order == WriteOrder::kUnordered;
}

bool executes_again(const FakeQp& there) {
  const WriteOrder order = device_of(there).facts.write_order;
  return order == WriteOrder::kUnordered || order == WriteOrder::kRelaxed;
}

// ---- controls for tests ----

void hold_writes(bool held) {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mu);
  w.holds_writes = held;
}

void hold_atomics(bool held) {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mu);
  w.holds_atomics = held;
}

void seed_writes(uint64_t seed) {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mu);
  w.random = seed;
}

void lose_acknowledgement(ibv_qp* pair) {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mu);
  fake_of(pair)->loses_acknowledgement = true;
}

void resend(ibv_qp* pair) {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mu);
  FakeQp& qp = *fake_of(pair);
  qp.loses_acknowledgement = false;
  if (!qp.is_unacknowledged) return;
  qp.is_unacknowledged = false;
  const auto there = w.qps.find(qp.destination);
  if (!qp.work.empty() && there != w.qps.end())
    qp.work.front().is_done = !executes_again(*there->second);
}

}  // namespace hydrant::fake_verbs
