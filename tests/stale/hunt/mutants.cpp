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

using Stopped = HuntOptions::Stopped;

struct Row {
  Mutant mutant;
  Needs needs;
  uint32_t delay_us;
  SourceSet sources;
  uint32_t slots;
  uint32_t bystander_threads = 0;
  Stopped stopped = Stopped::kNobody;
  size_t slot_bytes = size_t{64} << 10;
};

// The reason for each row's memory stands behind it.
const Row kRows[] = {
    // Only the reader hears of munmap.
    {Mutant::kDropUnmap, Needs::kReader, 0, {Source::kMmap}, 24},
    {Mutant::kDropRemove, Needs::kReader, 0, {Source::kMmap, Source::kMadvise}, 24},
    // A mapping that stays, emptied: the one change that is told as a REMAP alone.
    {Mutant::kDropRemap, Needs::kReader, 0, {Source::kMmap, Source::kOnto}, 24},
    // Mapped again before, or just after, the munmap has returned.
    {Mutant::kLateReader, Needs::kReader, kDelayUs, {Source::kMmap}, kFewSlots},
    {Mutant::kNoSettle, Needs::kReader, kDelayUs, {Source::kMmap}, kFewSlots},
    {Mutant::kNoCheckedLookup, Needs::kReader, kDelayUs, {Source::kMmap}, kFewSlots},
    {Mutant::kNoSync, Needs::kHooks, kDelayUs, {Source::kMmap}, kFewSlots},
    // Registrations of bystanders that are under way while the memory goes. (There is no row for
    // Mutant::kNoPublishCheck: a change that is in flight when a registration is published is told
    // afterwards, and then finds it published; whoever owns the memory next looks only when it was told.
    // The check saves work, and its absence shows nowhere. Nor one for Mutant::kNoCheckedTry, which needs a
    // gate that is shut when it is looked at: unit tests have a budget and a policy for that.)
    {Mutant::kKeepPending, Needs::kReader, 0, {Source::kMmap}, kFewSlots, 2, Stopped::kBystanders},
    // Registered between the report of a removal and the removal, which takes its time over many pages.
    {Mutant::kRemovedCacheable,
     Needs::kReader,
     0,
     {Source::kMadvise},
     2,
     2,
     Stopped::kNobody,
     size_t{4} << 20},
    {Mutant::kDeafToArenas, Needs::kReader, 0, {Source::kOwner}, 24},
    {Mutant::kUnwatched, Needs::kReader, 0, {Source::kMemfd, Source::kShared, Source::kShm}, 24},
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
    if (row.slots <= kFewSlots) hunt.hunt.blocks = kFewBlocks;
    if (row.bystander_threads != 0) hunt.hunt.sweeps_percent = 50;
    hunt.hunt.slot_bytes = row.slot_bytes;
    hunt.hunt.bystander_threads = row.bystander_threads;
    hunt.hunt.stopped = row.stopped;
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
