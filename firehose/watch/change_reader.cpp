// Reads and applies changes of memory. The reader thread calls it (reader_thread.cpp).
#include "firehose/watch/change_reader.hpp"

#include "firehose/base/brief_lock.hpp"
#include "firehose/watch/mutant.hpp"

namespace hydrant {
namespace {

bool drops(MemoryChange::Kind kind) {
  switch (kind) {
    case MemoryChange::Kind::kUnmapped: return is_mutant(Mutant::kDropUnmap);
    case MemoryChange::Kind::kMoved: return is_mutant(Mutant::kDropRemap);
    case MemoryChange::Kind::kRemoved: return is_mutant(Mutant::kDropRemove);
  }
  return false;
}

}  // namespace

int ChangeReader::read() noexcept {
  const MutexLock reading(reading_mu_);
  MemoryChange changes[Userfault::kAtOnce];
  size_t n = 0;
  int error = 0;
  if (is_mutant(Mutant::kDelayedReader)) {
    n = userfault_.read(changes, Userfault::kAtOnce, &error);
    mutant_delay();
  }
  sequence_.begin();
  const RawReleases::Look look = raw_releases_.begin_reading();
  if (n == 0) n = userfault_.read(changes, Userfault::kAtOnce, &error);
  mutant_delay();
  const MemoryChange* raw = raw_releases_.find(look, changes, n);
  for (size_t i = 0; i < n; ++i) apply(changes[i]);
  sequence_.end();
  if (raw != nullptr) RawReleases::report(*raw);
  return error;
}

void ChangeReader::enter(const RangesLock& lock, const MemoryChange& change,
                         uint64_t removal) noexcept {
  if (change.kind == MemoryChange::Kind::kRemoved)
    return tables_.removals.add(lock, change.range, removal);
  tables_.watched.remove(lock, change.range);
  tables_.removals.replace(lock, change.range);
  tables_.stacks.remove(lock, change.range);
  if (change.kind == MemoryChange::Kind::kMoved) tables_.watched.remove(lock, change.to);
}

bool ChangeReader::enter_deferred(bool impatient) noexcept {
  if (!lock_briefly(tables_.watched.mutex(), impatient)) return false;
  const RangesLock lock(tables_.watched.mutex(), RangesLock::Adopt::kLocked);
  tables_.deferred.take_all(
      [&](const MemoryChange& change, uint64_t removal) { enter(lock, change, removal); });
  return true;
}

// A change is deferred if the mutex is held: a signal handler may have interrupted its holder and wait for
// this thread.
void ChangeReader::apply(const MemoryChange& change) noexcept {
  if (drops(change.kind)) return;
  uint64_t removal = 0;
  if (change.kind == MemoryChange::Kind::kRemoved) {
    removal = tables_.removals.next_number();
    if (!raw_releases_.knows_caller(change)) removal = RemovedRanges::kCallerUnknown;
  }
  const bool caught_up = !tables_.deferred.any() || enter_deferred(true);
  if (caught_up && lock_briefly(tables_.watched.mutex())) {
    const RangesLock lock(tables_.watched.mutex(), RangesLock::Adopt::kLocked);
    tables_.watched.begin_change(lock);
    enter(lock, change, removal);
  } else {
    if (change.kind != MemoryChange::Kind::kRemoved) tables_.watched.note_lost();
    tables_.deferred.push(change, removal);
  }
  change.kind == MemoryChange::Kind::kRemoved ? clients_.forget(change.range)
                                              : clients_.forget_unmapped(change.range);
  if (change.kind == MemoryChange::Kind::kMoved) clients_.forget(change.to);
}

}  // namespace hydrant
