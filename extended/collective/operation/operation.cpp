// Executes the steps of a collective operation. operations.cpp calls advance() from polls and waits;
// messages go through collective_messages.cpp, gets through rma_transfer.cpp.
#include "extended/collective/operation/operation.hpp"

#include "am/job/job.hpp"
#include "am/message/send.hpp"
#include "extended/binding/firehose_binding.hpp"
#include "extended/collective/operation/collective_messages.hpp"
#include "extended/rma/common/count_pieces.hpp"
#include "extended/rma/common/rma_errors.hpp"
#include "extended/rma/common/rma_path.hpp"
#include "extended/rma/paths/bounce_pool.hpp"
#include "extended/rma/rma.hpp"
#include "firehose/base/log.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

namespace hydrant {
namespace {

constexpr uint32_t kKindBits = 8;

// Bytes of one get: one message or one buffer, so that transfer() does not wait for room and poll.
size_t get_bytes() noexcept {
  constexpr size_t kMax = size_t{64} << 10;
  const size_t most = std::min(kMax, paths().medium_max);
  const size_t buffer = is_firehose_enabled() ? bounce_buffer_bytes() : 0;
  return buffer != 0 ? std::min(most, buffer) : most;
}

// By CollectiveKind: the calls that are one operation.
constexpr const char* kCallNames[] = {
    "unknown call",
    "gex_Coll_BarrierNB",
    "gex_Coll_BroadcastNB (or gasnet_coll_broadcast)",
    "gex_Coll_ReduceToOneNB",
    "gex_Coll_ReduceToAllNB",
    "hydrant_gather_all_nb (or gasnet_coll_gather_all, gex_EP_PublishBoundSegment)",
    "gasnet_coll_gather",
    "gasnet_coll_scatter",
    "hydrant_exchange_nb (or gasnet_coll_exchange)",
    "gex_TM_Split",
    "gex_TM_Create"};

}  // namespace

size_t eager_bytes() noexcept {
  constexpr size_t kEager = 8192;
  return std::min(kEager, max_medium());
}

const char* collective_name(uint32_t signature) noexcept {
  const uint32_t kind = signature & ((1u << kKindBits) - 1);
  return kCallNames[kind < std::size(kCallNames) ? kind : 0];
}

uint32_t signature_of(CollectiveKind kind, uint64_t argument1, uint64_t argument2,
                      uint64_t argument3) noexcept {
  constexpr uint64_t kOdd = 0x9e3779b97f4a7c15;
  uint64_t hash = argument1 * kOdd + argument2 * (kOdd << 8 | 1) + argument3 * (kOdd << 16 | 1);
  hash ^= hash >> 32;
  return static_cast<uint32_t>(kind) | static_cast<uint32_t>(hash) << kKindBits;
}

void refuse_disagreement(uint32_t mine, uint32_t theirs, Rank jobrank) noexcept {
  const char* call = collective_name(mine);
  const char* other = collective_name(theirs);
  if (call == other)
    fatal(
        "%s: the arguments of rank %u of the job differ from those of rank %u in their root, "
        "length, size of elements, type or operation: all members of a team have to pass the same",
        call, jobrank, job().rank());
  fatal(
      "%s: rank %u of the job calls %s in its place: all members of a team have to make the same "
      "calls in the "
      "same order",
      call, jobrank, other);
}

CollectiveOperation::CollectiveOperation(const TeamMembers& team, uint32_t number,
                                         const OperationArguments& arguments,
                                         Schedule schedule) noexcept
    : team_(team), number_(number), arguments_(arguments), schedule_(std::move(schedule)) {
  areas_[static_cast<uint32_t>(Area::kSource)] =
      static_cast<std::byte*>(const_cast<void*>(arguments.source));
  areas_[static_cast<uint32_t>(Area::kDest)] = static_cast<std::byte*>(arguments.dest);
}

std::unique_ptr<CollectiveOperation> CollectiveOperation::make(const TeamMembers& team,
                                                               uint32_t number,
                                                               const OperationArguments& arguments,
                                                               Schedule schedule) noexcept {
  if (!schedule.ok()) return nullptr;
  const size_t scratch = schedule.scratch_bytes();
  const auto announcements = static_cast<size_t>(
      std::count_if(schedule.steps().begin(), schedule.steps().end(), [](const Step& step) {
        return step.kind == Step::Kind::kSend && step.bytes > eager_bytes();
      }));
  std::unique_ptr<CollectiveOperation> made(
      new (std::nothrow) CollectiveOperation(team, number, arguments, std::move(schedule)));
  if (made == nullptr) return nullptr;
  if (scratch != 0) {
    made->scratch_.reset(new (std::nothrow) std::byte[scratch]);
    if (made->scratch_ == nullptr) return nullptr;
    made->areas_[static_cast<uint32_t>(Area::kScratch)] = made->scratch_.get();
  }
  if (announcements != 0) {
    made->announced_.reset(new (std::nothrow) Announced[announcements]);
    if (made->announced_ == nullptr) return nullptr;
    // Receivers read the memory by the firehoses that they have, so released memory must be settled first.
    settle_exports();
  }
  return made;
}

bool CollectiveOperation::advance() noexcept {
  const std::span<const Step> steps = schedule_.steps();
  while (!done_ && current_ < steps.size()) {
    if (!run(steps[current_])) return false;
    ++current_;
    progress_ = 0;
    address_ = 0;
  }
  done_ = done_ || may_overwrite(nullptr, SIZE_MAX);
  return done_;
}

bool CollectiveOperation::run(const Step& step) noexcept {
  switch (step.kind) {
    case Step::Kind::kSend: return send(step);
    case Step::Kind::kReceive: return receive(step);
    case Step::Kind::kCopy:
      if (!may_overwrite(at(step.to), step.bytes)) return false;
      if (at(step.from) != at(step.to)) std::memmove(at(step.to), at(step.from), step.bytes);
      return true;
    case Step::Kind::kCombine:
      if (!may_overwrite(at(step.to), step.bytes) || !may_overwrite(at(step.with), step.bytes))
        return false;
      arguments_.reduction.combine(at(step.from), at(step.with), at(step.to), step.bytes);
      return true;
  }
  return true;
}

bool CollectiveOperation::send(const Step& step) noexcept {
  const Rank peer = team_.jobrank(step.peer);
  if (step.bytes > eager_bytes()) {
    if (!send_announcement(key_of(step.tag), arguments_.signature, peer, at(step.from)))
      return false;
    announced_[announced_count_++] = {.peer = peer,
                                      .tag = step.tag,
                                      .data = at(step.from),
                                      .bytes = step.bytes,
                                      .is_read = false};
    return true;
  }
  return send_data(key_of(step.tag), arguments_.signature, peer, 0, at(step.from), step.bytes);
}

bool CollectiveOperation::receive(const Step& step) noexcept {
  if (address_ != 0) return get_announced(step);
  const std::unique_ptr<Arrival> arrival =
      inboxes().take(key_of(step.tag), team_.jobrank(step.peer), false);
  if (arrival == nullptr) return false;
  check_signature(*arrival);
  if (arrival->kind == Arrival::Kind::kAnnouncement) {
    address_ = arrival->address;
    return get_announced(step);
  }
  if (arrival->bytes != step.bytes)
    fatal("%s: rank %u of the job sent %u bytes in a step of %zu",
          collective_name(arguments_.signature), arrival->from, arrival->bytes, step.bytes);
  if (step.bytes != 0) std::memcpy(at(step.to), arrival->payload.get(), step.bytes);
  return true;
}

// Gets one piece after the other; any thread that polls starts the next one. A failed get is reported, or
// ends the job.
bool CollectiveOperation::get_announced(const Step& step) noexcept {
  const Rank peer = team_.jobrank(step.peer);
  const char* call = collective_name(arguments_.signature);
  while (gets_.all_done()) {
    if (progress_ == step.bytes) {
      if (const Status failure = failure_of(gets_); failure != Status::kOk) [[unlikely]] {
        (void)return_or_abort(failure, call);
        reset(gets_);
      }
      return send_read(key_of(step.tag), arguments_.signature, peer);
    }
    const size_t bytes = std::min(get_bytes(), step.bytes - progress_);
    const Status status = transfer({.direction = Direction::kGet,
                                    .peer = peer,
                                    .remote = address_ + progress_,
                                    .local = at(step.to) + progress_,
                                    .bytes = bytes,
                                    .immediate = true},
                                   gets_);
    if (status == Status::kNotReady) return false;
    if (status != Status::kOk) (void)return_or_abort(status, call);
    progress_ += bytes;
  }
  return false;
}

void CollectiveOperation::check_signature(const Arrival& arrival) const noexcept {
  if (arrival.signature != arguments_.signature) [[unlikely]]
    refuse_disagreement(arguments_.signature, arrival.signature, arrival.from);
}

void CollectiveOperation::check_mailboxes(const Step& step) const noexcept {
  if (arguments_.mailboxes == nullptr) return;
  const uint32_t edge = arguments_.mailboxes->edge_to(step.peer);
  mailbox_line::Header begun;
  if (edge != TeamMailboxes::kNoEdge && arguments_.mailboxes->find_next(edge, &begun) &&
      begun.number == mailbox_line::header_of(number_, 0).number)
    refuse_disagreement(arguments_.signature, begun.signature, team_.jobrank(step.peer));
}

bool CollectiveOperation::may_overwrite(const std::byte* to, size_t bytes) noexcept {
  bool may = true;
  const auto first = reinterpret_cast<uintptr_t>(to);
  for (size_t i = 0; i < announced_count_; ++i) {
    Announced& each = announced_[i];
    if (each.is_read) continue;
    const auto data = reinterpret_cast<uintptr_t>(each.data);
    if (data - first >= bytes && first - data >= each.bytes) continue;  // no overlap
    each.is_read = inboxes().take(key_of(each.tag), each.peer, true) != nullptr;
    may = may && each.is_read;
  }
  return may;
}

bool CollectiveOperation::is_ready() noexcept {
  const std::span<const Step> steps = schedule_.steps();
  if (done_) return true;
  for (size_t i = 0; i < announced_count_; ++i) {
    const Announced& each = announced_[i];
    if (!each.is_read && inboxes().has(key_of(each.tag), each.peer, true)) return true;
  }
  if (current_ == steps.size()) return announced_count_ == 0;
  const Step& step = steps[current_];
  if (step.kind != Step::Kind::kReceive) return step.kind == Step::Kind::kSend;
  if (address_ != 0) return gets_.all_done();
  check_mailboxes(step);
  return inboxes().has(key_of(step.tag), team_.jobrank(step.peer), false);
}

void CollectiveOperation::log_pending() const {
  const std::span<const Step> steps = schedule_.steps();
  const char* call = collective_name(arguments_.signature);
  if (current_ == steps.size()) {
    for (size_t i = 0; i < announced_count_; ++i) {
      if (!announced_[i].is_read) {
        log_warning(
            "rank %u still waits in %s until rank %u has read its %zu bytes: is that rank polling?",
            job().rank(), call, announced_[i].peer, announced_[i].bytes);
        return;
      }
    }
    return;
  }
  const Step& step = steps[current_];
  if (step.kind == Step::Kind::kReceive) check_mailboxes(step);
  log_warning(
      "rank %u still waits in %s, step %zu of %zu, for rank %u: it has not called it, or does not "
      "poll",
      job().rank(), call, current_ + 1, steps.size(), team_.jobrank(step.peer));
}

}  // namespace hydrant
