// Sets up a domain, resets it in the child of a fork, reads its statistics, and shuts it down.
// domain_pins.cpp has the calls of a client.
#include "firehose/cache/domain.hpp"

#include "firehose/cache/coherence/upkeep.hpp"
#include "firehose/watch/monitor.hpp"

#include <algorithm>
#include <cstring>

namespace hydrant {
namespace {

// Number of slots in page mode, for regions and spans together, unless the address space is limited.
constexpr size_t kPageModeSlots = size_t{1} << 22;
constexpr size_t kMinSpans = 1024;

}  // namespace

Domain::Domain(const DomainConfig& config, std::unique_ptr<Registrar> registrar,
               CachePolicies policies, uint64_t handle) noexcept
    : parts_(config, std::move(registrar), std::move(policies), handle),
      miss_(parts_),
      releases_(parts_),
      spans_(parts_, miss_, releases_),
      deferred_(parts_, miss_, releases_, spans_),
      exports_(parts_, spans_),
      peer_regions_(parts_, miss_, releases_) {}

Domain::~Domain() {
  parts_.limits.close();
  const size_t spans = spans_.used() != 0 ? parts_.store.count() + spans_.used() : 0;
  release_slot_arena(arena_, std::max<size_t>(parts_.store.used() + 1, spans));
}

// Slots for regions and, in page mode, as many for spans as the address space has room for.
bool Domain::map_slots() noexcept {
  const size_t regions = parts_.store.count();
  if (parts_.config.mode != HYDRANT_MODE_PAGE) {
    arena_ = acquire_slot_arena(regions);
    return arena_.slots != nullptr;
  }
  const size_t least = regions + kMinSpans;
  const size_t share = arena_share_bytes() / sizeof(RegionSlot) / 2;
  const size_t most = std::max(kPageModeSlots, least + regions / 4);
  size_t wanted = std::max(std::min(most, share), least);
  for (;; wanted = std::max(wanted / 2, least)) {
    arena_ = acquire_slot_arena(wanted);
    if (arena_.slots != nullptr) break;
    if (wanted == least) return false;
  }
  return spans_.map(arena_.slots + regions, arena_.count - regions);
}

Status Domain::set_up() noexcept {
  const DomainConfig& config = parts_.config;
  if (!map_slots() || !parts_.store.map(arena_.slots) || !parts_.holds.map() ||
      !parts_.pending.map() || !parts_.vouched.map()) {
    return fail(
        Status::kResource,
        "domain %s: no address space for the tables of %u regions with keys of %zu bytes: raise "
        "ulimit -v, or lower options.max_regions or FIREHOSE_MAX_REGIONS",
        config.name, config.max_regions, parts_.store.keys().stride());
  }
  const bool in_buckets = config.mode == HYDRANT_MODE_PAGE;
  const auto shift = static_cast<uint32_t>(__builtin_ctzll(config.granule_bytes));
  if (!parts_.tables.make(in_buckets ? shift : 0))
    return fail(
        Status::kResource,
        "domain %s: the system has no memory for its tables: free memory, or raise ulimit -v",
        config.name);
  parts_.limits.open();
  return Status::kOk;
}

Status Domain::start_watching() noexcept {
  hydrant_monitor_client_t client{};
  client.context = &parts_.invalidator;
  client.forget = [](void* self, uintptr_t addr, size_t len) {
    static_cast<Invalidator*>(self)->forget({addr, len});
  };
  client.forget_vouched = [](void* self) { static_cast<Invalidator*>(self)->forget_vouched(); };
  client.pinned = [](void* self, uintptr_t addr, size_t len) {
    return static_cast<Invalidator*>(self)->any_pinned({addr, len}) ? 1 : 0;
  };
  WatchLink::ClientHooks more{};
  more.end_free_hits = [](void* self) { static_cast<Invalidator*>(self)->end_free_hits(); };
  more.unmapped = [](void* self, uintptr_t addr, size_t len) {
    static_cast<Invalidator*>(self)->forget_unmapped({addr, len});
  };
  more.wanted = [](void*) { Upkeep::own().wake_at_once(); };
  const Status status = parts_.watch.start(find_monitor(), client, more);
  if (status != Status::kOk || parts_.config.watch != HYDRANT_WATCH_AUTO) return status;
  (void)Upkeep::own().start(true);  // here and not in a pin: see WatchLink::start()
  upkeep_ = Upkeep::own().enlist([](void* self) { return static_cast<Releases*>(self)->keep_up(); },
                                 &releases_);
  return status;
}

// In this order, because Upkeep has as many places as the monitor: a domain that the monitor serves always
// finds a place in Upkeep.
void Domain::stop_watching() noexcept {
  Upkeep::own().leave(upkeep_);
  upkeep_ = -1;
  parts_.watch.stop();
}

Status Domain::add_prepinned(MemoryRange range, Access access, const void* key) noexcept {
  const Status status = miss_.check_range(range);
  if (status != Status::kOk) return status;
  const DomainConfig& config = parts_.config;
  if (range != round_out(range, config.granule_bytes)) {
    return fail(Status::kBadArg,
                "prepinned range [%#zx, +%zu) does not begin and end at multiples of %zu bytes: "
                "round it to them",
                static_cast<size_t>(range.addr), range.len, config.granule_bytes);
  }
  const size_t step = config.mode == HYDRANT_MODE_PAGE ? config.granule_bytes : range.len;
  const CachePhase lock(parts_);
  for (uintptr_t addr = range.addr; addr < range.end(); addr += step) {
    if (parts_.budget.regions(lock) >= config.max_regions) {
      return fail(Status::kResource,
                  "prepinned ranges need more than max_regions = %u regions: raise "
                  "options.max_regions or FIREHOSE_MAX_REGIONS, or prepin fewer",
                  config.max_regions);
    }
    if (parts_.tables.any_overlap(lock, {addr, step})) {
      return fail(Status::kBadArg,
                  "prepinned range [%#zx, +%zu) overlaps another one: join the two",
                  static_cast<size_t>(range.addr), range.len);
    }
    add_prepinned_region(lock, {addr, step}, access, key);
  }
  return Status::kOk;
}

void Domain::add_prepinned_region(const CacheLock& lock, MemoryRange range, Access access,
                                  const void* key) noexcept {
  Plan plan;
  plan.range = range;
  plan.access = access;
  plan.region = parts_.free_slots.allocate(lock);
  if (parts_.traits.key_bytes != 0) {
    std::memcpy(parts_.store.keys().of(plan.region), key, parts_.traits.key_bytes);
  }
  RegionInfo& info = parts_.store.infos(lock)[plan.region];
  info = {};
  info.range = range;
  info.access = access;
  info.prepinned = true;
  parts_.budget.take(lock, {0, 1});
  parts_.totals.of(lock).pinned_bytes += range.len;
  parts_.publisher.publish(lock, plan, true);
}

void Domain::shut_down(bool unpin) noexcept {
  if (parts_.traits.wants_unmap_reports) parts_.watch.set_all_unmap_reports();
  stop_watching();
  deferred_.cancel();
  RegionQueue retired;
  {
    const CachePhase lock(parts_);
    auto& infos = parts_.store.infos(lock);
    parts_.tables.close(lock);
    for (RegionIndex i = 1; i <= parts_.store.high(lock); ++i) {
      RegionInfo& info = infos[i];
      if (info.state == RegionState::kDead) parts_.retirement.remove_dead(lock, i);
      const bool registered = info.state == RegionState::kOpen || info.state == RegionState::kDead;
      RegionSlot& slot = parts_.store.slot(i);
      shut_gate(slot);
      slot.tag.store(0, std::memory_order_relaxed);
      if (registered && unpin && !info.prepinned) {
        parts_.unpins.begin(lock, i, &retired);
      }
    }
  }
  (void)parts_.unpinner.unpin(&retired, Unpinner::Charge::kReleased);
  spans_.free_all();
  parts_.watch.unwatch_unused();
  const MutexLock registry(registry_mutex());
  parts_.threads.detach_all();
}

// Called by the only thread of a forked child. A change that was under way under the mutex goes on in the
// parent only. So the parts reset their links without following them; only the list of threads is walked,
// which is valid at each step of its changes.
void Domain::reset_in_child() noexcept {
  parts_.mu.reset_in_child();
  deferred_.reset_in_child();
  parts_.registrar->forget_in_child();
  const CacheLock lock(parts_.mu);
  parts_.tables.reset_in_child(lock);
  parts_.pending.reset_in_child(lock);
  parts_.begun.reset_in_child(lock);
  parts_.retirement.reset_in_child(lock);
  parts_.unpins.reset_in_child(lock);
  parts_.policies.replacement->reset_in_child();
  parts_.policies.admission->reset_in_child();
  parts_.free_slots.clear(lock);
  parts_.planner.forget_all(lock);
  parts_.limits.open();
  parts_.epoch.advance(lock);
  for (RegionIndex i = 1; i <= parts_.store.high(lock); ++i) reset_region_in_child(lock, i);
  spans_.reset_in_child(lock);
  parts_.epoch.advance(lock);
  parts_.pending_ranges.reset_in_child();
  parts_.holds.reset_in_child(lock);  // leaks the threads' memory in the child
  parts_.budget.reset_in_child(lock);
  parts_.totals.reset(lock);
  parts_.store.mark_live();
}

// Turns a region that is held now into a tombstone: its release may still follow.
void Domain::reset_region_in_child(const CacheLock& lock, RegionIndex region) noexcept {
  RegionInfo& info = parts_.store.infos(lock)[region];
  const bool held = parts_.holds.sum(lock, region) != 0;
  parts_.victims.remove(lock, region);
  if (info.state == RegionState::kTombstone) return;
  info = {};
  RegionSlot& slot = parts_.store.slot(region);
  slot.index = region;
  // Unless the kernel wipes slots at fork, they still contain what the parent wrote.
  shut_gate(slot);
  slot.tag.store(0, std::memory_order_relaxed);
  slot.addr.store(kBlankAddr, std::memory_order_relaxed);
  slot.unused_extension.store(0, std::memory_order_relaxed);
  if (held) {
    info.state = RegionState::kTombstone;
  } else {
    parts_.free_slots.quarantine(lock, region);
  }
}

void Domain::read_stats(hydrant_stats_t* stats) noexcept {
  const uint64_t pending = parts_.registrar->pending_charge();
  const uint64_t left_locked = parts_.registrar->left_locked_bytes();
  const CachePhase lock(parts_);
  const uint64_t high = parts_.store.high(lock);
  hydrant_stats_t out = parts_.totals.of(lock);
  out.live_holds = 0;
  for (const ThreadDomain* t = parts_.holds.first_thread(lock); t != nullptr; t = t->next) {
    CacheTotals::add(out, *t);
    // Hold counts are touched up to the highest region, a page at a time.
    out.thread_table_bytes += t->table_bytes.load(std::memory_order_relaxed) +
                              ((high + 1) * sizeof(HoldCount) + 4095) / 4096 * 4096;
  }
  out.threads = parts_.holds.threads(lock);
  // A span is one hold for its client, and one on each of its parts.
  const SpanTable& spans = spans_.table(lock);
  out.live_holds += spans.live() - spans.live_parts();
  for (RegionIndex i = 1; i <= high; ++i) {
    const auto holds = static_cast<int32_t>(parts_.holds.sum(lock, i));
    if (holds > 0) out.live_holds += static_cast<uint32_t>(holds);
  }
  if (parts_.checks.follows()) {
    out.raw_releases = parts_.watch.raw_changes();
    out.hits_are_checked = parts_.checks.free_hits_ended() ? 1 : 0;
  }
  const size_t dead = parts_.retirement.dead(lock).size();
  out.regions = parts_.budget.regions(lock) - static_cast<uint32_t>(dead);
  out.charged_bytes = parts_.budget.charged(lock);
  out.pending_bytes = pending;
  out.left_locked_bytes = left_locked;
  out.dead_regions = dead;
  out.budget_bytes = parts_.budget.in_force(lock);
  out.max_regions = parts_.config.max_regions;
  out.fences = parts_.epoch.fences(lock);
  out.shared_table_bytes = parts_.tables.memory_bytes(lock) + spans.memory_bytes() +
                           high * (sizeof(RegionSlot) + sizeof(RegionInfo) +
                                   parts_.store.keys().stride() + sizeof(HoldCount) + 9);
  out.size = stats->size;
  std::memcpy(stats, &out, std::min(stats->size, sizeof out));
}

}  // namespace hydrant
