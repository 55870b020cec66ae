// The hunts that find each deliberate defect, and the switch that enables a defect.
#include "tests/stale/hunt/mutants.hpp"

#include "firehose/watch/hooks_abi.h"
#include "firehose/watch/mutant.hpp"

#include <dlfcn.h>

namespace hydrant::stale {
namespace {

constexpr uint32_t kDelayUs = 300;
// Few slots, so that many threads collide in each.
constexpr uint32_t kFewSlots = 6;
constexpr uint32_t kFewBlocks = 2;

using Stopped = HuntOptions::Stopped;

// Not constexpr: Clang 14 knows no constant std::string.
const HydrantCacheOptions kBusyMutex{.budget_bytes = uint64_t{2} << 20, .busy_mutex = true};

struct MutantRow {
  Mutant mutant;
  Needs needs;
  uint32_t delay_us;
  SourceSet sources;
  uint32_t slots;
  uint32_t bystander_threads = 0;
  Stopped stopped = Stopped::kNone;
  size_t slot_bytes = size_t{64} << 10;
  HydrantCacheOptions cache{};
};

// The comment before each row gives the reason for its sources.
const MutantRow kMutantRows[] = {
    // Only the reader thread sees munmap.
    {Mutant::kDropUnmap, Needs::kReader, 0, {Source::kMmap}, 24},
    {Mutant::kDropRemove, Needs::kReader, 0, {Source::kMmap, Source::kMadvise}, 24},
    // A mapping that stays but is emptied: the only change that is reported by REMAP alone.
    {Mutant::kDropRemap, Needs::kReader, 0, {Source::kMmap, Source::kOnto}, 24},
    // Memory that is mapped again before, or just after, the munmap returns.
    {Mutant::kDelayedReader, Needs::kReader, kDelayUs, {Source::kMmap}, kFewSlots},
    {Mutant::kNoSettle, Needs::kReader, kDelayUs, {Source::kMmap}, kFewSlots},
    {Mutant::kNoCheckedLookup, Needs::kReader, kDelayUs, {Source::kMmap}, kFewSlots},
    {Mutant::kNoSync, Needs::kHooks, kDelayUs, {Source::kMmap}, kFewSlots},
    // Registrations of bystanders that are in progress while the memory is released. Mutant::kNoPublishCheck
    // has no row: a change in flight when a registration is published is reported afterwards, and then finds
    // it published; the memory's next owner looks only after the report. That check saves work, and its
    // absence is not visible. Mutant::kNoCheckedTry has no row either: it needs a gate that is shut at the
    // moment of the look-up, which unit tests set up with a budget and a policy.
    {Mutant::kKeepPending, Needs::kReader, 0, {Source::kMmap}, kFewSlots, 2, Stopped::kBystanders},
    // Memory registered between the report of a removal and the removal, which is slow over many pages.
    {Mutant::kRemovedCacheable,
     Needs::kReader,
     0,
     {Source::kMadvise},
     2,
     2,
     Stopped::kNone,
     size_t{4} << 20},
    // Only the first raw call of a process can show it, so each hunt needs a new process.
    {Mutant::kReadFirst, Needs::kHooks, kDelayUs, {Source::kMmap, Source::kFixed}, 24},
    {.mutant = Mutant::kNoMarks,
     .needs = Needs::kReader,
     .delay_us = 0,
     .sources = {Source::kMmap},
     .slots = 24,
     .cache = kBusyMutex},
    {Mutant::kIgnoreArenas, Needs::kReader, 0, {Source::kOwner}, 24},
    {Mutant::kUnwatched, Needs::kReader, 0, {Source::kMemfd, Source::kShared, Source::kShm}, 24},
};

std::vector<MutantHunt> make_hunts() {
  std::vector<MutantHunt> hunts;
  for (const MutantRow& row : kMutantRows) {
    MutantHunt hunt;
    hunt.name = mutant_info(row.mutant).name;
    hunt.what = mutant_info(row.mutant).what;
    hunt.needs = row.needs;
    hunt.delay_us = row.delay_us;
    hunt.hunt.sources = row.sources;
    hunt.hunt.slots = row.slots;
    if (row.slots <= kFewSlots) hunt.hunt.blocks = kFewBlocks;
    if (row.bystander_threads != 0) hunt.hunt.sweeps_percent = 50;
    hunt.hunt.slot_bytes = row.slot_bytes;
    hunt.cache = row.cache;
    hunt.hunt.bystander_threads = row.bystander_threads;
    hunt.hunt.stopped = row.stopped;
    hunt.hunt.stop_when_stale = true;
    if (row.mutant == Mutant::kReadFirst) {
      hunt.hunt.raw = RawCalls::kInTurn;
      hunt.hunt.stop_when_checked = true;
    }
    hunts.push_back(hunt);
  }
  return hunts;
}

}  // namespace

const std::vector<MutantHunt>& mutant_hunts() {
  static const std::vector<MutantHunt> hunts = make_hunts();
  return hunts;
}

const MutantHunt* find_mutant_hunt(const std::string& name) {
  for (const MutantHunt& hunt : mutant_hunts()) {
    if (hunt.name == name) return &hunt;
  }
  return nullptr;
}

#if HYDRANT_MUTANTS
bool has_mutants() { return true; }

bool set_mutant_by_name(const std::string& name, uint32_t delay_us) {
  for (int i = 0; i < static_cast<int>(Mutant::kCount); ++i) {
    if (name != mutant_info(static_cast<Mutant>(i)).name) continue;
    set_mutant(static_cast<Mutant>(i), delay_us);
    return true;
  }
  return false;
}
#else
bool has_mutants() { return false; }
bool set_mutant_by_name(const std::string&, uint32_t) { return false; }
#endif

bool has_needed(Needs needs, std::string* reason) {
  if (needs == Needs::kHooks) {
    const auto* hooks = static_cast<const hydrant_hooks_t*>(dlsym(RTLD_DEFAULT, "hydrant_hooks_1"));
    if (hooks != nullptr && hooks->families == HYDRANT_HOOKS_ALL) return true;
    *reason = hooks == nullptr ? "libfirehose_hooks.so is not loaded in this process"
                               : "the hooks do not see every family of functions here";
    return false;
  }
  return true;
}

}  // namespace hydrant::stale
