// Random operations of a hunt's thread: get, change, give back, hand over, hold, pin as a bystander.
#include "tests/stale/hunt/worker.hpp"

#include "tests/stale/hunt/stutter.hpp"

#include <algorithm>
#include <fcntl.h>
#include <malloc.h>
#include <optional>
#include <unistd.h>

namespace hydrant::stale {
namespace {

// Average number of operations of each kind in a thousand; the rest are checks.
constexpr uint32_t kGets = 170;
constexpr uint32_t kChanges = 120;
constexpr uint32_t kGiveBacks = 160;
constexpr uint32_t kHandOvers = 20;
constexpr uint32_t kTakes = 20;
constexpr uint32_t kHoldLooks = 50;
constexpr uint32_t kManys = 20;
constexpr uint32_t kUpkeeps = 10;
constexpr uint32_t kHandlers = 50;

// The inverse of how often an operation starts a thread, or trims libc's heaps: they cost as much as
// hundreds of others.
constexpr uint32_t kThreadsOneIn = 400;
constexpr uint32_t kTrimsOneIn = 2'000;

constexpr uint32_t kMaxPauses = 400;
constexpr uint32_t kStutterUs = 400;

}  // namespace

Worker::Worker(Ground& ground, uint32_t index)
    : ground_(ground),
      cache_(ground.cache),
      index_(index),
      random_(mix(ground.options.seed) + index),
      only_bystander_(index < ground.options.bystander_threads &&
                      ground.cache.survives_bystanders()) {
  if (pipe2(pipe_, O_NONBLOCK | O_CLOEXEC) != 0) pipe_[0] = pipe_[1] = -1;
  if (!only_bystander_) ground.owners.fetch_add(1, std::memory_order_relaxed);
  blocks_.reserve(ground.options.blocks);
  holds_.reserve(kMaxHolds);
}

Worker::~Worker() {
  for (const int end : pipe_) {
    if (end >= 0) close(end);
  }
}

void Worker::run(uint64_t operations) {
  using Stopped = HuntOptions::Stopped;
  std::optional<Stutter> stutter;
  if (ground_.options.stopped == (only_bystander_ ? Stopped::kBystanders : Stopped::kOwners)) {
    stutter.emplace(kStutterUs);
  }
  if (only_bystander_) ground_.exchange.close(index_);
  if (ground_.signals && !only_bystander_) handler_.emplace(mix(ground_.options.seed) + ~index_);
  while (!ground_.stop.load(std::memory_order_relaxed) &&
         (only_bystander_ ? ground_.owners.load(std::memory_order_relaxed) != 0
                          : operations == 0 || count(kOperations) < operations)) {
    if (operation()) add(kOperations);
    add_one(done_);
  }
  handler_.reset();
  if (!only_bystander_) ground_.owners.fetch_sub(1, std::memory_order_relaxed);
  doing("done");
}

bool Worker::operation() {
  if (only_bystander_) return bystander_and_pause();
  if (ground_.stacks && random_.one_in(kThreadsOneIn)) return thread_episode();
  if (ground_.forks && random_.one_in(ground_.options.forks_one_in)) return fork_episode();
  if (ground_.trims && random_.one_in(kTrimsOneIn)) {
    doing("malloc_trim");
    const std::lock_guard lock(break_mutex());
    malloc_trim(0);
    return true;
  }
  uint32_t dice = random_.below(1000);
  const auto is = [&dice](uint32_t share) {
    const bool yes = dice < share;
    dice = yes ? 0 : dice - share;
    return yes;
  };
  if (is(kGets)) return get();
  if (is(kTakes)) return take_parcel();
  if (is(ground_.options.bystanders_per_mille) && cache_.survives_bystanders()) return bystander();
  if (is(kUpkeeps)) return upkeep();
  if (handler_.has_value() && is(kHandlers)) return handlers_memory();
  if (blocks_.empty()) return get();
  if (is(kHoldLooks)) return look_at_hold();
  if (is(kChanges)) return change();
  if (is(kGiveBacks)) return free_block(random_.below(blocks_.size()));
  if (is(kHandOvers)) return hand_over();
  doing("check");
  if (is(kManys) && blocks_.size() >= 2) return check_many();
  check(blocks_[random_.below(blocks_.size())]);
  return true;
}

bool Worker::get() {
  doing("get");
  if (ground_.supplies.empty()) return false;
  if (blocks_.size() >= ground_.options.blocks) free_block(random_.below(blocks_.size()));
  if (blocks_.size() >= ground_.options.blocks) return false;
  Block block;
  block.supply = ground_.supplies[random_.below(ground_.supplies.size())].get();
  if (!block.supply->get(*this, &block)) return false;
  blocks_.push_back(block);
  // A stale pin shows on new memory at an old address.
  look_at_new(block);
  return true;
}

void Worker::look_at_new(const Block& block) {
  if (random_.percent(ground_.options.sweeps_percent)) return sweep(block);
  if (random_.percent(75)) check(block);
}

bool Worker::change() {
  doing("change");
  Block& block = blocks_[random_.below(blocks_.size())];
  const size_t which = static_cast<size_t>(&block - blocks_.data());
  if (block.supply->change(*this, block)) look_at_new(blocks_[which]);
  return true;
}

bool Worker::free_block(size_t which) {
  doing("give back");
  if (!blocks_[which].supply->can_free_block(blocks_[which])) return false;
  Block block = blocks_[which];
  blocks_[which] = blocks_.back();
  blocks_.pop_back();
  Supply& supply = *block.supply;
  supply.free_block(*this, block);
  // The supply's next block is often at the same address.
  if (!random_.one_in(3)) return true;
  Block next;
  next.supply = &supply;
  if (!supply.get(*this, &next)) return true;
  blocks_.push_back(next);
  look_at_new(next);
  return true;
}

bool Worker::adopt(const Block& block) {
  if (blocks_.size() >= ground_.options.blocks) return false;
  blocks_.push_back(block);
  return true;
}

void Worker::forget(const Block& block) {
  const auto which = static_cast<size_t>(&block - blocks_.data());
  blocks_[which] = blocks_.back();
  blocks_.pop_back();
}

bool Worker::hand_over() {
  doing("hand over");
  const size_t which = random_.below(blocks_.size());
  Parcel parcel{blocks_[which], {}, 0};
  const Range range = parcel.block.range;
  // Passes one hold of the block along and releases the others, which a non-owner cannot use.
  for (size_t i = holds_.size(); i-- > 0;) {
    const Kept& kept = holds_[i];
    if (kept.orphan || !range.contains({kept.cell, 1})) continue;
    if (parcel.hold) {
      release_kept(i);
    } else {
      parcel.hold = kept.hold;
      parcel.cell = kept.cell;
      holds_[i] = holds_.back();
      holds_.pop_back();
    }
  }
  if (ground_.exchange.give(random_.below(ground_.options.threads), parcel)) {
    blocks_[which] = blocks_.back();
    blocks_.pop_back();
  } else if (parcel.hold) {
    cache_.release(parcel.hold);
  }
  return true;
}

bool Worker::take_parcel() {
  doing("take parcel");
  if (blocks_.size() >= ground_.options.blocks) return false;
  Parcel parcel;
  if (!ground_.exchange.take(index_, &parcel)) return false;
  if (parcel.block) {
    blocks_.push_back(parcel.block);
    // Checks through the giver's hold, if there is one, which the taker now owns.
    if (parcel.hold && !compare(parcel.hold, parcel.block, parcel.cell, true)) return true;
  }
  if (parcel.hold) cache_.release(parcel.hold);
  return true;
}

bool Worker::look_at_hold() {
  doing("look at hold");
  if (holds_.empty()) return false;
  const size_t which = random_.below(holds_.size());
  check_kept(holds_[which]);
  if (holds_[which].orphan || random_.one_in(2)) release_kept(which);
  return true;
}

// Pins memory of another thread without using it, while that thread may be releasing it. The owner must not
// hit this pin later, in another life.
bool Worker::bystander() {
  doing("bystander");
  size_t extent = 0;
  const uint32_t slot = ground_.windows.some_busy(random_, &extent);
  if (slot == Windows::kNone) return false;
  const size_t from = random_.below(extent / kPageBytes) * kPageBytes;
  const Range range{ground_.windows.addr(slot) + from,
                    std::min(random_.between(1, 4) * kPageBytes, extent - from)};
  Hold hold;
  if (cache_.pin(How::kPin, range, &hold) == PinAnswer::kHeld) cache_.release(hold);
  return true;
}

// Pauses afterwards, so that the owners can use the cache, too.
bool Worker::bystander_and_pause() {
  const bool done = bystander();
  for (uint32_t i = random_.below(kMaxPauses); i > 0; --i) __builtin_ia32_pause();
  return done;
}

bool Worker::upkeep() {
  doing("upkeep");
  if (random_.one_in(50)) {
    cache_.flush();
  } else {
    cache_.poll();
  }
  return true;
}

Life Worker::begin(Source source, Range range) {
  add_one(lives_[static_cast<size_t>(source)]);
  return ground_.book.begin(source, range.addr, range.len, index_, operations());
}

void Worker::leaving(Range range, Fate fate) {
  prepare_holds(range, fate);
  if (!cache_.wants_announcements()) return;
  if (random_.below(1000) < ground_.options.forget_per_mille) return;
  cache_.announce(range);
}

void Worker::leaving_vouched(Range range, Fate fate) {
  prepare_holds(range, fate);
  cache_.announce(range);
}

void Worker::clean_up() {
  ground_.exchange.close(index_);
  Parcel parcel;
  while (ground_.exchange.take(index_, &parcel)) {
    if (parcel.hold) cache_.release(parcel.hold);
    if (parcel.block) parcel.block.supply->free_block(*this, parcel.block);
  }
  while (!holds_.empty()) release_kept(holds_.size() - 1);
  while (!blocks_.empty()) {
    Block block = blocks_.back();
    blocks_.pop_back();
    block.supply->free_block(*this, block);
  }
}

void Worker::add_counts(HuntCounts* sum) const {
  sum->operations += count(kOperations);
  sum->opportunities += count(kOpportunities);
  sum->stale += count(kStale);
  sum->stale_before_checked += count(kStaleBefore);
  sum->unwatched_kept += count(kUnwatchedKept);
  sum->broken += count(kBroken);
  sum->pins += count(kPins);
  sum->not_now += count(kNotNow);
  sum->refused += count(kRefused);
  sum->checks += count(kChecks);
  sum->late_checks += count(kLateChecks);
  sum->contests += count(kContests);
  sum->children += count(kChildren);
  for (size_t i = 0; i < kCoverages; ++i) {
    sum->pins_by_coverage[i] += pins_[i].load(std::memory_order_relaxed);
  }
  for (size_t i = 0; i < kSources; ++i) {
    sum->lives[i] += lives_[i].load(std::memory_order_relaxed);
    sum->stale_by_source[i] += stale_[i].load(std::memory_order_relaxed);
    sum->opportunities_by_source[i] += opportunities_[i].load(std::memory_order_relaxed);
  }
}

}  // namespace hydrant::stale
