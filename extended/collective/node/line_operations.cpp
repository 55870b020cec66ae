// Implements small collectives among members that share memory. collective_calls.cpp chooses it for teams
// on one node.
#include "extended/collective/node/line_operations.hpp"

#include "am/job/job.hpp"
#include "extended/barrier/barrier_shm.hpp"
#include "extended/collective/hypercube.hpp"
#include "extended/collective/operation.hpp"

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
      operands_(new (std::nothrow) std::byte[config_.members.size() * TeamLines::kMaxBytes]),
      last_(config_.base),
      done_(config_.base),
      done_by_all_(config_.base) {
  config_.members[config_.rank]->done.store(done_, std::memory_order_release);
}

LineOperations::~LineOperations() {
  for (Pending** list : {&first_, &free_}) {
    while (*list != nullptr) delete std::exchange(*list, (*list)->next);
  }
}

bool LineOperations::contributes(const Call& call) const noexcept {
  return call.kind != Kind::kBroadcast || call.root == config_.rank;
}

// The line of `number` has to be free: the operation before, which used it, is complete everywhere.
bool LineOperations::may_publish(uint64_t number) noexcept {
  if (number <= done_by_all_ + TeamLines::kLines) [[likely]]
    return true;
  uint64_t least = done_;
  for (const TeamLines* member : config_.members)
    least = std::min(least, member->done.load(std::memory_order_acquire));
  done_by_all_ = std::max(done_by_all_, least);
  return number <= done_by_all_ + TeamLines::kLines;
}

void LineOperations::publish(const Call& call, uint64_t number) noexcept {
  TeamLines& mine = *config_.members[config_.rank];
  TeamLines::Line& line = mine.lines[number % TeamLines::kLines];
  if (call.kind != Kind::kBarrier) copy_small(line.data, call.source, call.bytes);
  line.processor.store(processor_word(), std::memory_order_relaxed);
  line.word.store(word_of(number, call.signature), std::memory_order_release);
  fetch_for_writing(&mine.lines[(number + 1) % TeamLines::kLines]);
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
  const Hypercube cube(size);
  const auto at = [&](uint32_t vertex) { return operands_.get() + vertex * TeamLines::kMaxBytes; };
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
  // The member that sees the last arrival wakes the others, even if they compute before they wait.
  if (call.kind != Kind::kReduceToOne) wake_all();
  return true;
}

// Operations may complete in any order; the published number is that below which all are complete.
void LineOperations::note_done() noexcept {
  const uint64_t done = first_ != nullptr ? first_->number - 1 : last_;
  if (done == done_) return;
  done_ = done;
  config_.members[config_.rank]->done.store(done, std::memory_order_release);
}

bool LineOperations::start(const Call& call, Pending** pending) noexcept {
  *pending = nullptr;
  const uint64_t number = last_ + 1;
  const bool publishes = contributes(call);
  // Members that only read need no free line, but operations start in order.
  const bool is_published = first_ == nullptr && (!publishes || may_publish(number));
  if (is_published) {
    if (publishes) publish(call, number);
    if (try_complete(call, number)) {
      last_ = number;
      note_done();
      return true;
    }
  }
  Pending* made = free_;
  if (made != nullptr)
    free_ = made->next;
  else
    made = new (std::nothrow) Pending;
  if (made == nullptr) return false;
  *made = {.call = call, .number = number, .is_published = is_published};
  (first_ != nullptr ? end_->next : first_) = made;
  end_ = made;
  last_ = number;
  if (made != first_) (void)advance();
  if (made->is_done)
    release(made);
  else
    *pending = made;
  return true;
}

uint32_t LineOperations::advance() noexcept {
  uint32_t completed = 0;
  bool all_before_published = true;
  Pending* before = nullptr;
  for (Pending* each = first_; each != nullptr;) {
    if (!each->is_published && all_before_published) {
      if (!contributes(each->call)) {
        each->is_published = true;
      } else if (may_publish(each->number)) {
        publish(each->call, each->number);
        each->is_published = true;
      }
    }
    all_before_published = all_before_published && each->is_published;
    if (!each->is_published || !try_complete(each->call, each->number)) {
      before = each;
      each = each->next;
      continue;
    }
    Pending* next = each->next;
    (before != nullptr ? before->next : first_) = next;
    if (end_ == each) end_ = before;
    each->is_done = true;
    note_done();
    each = next;
    ++completed;
  }
  return completed;
}

Rank LineOperations::missing_member(const Pending& pending) const noexcept {
  const auto size = static_cast<Rank>(config_.members.size());
  const Call& call = pending.call;
  if (!pending.is_published) {
    // A line is free when all members have completed an earlier operation.
    for (Rank member = 0; member < size; ++member) {
      const uint64_t done = config_.members[member]->done.load(std::memory_order_acquire);
      if (done + TeamLines::kLines < pending.number) return member;
    }
    return config_.rank;
  }
  for (Rank member = 0; member < size; ++member) {
    const bool is_awaited = call.kind != Kind::kBroadcast || member == call.root;
    if (is_awaited && member != config_.rank && !has_line(member, pending.number, call.signature))
      return member;
  }
  return config_.rank;
}

bool LineOperations::is_ready(const Pending& pending) noexcept {
  return pending.is_done || missing_member(pending) == config_.rank;
}

WaitTarget LineOperations::wait_target(const Pending& pending) const noexcept {
  const Rank member = missing_member(pending);
  if (member == config_.rank) return WaitTarget::kUnknown;
  const TeamLines::Line& before =
      config_.members[member]->lines[(pending.number - 1) % TeamLines::kLines];
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
