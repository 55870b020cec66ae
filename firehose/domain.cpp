// Life of a domain, its threads, forks, statistics.
#include "firehose/domain.hpp"

#include "firehose/base/log.hpp"
#include "firehose/gate.hpp"

#include <algorithm>
#include <cstring>
#include <new>

namespace hydrant {
namespace {

constexpr size_t kMostVouched = 65536;
// Page mode: regions' and spans' slots together, unless the address space is limited. Address space only.
constexpr size_t kPageModeSlots = size_t{1} << 22;
constexpr size_t kFewestSpans = 1024;

// Keys are aligned to 8 bytes, and to 16 where they are that long.
constexpr size_t stride_of(size_t key_bytes) {
  const size_t alignment = key_bytes >= 16 ? 16 : 8;
  return (key_bytes + alignment - 1) / alignment * alignment;
}

uint32_t log2_of(size_t power_of_two) {
  return static_cast<uint32_t>(__builtin_ctzll(power_of_two));
}

// Blocks in which a thread's table tells regions apart: the bucket, or 64 KiB while regions are that large.
uint32_t first_shift(const DomainConfig& config) {
  return config.mode == HYDRANT_MODE_PAGE ? std::min(log2_of(config.granule_bytes), 40u) : 16;
}

}  // namespace

Domain::Domain(const DomainConfig& config, std::unique_ptr<Registrar> registrar,
               std::unique_ptr<VictimPolicy> policy, uint64_t handle) noexcept
    : config_(config),
      handle_(handle),
      registrar_(std::move(registrar)),
      policy_(std::move(policy)),
      slot_count_(slots_for(config.max_regions)),
      key_stride_(stride_of(registrar_->traits().key_bytes)),
      budget_(config.budget_bytes) {}

Domain::~Domain() {
  mappings_.close();
  const size_t spans = spans_.high() != 0 ? slot_count_ + spans_.high() : 0;
  release_slot_arena(arena_, std::max<size_t>(high_ + 1, spans));
}

// Slots for regions and, in page mode, as many for spans as the address space has room for.
bool Domain::map_slots() noexcept HYDRANT_NO_TSA {
  if (config_.mode != HYDRANT_MODE_PAGE) {
    arena_ = acquire_slot_arena(slot_count_);
    return arena_.slots != nullptr;
  }
  const size_t least = slot_count_ + kFewestSpans;
  const size_t share = arena_share_bytes() / sizeof(RegionSlot) / 2;
  const size_t most = std::max(kPageModeSlots, least + slot_count_ / 4);
  size_t wanted = std::max(std::min(most, share), least);
  for (;; wanted = std::max(wanted / 2, least)) {
    arena_ = acquire_slot_arena(wanted);
    if (arena_.slots != nullptr) break;
    if (wanted == least) return false;
  }
  return spans_.map(arena_.slots + slot_count_, arena_.count - slot_count_);
}

bool Domain::make_tables() noexcept {
  for (auto& table : tables_) {
    if (config_.mode == HYDRANT_MODE_PAGE) {
      table.reset(new (std::nothrow) PageTable(log2_of(config_.granule_bytes), arena_.slots));
    } else {
      table.reset(new (std::nothrow) RegionTable);
    }
    if (table == nullptr) return false;
  }
  return true;
}

// Nobody else knows the domain yet, so that no mutex is needed, and memory is not mapped under one.
Status Domain::set_up() noexcept HYDRANT_NO_TSA {
  if (!map_slots() || !infos_.map(slot_count_) || !shared_counts_.map(slot_count_) ||
      !vouched_.map(kMostVouched) || (key_stride_ != 0 && !keys_.map(key_stride_ * slot_count_))) {
    return fail(Status::kResource,
                "no address space for the tables of %u regions with keys of %zu bytes",
                config_.max_regions, key_stride_);
  }
  if (!make_tables()) return fail(Status::kResource, "no memory for a domain's tables");
  RegionSlot& null_slot = slot(kNoRegion);
  null_slot.addr.store(kBlankAddr, std::memory_order_relaxed);
  null_slot.alive.store(kSlotAlive, std::memory_order_release);
  open_mappings();
  return Status::kOk;
}

Status Domain::add_prepinned(MemoryRange range, Access access, const void* key) noexcept {
  Status status = check_range(range);
  if (status != Status::kOk) return status;
  if (range != round_out(range, config_.granule_bytes)) {
    return fail(Status::kBadArg, "prepinned range %#zx+%zu is not a multiple of %zu bytes",
                static_cast<size_t>(range.addr), range.len, config_.granule_bytes);
  }
  const size_t step = config_.mode == HYDRANT_MODE_PAGE ? config_.granule_bytes : range.len;
  MutexLock lock(mu_);
  for (uintptr_t addr = range.addr; addr < range.end(); addr += step) {
    if (regions_ >= config_.max_regions) {
      return fail(Status::kResource, "prepinned ranges need more than max_regions = %u regions",
                  config_.max_regions);
    }
    Plan plan;
    plan.range = {addr, step};
    plan.access = access;
    plan.region = allocate_locked();
    for (uint32_t c = 0; c < 16; ++c) {
      if (!tables_[c]->mapped() ||
          tables_[c]->any_overlap(plan.range.addr, plan.range.last()) == kNoRegion) {
        continue;
      }
      return fail(Status::kBadArg, "prepinned range %#zx+%zu overlaps another one",
                  static_cast<size_t>(range.addr), range.len);
    }
    if (key_stride_ != 0) {
      std::memcpy(key_of(plan.region), key, registrar_->traits().key_bytes);
    }
    RegionInfo& info = infos_[plan.region];
    info = {};
    info.range = plan.range;
    info.access = access;
    info.prepinned = true;
    ++regions_;
    pinned_bytes_ += step;
    publish_locked(plan, true);
  }
  return Status::kOk;
}

ThreadDomain* Domain::enter() noexcept {
  Thread* thread = this_thread();
  if (thread == nullptr) {
    begin_in_step();  // nobody knows whether it has done so
    return nullptr;
  }
  auto& entry = thread->domains[handle_ % kMaxDomains];
  ThreadDomain* state = entry.load(std::memory_order_relaxed);
  if (thread->ended.load(std::memory_order_relaxed) != nullptr) free_ended_states(*thread);
  if (state == nullptr) {
    begin_in_step();
    reserve_error_text();  // so that failing under mu_ does not allocate
    state = new (std::nothrow) ThreadDomain;
    if (state == nullptr) return nullptr;
    state->domain = this;
    state->thread = thread;
    state->handle = handle_;
    if (!state->set_up(&slot(kNoRegion), slot_count_, first_shift(config_))) {
      delete state;
      return nullptr;
    }
    entry.store(state, std::memory_order_relaxed);
    MutexLock lock(mu_);
    state->next = threads_;
    threads_ = state;
  }
  if (thread->current != state) enter_window(*state);
  return state;
}

void Domain::detach_thread(ThreadDomain& state) noexcept {
  {
    MutexLock lock(mu_);
    for (ThreadDomain** link = &threads_; *link != nullptr; link = &(*link)->next) {
      if (*link != &state) continue;
      *link = state.next;
      break;
    }
    for (RegionIndex i = 0; i <= high_; ++i) {
      const uint32_t holds = state.counts[i].load(std::memory_order_relaxed);
      if (holds == 0) continue;
      HoldCount& shared = shared_counts_[i];
      shared.store(shared.load(std::memory_order_relaxed) + holds, std::memory_order_relaxed);
    }
    const ThreadCounters& c = state.counters;
    totals_.hits += state.hits().load(std::memory_order_relaxed);
    totals_.refills += c.refills.load(std::memory_order_relaxed);
    totals_.misses += c.misses.load(std::memory_order_relaxed);
    totals_.not_ready += c.not_ready.load(std::memory_order_relaxed);
    totals_.refusals += c.refusals.load(std::memory_order_relaxed);
    totals_.waits += c.waits.load(std::memory_order_relaxed);
    totals_.slow_releases += c.slow_releases.load(std::memory_order_relaxed);
  }
  state.thread->domains[handle_ % kMaxDomains].store(nullptr, std::memory_order_relaxed);
}

void Domain::shut_down(bool unpin) noexcept {
  stop_watching();
  cancel_deferred();
  RegionQueue retired;
  {
    MutexLock lock(mu_);
    classes_.store(0, std::memory_order_release);
    for (RegionIndex i = 1; i <= high_; ++i) {
      RegionInfo& info = infos_[i];
      if (info.state == RegionState::kDead) dead_.remove(infos_, i);
      const bool registered = info.state == RegionState::kOpen || info.state == RegionState::kDead;
      shut_gate(slot(i));
      slot(i).tag.store(0, std::memory_order_relaxed);
      if (registered && unpin && !info.prepinned) {
        info.state = RegionState::kRetiring;
        retired.push(infos_, i);
      }
    }
  }
  unpin_retired(&retired, false);
  free_spans();
  MutexLock registry(registry_mutex());
  for (;;) {
    ThreadDomain* state = nullptr;
    {
      MutexLock lock(mu_);
      state = threads_;
    }
    if (state == nullptr) break;
    detach_thread(*state);
    // Its window may still show it: only the thread itself may free it.
    state->next = state->thread->ended.load(std::memory_order_relaxed);
    state->thread->ended.store(state, std::memory_order_relaxed);
  }
}

void Domain::reset_in_child() noexcept HYDRANT_NO_TSA {
  mu_.reset_in_child();
  deferred_mu_.reset_in_child();
  registered_.reset_in_child();
  registrar_->forget_in_child();
  for (auto& table : tables_) {
    if (table->mapped()) table->clear();
  }
  classes_.store(0, std::memory_order_relaxed);
  pending_.clear();
  dead_.clear();
  quarantine_.clear();
  refusals_.clear();
  streams_.clear();
  open_mappings();
  ++epoch_;
  for (RegionIndex i = 1; i <= high_; ++i) {
    RegionInfo& info = infos_[i];
    const bool held = holds_locked(i) != 0;
    if (info.listed) policy_->erase(i);
    info.listed = false;
    if (info.state == RegionState::kTombstone) continue;
    info = {};
    slot(i).index = i;
    // Where the kernel does not wipe slots, they still say what the parent wrote.
    shut_gate(slot(i));
    slot(i).tag.store(0, std::memory_order_relaxed);
    slot(i).addr.store(kBlankAddr, std::memory_order_relaxed);
    slot(i).unreached.store(0, std::memory_order_relaxed);
    if (held) {
      info.state = RegionState::kTombstone;
    } else {
      quarantine_locked(i);
    }
  }
  spans_.reset_in_child();
  ++epoch_;
  threads_ = nullptr;  // their memory is left to this copy of the process
  shared_counts_.clear();
  charged_ = pinned_bytes_ = 0;
  regions_ = 0;
  budget_ = config_.budget_bytes;
  totals_ = {};
  deferred_ = nullptr;
  deferred_tail_ = &deferred_;
  deferred_count_.store(0, std::memory_order_relaxed);
  dead_count_.store(0, std::memory_order_relaxed);
  async_running_.store(0, std::memory_order_relaxed);
  RegionSlot& null_slot = slot(kNoRegion);
  null_slot.addr.store(kBlankAddr, std::memory_order_relaxed);
  null_slot.alive.store(kSlotAlive, std::memory_order_release);
}

void Domain::read_stats(hydrant_stats_t* stats) noexcept {
  const uint64_t pending = registrar_->pending_charge();
  MutexLock lock(mu_);
  hydrant_stats_t out = totals_;
  out.live_holds = 0;
  for (const ThreadDomain* t = threads_; t != nullptr; t = t->next) {
    const ThreadCounters& c = t->counters;
    out.hits += t->hits().load(std::memory_order_relaxed);
    out.refills += c.refills.load(std::memory_order_relaxed);
    out.misses += c.misses.load(std::memory_order_relaxed);
    out.not_ready += c.not_ready.load(std::memory_order_relaxed);
    out.refusals += c.refusals.load(std::memory_order_relaxed);
    out.waits += c.waits.load(std::memory_order_relaxed);
    out.slow_releases += c.slow_releases.load(std::memory_order_relaxed);
    ++out.threads;
    // Hold counts are touched up to the highest region, a page at a time.
    out.thread_table_bytes += t->table_bytes.load(std::memory_order_relaxed) +
                              ((uint64_t{high_} + 1) * sizeof(HoldCount) + 4095) / 4096 * 4096;
  }
  // A span is one hold for its client, and one on each of its parts.
  out.live_holds += spans_.live() - spans_.live_parts();
  for (RegionIndex i = 1; i <= high_; ++i) {
    const auto holds = static_cast<int32_t>(holds_locked(i));
    if (holds > 0) out.live_holds += static_cast<uint32_t>(holds);
  }
  out.regions = regions_ - static_cast<uint32_t>(dead_.size());
  out.pinned_bytes = pinned_bytes_;
  out.charged_bytes = charged_;
  out.pending_bytes = pending;
  out.dead_regions = dead_.size();
  out.budget_bytes = budget_;
  out.max_regions = config_.max_regions;
  out.fences = epoch_ - 1;
  for (const auto& table : tables_) {
    if (table->mapped()) out.shared_table_bytes += table->memory_bytes();
  }
  out.shared_table_bytes += uint64_t{high_} * (sizeof(RegionSlot) + sizeof(RegionInfo) +
                                               key_stride_ + sizeof(HoldCount) + 9);
  out.shared_table_bytes += spans_.memory_bytes();
  out.size = stats->size;
  std::memcpy(stats, &out, std::min(stats->size, sizeof out));
}

}  // namespace hydrant
