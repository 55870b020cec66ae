// The monitor's parts that read and apply changes, and those that end registrations, wired as the monitor
// wires them.
#pragma once

#include "firehose/watch/announced_releases.hpp"
#include "firehose/watch/change_reader.hpp"
#include "firehose/watch/mapping_watcher.hpp"
#include "firehose/watch/unwatcher.hpp"
#include "firehose/watch/watch_state.hpp"

#include <gtest/gtest.h>

#include <memory>

namespace hydrant::testing {

struct ReadingParts : public ::testing::Test {
  [[nodiscard]] bool map_tables() {
    const RangesLock lock(watched.mutex());
    return watched.map(lock) && stacks.map(lock) && removals.map(lock);
  }

  Userfault userfault;
  ReadingSequence sequence;
  HookedCallsUnderWay calls;
  WatchedRanges watched;
  ThreadStacks stacks;
  DeferredChanges deferred;
  RemovalsUnderWay removals{watched, deferred, calls};
  std::unique_ptr<MonitorClients> clients = std::make_unique<MonitorClients>();
  RawReleases raw{userfault, watched, stacks, calls, *clients};
  ChangeReader change_reader{
      userfault, sequence, raw, {watched, stacks, removals, deferred}, *clients};
};

struct UnwatchingParts : public ReadingParts {
  WatchState state;
  std::unique_ptr<ArenaRanges> arenas = std::make_unique<ArenaRanges>();
  AnnouncedReleases releases{watched, stacks, *arenas, *clients};
  MappingWatcher mappings{userfault, watched, stacks, calls};
  Unwatcher unwatcher{state,    userfault, mappings, change_reader, watched, stacks,
                      removals, deferred,  calls,    releases,      *clients};
};

}  // namespace hydrant::testing
