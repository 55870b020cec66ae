// A worker's checks of memory: the processor accesses a tag on one side, a pin moves it on the other.
#include "firehose/base/thread.hpp"
#include "tests/stale/hunt/worker.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <sched.h>
#include <unistd.h>

namespace hydrant::stale {
namespace {

constexpr uint64_t kMaxFindings = 5;  // of each kind, reported by each thread
// How long another thread may hold memory that it pins for a moment: it may be preempted meanwhile.
constexpr uint64_t kMaxBystandingNs = 10'000'000'000;

}  // namespace

Tag Worker::new_tag(uintptr_t cell, Life life) {
  return {ground_.magic, cell, life, uint64_t{index_} << 48 | ++checks_made_};
}

uintptr_t Worker::choose_cell(Range within) {
  const size_t cells = within.len / kCellBytes;
  // Often the start of a page, where tags of earlier lives are found, too, for the report.
  uintptr_t cell = within.addr + random_.below(cells) * kCellBytes;
  const uintptr_t page = cell / kPageBytes * kPageBytes;
  if (page >= within.addr && random_.one_in(2)) cell = page;
  return cell;
}

// Chooses a range around the cell: the cell alone, the whole block, or a part.
Range Worker::choose_range(Range within, uintptr_t cell) {
  const uint32_t kind = random_.below(4);
  if (kind == 0) return {cell, sizeof(Tag)};
  if (kind == 1) return within;
  const uintptr_t from = cell - random_.below(cell - within.addr + 1);
  const uintptr_t least = cell + sizeof(Tag);
  return {from, least - from + random_.below(within.end() - least + 1)};
}

PinAnswer Worker::take_hold(How how, const Block& block, Range range, Hold* hold) {
  const PinAnswer answer = cache_.pin(how, range, hold);
  switch (answer) {
    case PinAnswer::kHeld: add(kPins); break;
    case PinAnswer::kNotNow: add(kNotNow); return answer;
    case PinAnswer::kRefused: add(kRefused); return answer;
    case PinAnswer::kBroken:
      report(kBroken, "a pin of " + ground_.book.describe(block.life) +
                          " failed as broken: " + cache_.error_text());
      return answer;
  }
  if (how != How::kPartial && !hold->registered.contains(range)) {
    report(kBroken,
           "a pin of " + ground_.book.describe(block.life) + " does not cover the request");
  }
  return answer;
}

void Worker::check(const Block& block) {
  constexpr How kWays[] = {How::kPin, How::kPin,  How::kPin,   How::kPin,    How::kTry,
                           How::kTry, How::kWait, How::kAsync, How::kPartial};
  check_with(kWays[random_.below(std::size(kWays))], block, choose_cell(block.range));
}

void Worker::check_part(const Block& block, Range part, Source source) {
  Block piece = block;
  piece.range = part;
  piece.source = source;
  piece.life = begin(source, part);
  check(piece);
}

void Worker::check_with(How how, const Block& block, uintptr_t cell) {
  Hold hold;
  const bool write_first = random_.one_in(2) && how != How::kPartial;
  // Memory may be pinned after its first write or before it.
  if (write_first) write_tag(cell, new_tag(cell, block.life));
  const Range range = choose_range(block.range, cell);
  if (take_hold(how, block, range, &hold) != PinAnswer::kHeld) return;
  if (how == How::kPartial) {
    const uintptr_t from = std::max(hold.registered.addr, range.addr);
    const uintptr_t end = std::min(hold.registered.end(), range.end());
    const uintptr_t first = (from + kCellBytes - 1) / kCellBytes * kCellBytes;
    if (first + sizeof(Tag) > end) return cache_.release(hold);
    cell = first;
  }
  const bool may_be_kept = note_pin(block, range, cell);
  if (!compare(hold, block, cell, !write_first)) return;
  if (may_be_kept || random_.one_in(2)) return keep_or_release(hold, block, cell);
  cache_.release(hold);
  check_unwatched(block, range);
}

// Counts a pin by its coverage, and whether it could have been stale. False if the cache must not keep it.
bool Worker::note_pin(const Block& block, Range range, uintptr_t cell) {
  const Coverage coverage = cache_.coverage(range);
  add_one(pins_[static_cast<size_t>(coverage)]);
  if (coverage == Coverage::kNone) return false;
  if (block.supply->replaces_pages() && ground_.book.note_pin(cell, block.life)) {
    add(kOpportunities);
    add_one(opportunities_[static_cast<size_t>(block.source)]);
  }
  return true;
}

// Checks every page that the cache has kept, also those pinned by other threads.
void Worker::sweep(const Block& block) {
  for (uintptr_t at = block.range.addr; at < block.range.end(); at += kPageBytes) {
    const uintptr_t cell = std::max(at / kPageBytes * kPageBytes, block.range.addr);
    const Range range{cell, sizeof(Tag)};
    if (range.end() > block.range.end()) return;
    Hold hold;
    if (cache_.pin(How::kTry, range, &hold) != PinAnswer::kHeld) continue;
    add(kPins);
    note_pin(block, range, cell);
    if (compare(hold, block, cell, true)) cache_.release(hold);
  }
}

// Moves a tag in one direction and compares. False if the hold is stale; it is released then.
bool Worker::compare(const Hold& hold, const Block& block, uintptr_t cell, bool write) {
  Tag expected = new_tag(cell, block.life);
  Tag found{};
  if (random_.one_in(2)) {
    // The pin may have brought the page in: then this is the first write to it.
    if (write) {
      write_tag(cell, expected);
    } else {
      expected = read_tag(cell);
    }
    if (!move_out(hold, cell, &found)) return cache_.release(hold), false;
  } else {
    if (!move_in(hold, cell, expected)) return cache_.release(hold), false;
    found = read_tag(cell);
  }
  add(kChecks);
  if (found == expected) return true;
  report_stale("a pin reached another page", hold, block.source, cell, block.life, expected, found);
  cache_.release(hold);
  return false;
}

bool Worker::move_out(const Hold& hold, uintptr_t cell, Tag* found) {
  std::string error;
  if (cache_.move(hold, {cell, sizeof *found}, pipe_[1], true, &error) &&
      read(pipe_[0], found, sizeof *found) == sizeof *found) {
    return true;
  }
  report(kBroken, "a move from a pin failed: " + error);
  drain();
  return false;
}

bool Worker::move_in(const Hold& hold, uintptr_t cell, const Tag& tag) {
  std::string error;
  if (write(pipe_[1], &tag, sizeof tag) == sizeof tag &&
      cache_.move(hold, {cell, sizeof tag}, pipe_[0], false, &error)) {
    return true;
  }
  report(kBroken, "a move to a pin failed: " + error);
  drain();
  return false;
}

void Worker::drain() {
  char bytes[256];
  while (read(pipe_[0], bytes, sizeof bytes) > 0) {
  }
}

// Checks several blocks with one call of pin_many().
bool Worker::check_many() {
  constexpr size_t kMax = 4;
  const size_t n = std::min<size_t>(random_.between(2, kMax), blocks_.size());
  const size_t first = random_.below(blocks_.size());
  Range ranges[kMax];
  uintptr_t cells[kMax];
  Hold holds[kMax];
  for (size_t i = 0; i < n; ++i) {
    const Range within = blocks_[(first + i) % blocks_.size()].range;
    cells[i] = choose_cell(within);
    ranges[i] = choose_range(within, cells[i]);
  }
  if (cache_.pin_many(ranges, n, holds) != PinAnswer::kHeld) return add(kNotNow), true;
  for (size_t i = 0; i < n; ++i) {
    const Block& block = blocks_[(first + i) % blocks_.size()];
    add(kPins);
    note_pin(block, ranges[i], cells[i]);
    if (compare(holds[i], block, cells[i], true)) keep_or_release(holds[i], block, cells[i]);
  }
  return true;
}

// A forked child gives nothing away: a thread that exists in the parent only may hold the exchange's mutex.
void Worker::keep_or_release(const Hold& hold, const Block& block, uintptr_t cell) {
  if (holds_.size() < kMaxHolds && random_.one_in(8)) {
    holds_.push_back({hold, block.life, block.source, cell, {}, false, 0});
  } else if (in_child_[0] == '\0' && random_.one_in(16) &&
             cache_.coverage(hold.registered) != Coverage::kNone &&
             ground_.exchange.give(random_.below(64), {{}, hold, 0})) {
    return;
  } else {
    cache_.release(hold);
  }
}

// Checks a cell through a hold that was taken earlier.
void Worker::check_kept(Kept& kept) {
  Tag found{};
  if (kept.orphan) {
    if (!move_out(kept.hold, kept.cell, &found)) return;
    add(kLateChecks);
    if (found == kept.last) return;
    report_stale("a hold lost the page that it was taken on", kept.hold, kept.source, kept.cell,
                 kept.life, kept.last, found);
    return;
  }
  const Tag tag = new_tag(kept.cell, kept.life);
  write_tag(kept.cell, tag);
  if (!move_out(kept.hold, kept.cell, &found)) return;
  add(kChecks);
  if (found != tag)
    report_stale("a kept hold reached another page", kept.hold, kept.source, kept.cell, kept.life,
                 tag, found);
}

void Worker::release_kept(size_t which) {
  cache_.release(holds_[which].hold);
  holds_[which] = holds_.back();
  holds_.pop_back();
}

// Called before pages of `range` are released: writes a last tag for the holds on them, or releases the holds
// if the fate of the page is unknown.
void Worker::prepare_holds(Range range, Fate fate) {
  ++prepared_;
  const auto tagged = [this](uintptr_t cell) {
    return std::any_of(holds_.begin(), holds_.end(), [&](const Kept& kept) {
      return kept.orphan && kept.prepared == prepared_ && kept.cell == cell;
    });
  };
  for (size_t i = holds_.size(); i-- > 0;) {
    Kept& kept = holds_[i];
    if (kept.orphan || kept.cell < range.addr || kept.cell >= range.end()) continue;
    if (fate == Fate::kUnknown || random_.one_in(2)) {
      release_kept(i);
      continue;
    }
    // Two holds may use the same cell.
    kept.last = read_tag(kept.cell);
    if (!tagged(kept.cell)) write_tag(kept.cell, kept.last = new_tag(kept.cell, kept.life));
    kept.orphan = true;
    kept.prepared = prepared_;
  }
}

// Unwatched memory must not be hit after its last release. A bystander may still hold it for a moment, which
// is a time and no number of yields: beside other programs 2000 yields passed before it ran again.
void Worker::check_unwatched(const Block& block, Range range) {
  for (const Kept& kept : holds_) {
    if (block.range.contains({kept.cell, 1})) return;
  }
  const uint64_t deadline_ns = now_ns() + kMaxBystandingNs;
  do {
    Hold hold;
    if (cache_.pin(How::kTry, range, &hold) != PinAnswer::kHeld) return;
    cache_.release(hold);
    sched_yield();
  } while (now_ns() < deadline_ns);
  report(kUnwatchedKept, "unwatched memory stayed cached: " + ground_.book.describe(block.life));
}

void Worker::report(Counter kind, const std::string& text) {
  add(kind);
  if (ground_.options.stop_when_stale && kind == kStale) ground_.stop = true;
  char where[96];
  std::snprintf(where, sizeof where,
                "seed %" PRIu64 ", thread %u, operation %" PRIu64 "%s: ", ground_.options.seed,
                index_, operations(), in_child_);
  if (in_child_[0] != '\0') {  // in a forked child another thread may hold the lock for ever
    dprintf(STDERR_FILENO, "%s%s\n", where, text.c_str());
    return;
  }
  const std::lock_guard lock(ground_.findings_mutex);
  if (count(kind) <= kMaxFindings) ground_.findings.push_back(where + text);
}

void Worker::report_stale(const char* what, const Hold& hold, Source source, uintptr_t cell,
                          Life life, const Tag& expected, const Tag& found) {
  // Before the cache has detected the first raw call, stale pins are expected.
  if (ground_.options.raw == RawCalls::kRacing && !hold.was_checked) return add(kStaleBefore);
  char at[32];
  std::snprintf(at, sizeof at, " at %#" PRIxPTR, cell);
  add_one(stale_[static_cast<size_t>(source)]);
  std::string text = what + std::string(at) + ", life " + std::to_string(life) + ", " +
                     ground_.book.describe(life) + "; expected " +
                     describe_tag(expected, ground_.magic) + ", found " +
                     describe_tag(found, ground_.magic);
  if (found.magic == ground_.magic && found.life != life) {
    text += ", " + ground_.book.describe(found.life);
  }
  report(kStale, text);
}

}  // namespace hydrant::stale
