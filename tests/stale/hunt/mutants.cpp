#include "tests/stale/hunt/mutants.hpp"

#include "firehose/watch/hooks_abi.h"
#include "firehose/watch/mutant.hpp"

#include <dlfcn.h>

namespace hydrant::stale {
namespace {

constexpr uint32_t kDelayUs = 300;
// Few places, so that many threads meet in each.
constexpr uint32_t kFewSlots = 6;
constexpr uint32_t kFewBlocks = 2;

struct Row {
  Mutant mutant;
  Needs needs;
  uint32_t delay_us;
  SourceSet sources;
  uint32_t slots;
  uint32_t idle_threads;
  uint32_t bystanders_per_mille;
};

// The reason for each row's memory stands behind it.
const Row kRows[] = {
    // Only the reader hears of munmap.
    {Mutant::kDropUnmap, Needs::kReader, 0, {Source::kMmap}, 24, 0, 40},
    {Mutant::kDropRemove, Needs::kReader, 0, {Source::kMmap, Source::kMadvise}, 24, 0, 40},
    // A mapping that stays, emptied: the one change that is told as a REMAP alone.
    {Mutant::kDropRemap, Needs::kReader, 0, {Source::kMmap, Source::kMremap}, 24, 0, 40},
    // Mapped again before, or just after, the munmap has returned.
    {Mutant::kLateReader, Needs::kReader, kDelayUs, {Source::kMmap}, kFewSlots, 0, 0},
    {Mutant::kNoSettle, Needs::kReader, kDelayUs, {Source::kMmap}, kFewSlots, 0, 0},
    {Mutant::kNoCheckedLookup, Needs::kReader, kDelayUs, {Source::kMmap}, kFewSlots, 0, 0},
    {Mutant::kNoSync, Needs::kHooks, kDelayUs, {Source::kMmap}, kFewSlots, 0, 0},
    // Registrations that are under way while the memory goes: of bystanders, some of whom are slow.
    {Mutant::kNoPublishCheck, Needs::kReader, kDelayUs, {Source::kMmap}, kFewSlots, 2, 300},
    {Mutant::kKeepPending, Needs::kReader, 0, {Source::kMmap}, kFewSlots, 2, 300},
    // Registered between the report of a removal and the removal: by whoever is faster than the remover.
    {Mutant::kRemovedCacheable, Needs::kReader, 0, {Source::kMadvise}, kFewSlots, 2, 300},
    {Mutant::kDeafToArenas, Needs::kReader, 0, {Source::kOwner}, 24, 0, 0},
    {Mutant::kUnwatched,
     Needs::kReader,
     0,
     {Source::kMemfd, Source::kShared, Source::kShm},
     24,
     0,
     0},
};

std::vector<MutantHunt> make_hunts() {
  std::vector<MutantHunt> hunts;
  for (const Row& row : kRows) {
    MutantHunt hunt;
    hunt.name = mutant_info(row.mutant).name;
    hunt.what = mutant_info(row.mutant).what;
    hunt.needs = row.needs;
    hunt.delay_us = row.delay_us;
    hunt.hunt.sources = row.sources;
    hunt.hunt.slots = row.slots;
    if (row.slots == kFewSlots) hunt.hunt.blocks = kFewBlocks;
    hunt.hunt.idle_threads = row.idle_threads;
    hunt.hunt.bystanders_per_mille = row.bystanders_per_mille;
    hunt.hunt.stop_when_stale = true;
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
    *reason = hooks == nullptr ? "libfirehose_hooks.so is not in this process"
                               : "the hooks do not see every family of functions here";
    return false;
  }
  return true;
}

}  // namespace hydrant::stale
