// The ways of putting data that firehose_bench compares, and their common part; put_firehose.cpp has the
// last.
#include "bench/support/put_strategy.hpp"

#include "bench/support/domain.hpp"
#include "bench/support/limits.hpp"

#include <algorithm>
#include <cstring>
#include <deque>

namespace hydrant::bench {
namespace {

constexpr size_t kShortBounceBytes = 256;
constexpr uint64_t kIdleNs = 1000;
constexpr uint32_t kMaxIdleRounds = 100'000;

}  // namespace

// ---- common to all ways --------------------------------------------------------------------------

PutStrategy::PutStrategy(const PutSetting& setting)
    : setting_(setting),
      world_(*this, setting.ranks),
      cursors_(setting.ranks),
      sources_(setting.ranks * setting.window * setting.largest, PageKind::kSmall),
      landings_(setting.ranks * setting.window * setting.largest, PageKind::kSmall) {
  world_.set_rate(setting.wire_rate);
  for (Cursor& cursor : cursors_) {
    for (uint32_t slot = 0; slot < setting.window; ++slot) cursor.free_slots.push_back(slot);
  }
}

void PutStrategy::fail(const char* what, const char* why) {
  if (failure_.empty()) failure_ = std::string(what) + ": " + why;
}

PutCounts PutStrategy::base_counts() const {
  PutCounts counts;
  counts.messages = world_.messages();
  counts.bounced = bounced_;
  return counts;
}

hydrant_range_t PutStrategy::bounce_buffers(int side) const {
  const Memory& memory = side == 0 ? sources_ : landings_;
  return {reinterpret_cast<uintptr_t>(memory.data()), memory.bytes()};
}

void PutStrategy::complete(PutOp& op) noexcept {
  Cursor& cursor = cursors_[op.from];
  cursor.free_slots.push_back(op.slot);
  --cursor.under_way;
  ++completed_;
}

// No message is in flight and no put can start: polls all ranks for deferred sends.
bool PutStrategy::wait_idly(uint32_t* idle_rounds) {
  if (++*idle_rounds > kMaxIdleRounds) {
    fail("run", "puts are incomplete, but no message is in flight");
    return false;
  }
  for (uint32_t rank = 0; rank < setting_.ranks; ++rank) {
    world_.add(rank, kIdleNs);
    world_.enter(rank);
    poll(rank);
    world_.leave();
  }
  return true;
}

double PutStrategy::run(std::vector<std::vector<PutOp>>& programs) {
  const uint64_t begin = world_.align_clocks();
  uint64_t end = begin;
  for (Cursor& cursor : cursors_) cursor.next = 0;
  uint32_t idle_rounds = 0;
  for (;;) {
    uint32_t next = setting_.ranks;
    bool under_way = false;
    for (uint32_t rank = 0; rank < programs.size(); ++rank) {
      const Cursor& cursor = cursors_[rank];
      under_way |= cursor.under_way != 0;
      if (cursor.next == programs[rank].size() || cursor.under_way == setting_.window) continue;
      if (next == setting_.ranks || world_.clock(rank) < world_.clock(next)) next = rank;
    }
    const uint64_t arrival = world_.next_arrival();
    if (!failure_.empty()) return 0.0;
    if (next != setting_.ranks && world_.clock(next) <= arrival) {
      Cursor& cursor = cursors_[next];
      PutOp& op = programs[next][cursor.next++];
      op.slot = cursor.free_slots.back();
      cursor.free_slots.pop_back();
      ++cursor.under_way;
      world_.enter(next);
      start(op);
      world_.leave();
    } else if (arrival != RemoteCluster::kNever) {
      const uint64_t before = completed_;
      const uint32_t rank = world_.step();
      if (completed_ != before) end = std::max(end, world_.clock(rank));
    } else if (!under_way) {
      break;
    } else if (!wait_idly(&idle_rounds)) {
      return 0.0;
    }
  }
  return static_cast<double>(end - begin);
}

// ---- copying through buffers --------------------------------------------------------------------------

void PutStrategy::bounce(PutOp& op) noexcept {
  ++bounced_;
  if (op.len <= kShortBounceBytes) {
    std::byte message[sizeof(PutOp*) + kShortBounceBytes];
    const PutOp* which = &op;
    std::memcpy(message, &which, sizeof which);
    std::memcpy(message + sizeof which, op.data, op.len);
    world_.send(op.to, kShortBounce, message, sizeof which + op.len);
    return;
  }
  std::byte* source = sources_.at(buffer_of(op));
  std::memcpy(source, op.data, op.len);
  world_.post(op.to, {landings_.at(buffer_of(op)), source, op.len, &op, true});
}

void PutStrategy::on_put_landed(uint32_t /*rank*/, uint32_t from, void* context) noexcept {
  PutOp* op = static_cast<PutOp*>(context);
  std::memcpy(op->at, landings_.at(buffer_of(*op)), op->len);
  world_.send(from, kBounced, &op, sizeof op);
}

void PutStrategy::on_message(uint32_t rank, uint32_t from, uint32_t kind, const std::byte* bytes,
                             size_t len) noexcept {
  if (kind != kShortBounce && kind != kBounced) return on_own_message(rank, from, kind, bytes, len);
  PutOp* op = nullptr;
  std::memcpy(&op, bytes, sizeof op);
  if (kind == kBounced) return complete(*op);
  std::memcpy(op->at, bytes + sizeof op, op->len);
  world_.send(from, kBounced, &op, sizeof op);
}

// ---- the ways -----------------------------------------------------------------------------------------

namespace {

class Bounce final : public PutStrategy {
 public:
  explicit Bounce(const PutSetting& setting)
      : PutStrategy(setting), pins_(uring_refusal().empty(), 4) {
    for (int side = 0; side < 2; ++side) {
      const hydrant_range_t buffers = bounce_buffers(side);
      if (!pins_.pin(static_cast<unsigned>(side), reinterpret_cast<void*>(buffers.addr),
                     buffers.len))
        fail("registering the buffers", std::strerror(errno));
    }
  }
  PutCounts counts() const override { return base_counts(); }

 private:
  void start(PutOp& op) noexcept override { bounce(op); }
  BarePins pins_;
};

class PinEverything final : public PutStrategy {
 public:
  explicit PinEverything(const PutSetting& setting)
      : PutStrategy(setting),
        pins_(uring_refusal().empty(), static_cast<unsigned>(setting.memory.size()) + 1) {
    unsigned slot = 0;
    for (const TargetMemory& memory : setting.memory) {
      if (!pins_.pin(slot++, memory.start, memory.len))
        fail("registering everything", std::strerror(errno));
    }
  }
  PutCounts counts() const override { return base_counts(); }

 private:
  void start(PutOp& op) noexcept override { post(op); }
  BarePins pins_;
};

// Sends the target a request before each put, and a notification after it.
class Rendezvous : public PutStrategy {
 public:
  using PutStrategy::PutStrategy;

 protected:
  struct Ask {
    PutOp* op;
    std::byte* at;
    size_t len;
  };
  struct Grant {
    PutOp* op;
    hydrant_pin_t pin;  // the pin to release
    bool granted;
  };
  // These run at the target.
  virtual bool acquire(uint32_t rank, std::byte* at, size_t len, hydrant_pin_t* pin) noexcept = 0;
  virtual void release(uint32_t rank, hydrant_pin_t pin) noexcept = 0;

 private:
  enum Kind : uint32_t { kAsk = kOwnKinds, kGrant, kFinished };

  void start(PutOp& op) noexcept override {
    const Ask ask{&op, op.at, op.len};
    world().send(op.to, kAsk, &ask, sizeof ask);
  }
  void on_own_message(uint32_t rank, uint32_t from, uint32_t kind, const std::byte* bytes,
                      size_t /*len*/) noexcept override {
    if (kind == kAsk) {
      Ask ask;
      std::memcpy(&ask, bytes, sizeof ask);
      Grant grant{ask.op, {}, false};
      grant.granted = acquire(rank, ask.at, ask.len, &grant.pin);
      return world().send(from, kGrant, &grant, sizeof grant);
    }
    if (kind == kFinished) {
      hydrant_pin_t pin;
      std::memcpy(&pin, bytes, sizeof pin);
      return release(rank, pin);
    }
    Grant grant;
    std::memcpy(&grant, bytes, sizeof grant);
    if (!grant.granted) return bounce(*grant.op);
    grant.op->pin = grant.pin;
    post(*grant.op);
  }
  void on_put(PutOp& op) noexcept override {
    world().send(op.to, kFinished, &op.pin, sizeof op.pin);
    complete(op);
  }
};

// Bare registration and unregistration at the target.
class RendezvousUnpin final : public Rendezvous {
 public:
  explicit RendezvousUnpin(const PutSetting& setting) : Rendezvous(setting) {
    const unsigned slots = setting.ranks * setting.window + 1;
    for (uint32_t rank = 0; rank < setting.ranks; ++rank) {
      Target& target = targets_.emplace_back(uring_refusal().empty(), slots);
      for (unsigned slot = 0; slot < slots; ++slot) target.free.push_back(slot);
      target.held.resize(slots);
    }
  }
  PutCounts counts() const override {
    PutCounts counts = base_counts();
    counts.registrations = registrations_;
    return counts;
  }

 private:
  struct Target {
    Target(bool uring, unsigned slots) : pins(uring, slots) {}
    BarePins pins;
    std::vector<unsigned> free;
    std::vector<hydrant_range_t> held;
  };
  bool acquire(uint32_t rank, std::byte* at, size_t len, hydrant_pin_t* pin) noexcept override {
    Target& target = targets_[rank];
    const uintptr_t page = page_bytes();
    const uintptr_t addr = reinterpret_cast<uintptr_t>(at) & ~(page - 1);
    const size_t bytes = (reinterpret_cast<uintptr_t>(at) + len - addr + page - 1) & ~(page - 1);
    if (target.free.empty()) return false;
    const unsigned slot = target.free.back();
    if (!target.pins.pin(slot, reinterpret_cast<void*>(addr), bytes)) {
      fail("registering for a put", std::strerror(errno));
      return false;
    }
    target.free.pop_back();
    target.held[slot] = {addr, bytes};
    ++registrations_;
    pin->hold = slot;
    return true;
  }
  void release(uint32_t rank, hydrant_pin_t pin) noexcept override {
    Target& target = targets_[rank];
    const auto slot = static_cast<unsigned>(pin.hold);
    const hydrant_range_t range = target.held[slot];
    target.pins.unpin(slot, reinterpret_cast<void*>(range.addr), range.len);
    target.free.push_back(slot);
  }
  std::deque<Target> targets_;
  uint64_t registrations_ = 0;
};

// The target registers through this library's cache of local pins.
class RendezvousKeep final : public Rendezvous {
 public:
  explicit RendezvousKeep(const PutSetting& setting) : Rendezvous(setting) {
    for (uint32_t rank = 0; rank < setting.ranks; ++rank)
      domains_.emplace_back(put_domain_options(setting.budget_bytes));
  }
  PutCounts counts() const override {
    PutCounts counts = base_counts();
    for (const Domain& domain : domains_) {
      const hydrant_stats_t stats = domain.stats();
      counts.registrations += stats.pins;
      counts.hits += stats.hits + stats.refills;
    }
    return counts;
  }

 private:
  bool acquire(uint32_t rank, std::byte* at, size_t len, hydrant_pin_t* pin) noexcept override {
    *pin = hydrant_pin(domains_[rank].get(), at, len, HYDRANT_REMOTE_WRITE);
    if (pin->region != nullptr) return true;
    if (hydrant_pin_status(*pin) != GASNET_ERR_NOT_READY) fail("hydrant_pin", hydrant_error_text());
    return false;
  }
  void release(uint32_t /*rank*/, hydrant_pin_t pin) noexcept override { hydrant_release(pin); }
  std::deque<Domain> domains_;
};

}  // namespace

hydrant_domain_options_t put_domain_options(uint64_t budget_bytes) {
  hydrant_domain_options_t options;
  hydrant_domain_options_init(&options);
  options.watch = HYDRANT_WATCH_CLIENT;
  options.budget_bytes = budget_bytes;
  return options;
}

const char* put_way_name(PutWay way) {
  switch (way) {
    case PutWay::kFirehose: return "firehose";
    case PutWay::kRendezvousUnpin: return "rendezvous_unpin";
    case PutWay::kRendezvousKeep: return "rendezvous_keep";
    case PutWay::kBounce: return "bounce";
    case PutWay::kPinEverything: return "pin_everything";
  }
  return "?";
}

std::unique_ptr<PutStrategy> make_put_strategy(PutWay way, const PutSetting& setting) {
  switch (way) {
    case PutWay::kFirehose: return make_firehose_strategy(setting);
    case PutWay::kRendezvousUnpin: return std::make_unique<RendezvousUnpin>(setting);
    case PutWay::kRendezvousKeep: return std::make_unique<RendezvousKeep>(setting);
    case PutWay::kBounce: return std::make_unique<Bounce>(setting);
    case PutWay::kPinEverything: break;
  }
  return std::make_unique<PinEverything>(setting);
}

}  // namespace hydrant::bench
