// Implements small collectives among members that share memory. collective_calls.cpp chooses it for teams
// on one node.
#include "extended/collective/node/line_operations.hpp"

#include "am/job/job.hpp"
#include "extended/barrier/barrier_shm.hpp"
#include "extended/collective/operation/operation.hpp"
#include "extended/collective/steps/hypercube.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

namespace hydrant {
namespace {

constexpr uint64_t kSignatureMask = (uint64_t{1} << TeamLines::kSignatureBits) - 1;

uint64_t word_of(uint64_t number, uint32_t signature) noexcept {
  return number << TeamLines::kSignatureBits | (signature & kSignatureMask);
}

// Bytes of a vector that one call of advance() works on, so that polls stay short.
constexpr size_t kWorkBytes = size_t{256} << 10;

// Most data are one word.
void copy_small(void* to, const void* from, size_t bytes) noexcept {
  if (bytes == sizeof(uint64_t)) [[likely]]
    std::memcpy(to, from, sizeof(uint64_t));
  else
    std::memcpy(to, from, bytes);
}

}  // namespace

LineOperations::LineOperations(Config config) noexcept
    : config_(std::move(config)),
      operands_(config_.members.size() * TeamLines::kMaxBytes),
      vectors_(config_.rank, static_cast<Rank>(config_.members.size())),
      last_(config_.base),
      done_(config_.base),
      done_by_all_(config_.base) {
  if (ok()) config_.members[config_.rank]->done.store(done_, std::memory_order_release);
}

LineOperations::~LineOperations() {
  for (Pending** list : {&first_, &free_, &not_shared_}) {
    while (*list != nullptr) delete std::exchange(*list, (*list)->next);
  }
}

bool LineOperations::contributes(const Call& call) const noexcept {
  return call.kind != Kind::kBroadcast || call.root == config_.rank;
}
bool LineOperations::writes_dest(const Call& call) const noexcept {
  return call.kind == Kind::kReduceToAll ||
         (call.kind == Kind::kReduceToOne && call.root == config_.rank);
}

bool LineOperations::is_done_by_all(uint64_t number) noexcept {
  if (number <= done_by_all_) [[likely]]
    return true;
  uint64_t least = done_;
  for (const TeamLines* member : config_.members)
    least = std::min(least, member->done.load(std::memory_order_acquire));
  done_by_all_ = std::max(done_by_all_, least);
  return number <= done_by_all_;
}

// The line of `number` has to be free: the operation before, which used it, is complete everywhere.
bool LineOperations::may_publish(uint64_t number) noexcept {
  return number <= TeamLines::kLines || is_done_by_all(number - TeamLines::kLines);
}
bool LineOperations::may_publish(const Call& call, uint64_t number) noexcept {
  // Members that only read a line need no free one.
  if (!call.is_vector()) return !contributes(call) || may_publish(number);
  return may_publish(number + 1) && (!uses_slot(call) || is_done_by_all(slot_numbers_[slot_]));
}
bool LineOperations::uses_slot(const Call& call) const noexcept {
  return call.is_vector() && contributes(call) && !call.is_shared &&
         call.bytes <= TeamLines::kSlotBytes;
}

void LineOperations::write_line(uint64_t number, const void* data, size_t bytes,
                                uint32_t signature) noexcept {
  TeamLines& mine = *config_.members[config_.rank];
  TeamLines::Line& line = mine.lines[number % TeamLines::kLines];
  if (bytes != 0) copy_small(line.data, data, bytes);
  line.processor.store(processor_word(), std::memory_order_relaxed);
  line.word.store(word_of(number, signature), std::memory_order_release);
  fetch_for_writing(&mine.lines[(number + 1) % TeamLines::kLines]);
}

void LineOperations::publish(const Call& call, uint64_t number) noexcept {
  if (!contributes(call)) return;
  if (call.is_vector()) {
    Addresses mine = {.source = reinterpret_cast<uintptr_t>(call.source),
                      .dest = writes_dest(call) ? reinterpret_cast<uintptr_t>(call.dest) : 0,
                      .place = call.is_shared ? Place::kMapped : Place::kHidden};
    if (uses_slot(call)) {
      std::memcpy(config_.members[config_.rank]->slots[slot_], call.source, call.bytes);
      mine = {.source = slot_, .dest = 0, .place = Place::kSlot};
      slot_numbers_[slot_] = number + 1;
      slot_ = (slot_ + 1) % TeamLines::kSlots;
    }
    write_line(number, &mine, sizeof mine, call.signature);
    if (call.kind == Kind::kBroadcast) wake_all();
    return;
  }
  write_line(number, call.source, call.kind == Kind::kBarrier ? 0 : call.bytes, call.signature);
  if (config_.wake == nullptr) return;
  if (call.kind == Kind::kBroadcast) return wake_all();
  if (call.kind == Kind::kReduceToOne && call.root != config_.rank)
    config_.wake(config_.context, call.root);
}

// Ends the job if the member's operation of this number is another call.
bool LineOperations::has_line(Rank member, uint64_t number, uint32_t signature) const noexcept {
  const TeamLines::Line& line = config_.members[member]->lines[number % TeamLines::kLines];
  const uint64_t word = line.word.load(std::memory_order_acquire);
  if (word == word_of(number, signature)) return true;
  if (word >> TeamLines::kSignatureBits == number) [[unlikely]]
    refuse_disagreement(signature, static_cast<uint32_t>(word & kSignatureMask),
                        config_.jobrank(config_.context, member));
  return false;
}

// Combines neighbours first: the pairs that no power of two holds, then ranks 0 and 1, 2 and 3 of the
// rest, and so on.
void LineOperations::reduce(const Call& call, uint64_t number) noexcept {
  const auto size = static_cast<Rank>(config_.members.size());
  if (size == 2 && call.reduction.function != nullptr) [[likely]] {
    call.reduction.function(data_of(0, number), data_of(1, number), call.dest,
                            call.bytes / call.reduction.unit);
    return;
  }
  const Hypercube cube(size);
  const auto at = [&](uint32_t vertex) { return operands_.data() + vertex * TeamLines::kMaxBytes; };
  for (uint32_t vertex = 0; vertex < cube.vertices(); ++vertex) {
    const Rank member = cube.member_at(vertex);
    std::memcpy(at(vertex), data_of(member, number), TeamLines::kMaxBytes);
    if (!cube.represents(member)) continue;
    std::byte before[TeamLines::kMaxBytes];
    std::memcpy(before, data_of(member - 1, number), TeamLines::kMaxBytes);
    call.reduction.combine(before, at(vertex), at(vertex), call.bytes);
  }
  for (uint32_t bit = 1; bit < cube.vertices(); bit *= 2) {
    // A function of the client leaves its result in the right operand, from where it is copied.
    for (uint32_t vertex = 0; vertex < cube.vertices(); vertex += 2 * bit)
      call.reduction.combine(at(vertex), at(vertex + bit), at(vertex), call.bytes);
  }
  copy_small(call.dest, at(0), call.bytes);
}

bool LineOperations::try_complete(const Call& call, uint64_t number) noexcept {
  const auto size = static_cast<Rank>(config_.members.size());
  const Rank me = config_.rank;
  if (call.kind == Kind::kBroadcast) {
    if (call.root == me) {
      if (call.dest != call.source) copy_small(call.dest, call.source, call.bytes);
      return true;
    }
    if (!has_line(call.root, number, call.signature)) return false;
    copy_small(call.dest, data_of(call.root, number), call.bytes);
    return true;
  }
  if (call.kind == Kind::kReduceToOne && call.root != me) return true;
  for (Rank member = 0; member < size; ++member) {
    if (member != me && !has_line(member, number, call.signature)) return false;
  }
  if (call.kind != Kind::kBarrier) reduce(call, number);
  return true;
}

bool LineOperations::awaits(const Pending& pending, Rank member) const noexcept {
  if (member == config_.rank) return false;
  const Call& call = pending.call;
  const bool is_root = call.root == config_.rank;
  switch (call.kind) {
    case Kind::kBroadcast:
      return pending.stage == Stage::kFinishing ? is_root : member == call.root;
    // All have to be there before one may read their memory, and to have read before one may go on.
    case Kind::kReduceToOne: return is_root || call.is_vector();
    default: return true;
  }
}

bool LineOperations::has_all(const Pending& pending) const noexcept {
  for (Rank member = 0; member < config_.members.size(); ++member) {
    if (awaits(pending, member) && !has_line(member, pending.awaited(), pending.call.signature))
      return false;
  }
  return true;
}

std::byte* LineOperations::map(const Call& call, Rank member, uintptr_t address) noexcept {
  if (member == config_.rank || address == 0) return reinterpret_cast<std::byte*>(address);
  std::byte* const found = config_.map(config_.context, member, address, call.bytes);
  if (found == nullptr)
    fatal("%s: the memory of rank %u of the job is not mapped here: %zu bytes at %#lx",
          collective_name(call.signature), config_.jobrank(config_.context, member), call.bytes,
          address);
  return found;
}

LineOperations::Place LineOperations::find_all(const Pending& pending) noexcept {
  const Call& call = pending.call;
  bool some_in_slots = false;
  bool some_mapped = false;
  for (Rank member = 0; member < config_.members.size(); ++member) {
    vectors_.sources[member] = nullptr;
    vectors_.dests[member] = nullptr;
    if (call.kind == Kind::kBroadcast && member != call.root) continue;
    Addresses addresses;
    std::memcpy(&addresses, data_of(member, pending.number), sizeof addresses);
    if (addresses.place == Place::kHidden) return Place::kHidden;
    if (addresses.place == Place::kSlot) {
      vectors_.sources[member] = config_.members[member]->slots[addresses.source];
      some_in_slots = true;
    } else {
      vectors_.sources[member] = map(call, member, addresses.source);
      vectors_.dests[member] = map(call, member, addresses.dest);
      some_mapped = true;
    }
  }
  if (!some_in_slots) return Place::kMapped;
  // A mapped source would have to stay until all have read it, while its member writes the result to it.
  if (some_mapped) return Place::kHidden;
  if (writes_dest(call)) vectors_.dests[config_.rank] = call.dest;
  return Place::kSlot;
}

bool LineOperations::work(Pending& pending, Place place) noexcept {
  const Call& call = pending.call;
  if (call.kind == Kind::kBroadcast)
    return vectors_.copy(call.root, call.dest, call.bytes, kWorkBytes, &pending.progress);
  if (place == Place::kSlot && !writes_dest(call)) return true;
  MappedVectors::Range range = {0, call.bytes};
  if (place == Place::kMapped) {
    const auto size = static_cast<Rank>(config_.members.size());
    range = MappedVectors::range_of(config_.rank, size, call.reduction.unit, call.bytes);
  }
  return vectors_.reduce(call.reduction, range, kWorkBytes, &pending.progress);
}

bool LineOperations::advance_vector(Pending& pending) noexcept {
  const Call& call = pending.call;
  const bool is_broadcast = call.kind == Kind::kBroadcast;
  if (pending.stage == Stage::kPublished) {
    if (!has_all(pending)) return false;
    if (!is_broadcast) wake_all();
    pending.stage = Stage::kWorking;
  }
  if (pending.stage == Stage::kWorking) {
    const Place place = find_all(pending);
    if (place == Place::kHidden) {
      pending.stage = Stage::kNotShared;
      return true;
    }
    if (!work(pending, place)) return false;
    pending.stage = place == Place::kSlot ? Stage::kDone : Stage::kFinishing;
    Counts::add(place == Place::kSlot ? counts_.slots : counts_.mapped);
    if (place == Place::kSlot) return true;
    write_line(pending.number + 1, nullptr, 0, call.signature);
    if (is_broadcast && call.root != config_.rank && config_.wake != nullptr)
      config_.wake(config_.context, call.root);
  }
  if (!has_all(pending)) return false;
  if (!is_broadcast) wake_all();
  pending.stage = Stage::kDone;
  return true;
}

LineOperations::Pending* LineOperations::take_pending() noexcept {
  if (free_ == nullptr) return new (std::nothrow) Pending;
  return std::exchange(free_, free_->next);
}

LineOperations::Pending* LineOperations::take_not_shared() noexcept {
  if (not_shared_ == nullptr) return nullptr;
  return std::exchange(not_shared_, not_shared_->next);
}

// Operations may complete in any order; the published number is that below which all are complete.
void LineOperations::note_done() noexcept {
  const uint64_t done = first_ != nullptr ? first_->number - 1 : last_;
  if (done != done_) {
    done_ = done;
    config_.members[config_.rank]->done.store(done, std::memory_order_release);
  }
  // For members that wait for a free line or slot; and the member that sees the last arrival wakes the
  // others, even if they compute before they wait.
  wake_all();
}

bool LineOperations::start(const Call& call, Pending** pending) noexcept {
  *pending = nullptr;
  const uint64_t number = last_ + 1;
  const bool is_vector = call.is_vector();
  const bool starts = first_ == nullptr && may_publish(call, number);  // operations start in order
  if (!is_vector) Counts::add(counts_.lines);
  if (starts && !is_vector) {
    publish(call, number);
    if (try_complete(call, number)) {
      last_ = number;
      note_done();
      return true;
    }
  }
  if (is_vector && call.kind != Kind::kBroadcast && !vectors_.reserve(call.reduction)) return false;
  Pending* made = take_pending();
  if (made == nullptr) return false;
  *made = {.call = call, .number = number, .stage = starts ? Stage::kPublished : Stage::kQueued};
  if (is_vector && starts) publish(call, number);
  (first_ != nullptr ? end_->next : first_) = made;
  end_ = made;
  last_ = made->last_number();
  if (made != first_ || is_vector) (void)advance();
  if (made->stage == Stage::kDone)
    release(made);
  else
    *pending = made;
  return true;
}

bool LineOperations::try_publish(Pending& pending) noexcept {
  if (!may_publish(pending.call, pending.number)) return false;
  publish(pending.call, pending.number);
  pending.stage = Stage::kPublished;
  return true;
}

bool LineOperations::try_complete(Pending& pending) noexcept {
  if (pending.call.is_vector()) return advance_vector(pending);
  if (!try_complete(pending.call, pending.number)) return false;
  pending.stage = Stage::kDone;
  return true;
}

uint32_t LineOperations::advance() noexcept {
  uint32_t progress = 0;
  Pending* before = nullptr;
  for (Pending* each = first_; each != nullptr;) {
    // The operations behind it have to wait, too.
    if (each->stage == Stage::kQueued && !try_publish(*each)) break;
    if (!try_complete(*each)) {
      progress += each->stage == Stage::kWorking ? 1 : 0;
      before = each;
      each = each->next;
      continue;
    }
    Pending* next = each->next;
    (before != nullptr ? before->next : first_) = next;
    if (end_ == each) end_ = before;
    if (each->stage == Stage::kNotShared) each->next = std::exchange(not_shared_, each);
    note_done();
    each = next;
    ++progress;
  }
  return progress;
}

// Considers the operations in the list up to the first that is not published.
Rank LineOperations::missing_for_queued() const noexcept {
  Rank awaited = config_.rank;
  for (const Pending* each = first_; each != nullptr; each = each->next) {
    if (each->stage == Stage::kQueued) {
      // A line or slot is free when all members have completed an earlier operation.
      const uint64_t slot = uses_slot(each->call) ? slot_numbers_[slot_] : 0;
      const auto lags = [&](uint64_t done) {
        return done + TeamLines::kLines < each->last_number() || done < slot;
      };
      for (Rank member = 0; member < config_.members.size(); ++member) {
        if (member != config_.rank &&
            lags(config_.members[member]->done.load(std::memory_order_acquire)))
          return member;
      }
      return lags(done_) ? awaited : config_.rank;
    }
    const Rank missing = missing_member(*each);
    if (missing == config_.rank) return config_.rank;
    awaited = missing;
  }
  return awaited;
}

Rank LineOperations::missing_member(const Pending& pending) const noexcept {
  const auto size = static_cast<Rank>(config_.members.size());
  if (pending.stage == Stage::kQueued) return missing_for_queued();
  if (pending.stage == Stage::kWorking) return config_.rank;
  for (Rank member = 0; member < size; ++member) {
    if (awaits(pending, member) && !has_line(member, pending.awaited(), pending.call.signature))
      return member;
  }
  return config_.rank;
}

bool LineOperations::is_ready(const Pending& pending) noexcept {
  return pending.is_done() || missing_member(pending) == config_.rank;
}

WaitTarget LineOperations::wait_target(const Pending& pending) const noexcept {
  const Rank member = missing_member(pending);
  if (member == config_.rank) return WaitTarget::kUnknown;
  const TeamLines::Line& before =
      config_.members[member]->lines[(pending.awaited() - 1) % TeamLines::kLines];
  return before.processor.load(std::memory_order_relaxed) == processor_word()
             ? WaitTarget::kThisProcessor
             : WaitTarget::kOtherProcessors;
}

void LineOperations::release(Pending* pending) noexcept {
  pending->next = free_;
  free_ = pending;
}

bool LineOperations::all_done() const noexcept {
  return std::all_of(config_.members.begin(), config_.members.end(), [&](const TeamLines* member) {
    return member->done.load(std::memory_order_acquire) >= last_;
  });
}

void LineOperations::wake_all() noexcept {
  if (config_.wake == nullptr) return;
  for (Rank member = 0; member < config_.members.size(); ++member) {
    if (member != config_.rank) config_.wake(config_.context, member);
  }
}

}  // namespace hydrant
