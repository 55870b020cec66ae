// Implements hydrant_put_many() and hydrant_get_many(). Runs of operations that the kernel can copy for one
// rank are one system call; runs of hits are one list for the adapter. Others start one by one, all under one
// event.
#include "extended/rma/rma_many.hpp"

#include "am/call/in_call.hpp"
#include "am/job/job.hpp"
#include "am/job/resolve.hpp"
#include "extended/binding/firehose_binding.hpp"
#include "extended/event/event.hpp"
#include "extended/rma/common/count_pieces.hpp"
#include "extended/rma/common/rma_errors.hpp"
#include "extended/rma/common/rma_thread.hpp"
#include "extended/rma/mapped_copy.hpp"
#include "extended/rma/pinned/rma_pinned.hpp"
#include "extended/rma/rma.hpp"

#include <algorithm>
#include <array>
#include <span>

using namespace hydrant;

namespace {

using Ops = std::span<const hydrant_rma_op_t>;

Transfer transfer_of(const hydrant_rma_op_t& op, Direction direction) noexcept {
  return {.direction = direction,
          .remote = reinterpret_cast<uintptr_t>(op.remote),
          .local = static_cast<std::byte*>(op.local),
          .bytes = op.bytes};
}

// Copies the operations at the front that are plain loads and stores; returns their number.
size_t copy_known(gex_TM_t tm, Ops ops, Direction direction) noexcept {
  size_t count = 0;
  for (const hydrant_rma_op_t& op : ops) {
    const bool done = direction == Direction::kPut
                          ? put_mapped(tm, op.rank, op.remote, op.local, op.bytes)
                          : get_mapped(tm, op.rank, op.local, op.remote, op.bytes);
    if (!done) break;
    ++count;
  }
  return count;
}

// `before` is the number of earlier operations of the same call, for error texts.
Status check_all(gex_TM_t tm, Ops ops, size_t before, Direction direction) noexcept {
  for (size_t i = 0; i < ops.size(); ++i) {
    Transfer what = transfer_of(ops[i], direction);
    const Status status = check_transfer(tm, ops[i].rank, what);
    if (status != Status::kOk)
      return add_context(status, "operation %zu of %zu", before + i, before + ops.size());
  }
  return Status::kOk;
}

bool goes_by_kernel(RmaThread& thread, const hydrant_rma_op_t& op) noexcept {
  if (op.rank >= job().size()) return false;
  const PathChoices& choices = paths(op.rank);
  if (!choices.cma || op.bytes == 0 || op.rank == job().rank()) return false;
  return !choices.mapped ||
         mapped_here(thread, op.rank, reinterpret_cast<uintptr_t>(op.remote), op.bytes) == nullptr;
}

// Starts the operations at the front for one rank whose firehoses are cached, as one list for the
// adapter. Returns how many were started.
size_t start_run_of_hits(RmaThread& thread, Ops ops, Direction direction,
                         CompletionCounter& counter) noexcept {
  const Rank peer = ops[0].rank;
  if (!paths(peer).pinned || peer == job().rank()) return 0;
  // Assign only if different: completions of pieces under way read this field.
  if (counter.thread != &thread) counter.thread = &thread;
  std::array<Transfer, kMaxBatch> run;
  size_t count = 0;
  while (count < std::min(ops.size(), kMaxBatch) && ops[count].rank == peer &&
         ops[count].bytes != 0) {
    run[count] = transfer_of(ops[count], direction);
    run[count++].peer = peer;
  }
  return start_hits(thread, std::span(run).first(count), counter);
}

}  // namespace

Status hydrant::copy_by_kernel(RmaThread& thread, Ops ops, Direction direction) noexcept {
  const Rank peer = ops[0].rank;
  std::array<MemoryAccess::Piece, kMaxTogether> run;
  std::transform(ops.begin(), ops.end(), run.begin(), [](const hydrant_rma_op_t& op) {
    return MemoryAccess::Piece{
        .local = op.local, .remote = reinterpret_cast<uintptr_t>(op.remote), .bytes = op.bytes};
  });
  const std::span<const MemoryAccess::Piece> pieces = std::span(run).first(ops.size());
  MemoryAccess& memory = *job().memory;
  const Status status = direction == Direction::kPut ? memory.put_pieces(peer, pieces)
                                                     : memory.get_pieces(peer, pieces);
  if (status != Status::kOk) return status;
  for (const hydrant_rma_op_t& op : ops) thread.count(direction, peer, Path::kCma, op.bytes);
  return Status::kOk;
}

Status hydrant::start_each(RmaThread& thread, Ops ops, Direction direction, ManyFlags flags,
                           CompletionCounter& counter, size_t* started) noexcept {
  *started = 0;
  while (*started < ops.size()) {
    const Ops rest = ops.subspan(*started);
    const size_t hits =
        flags.source_may_change ? 0 : start_run_of_hits(thread, rest, direction, counter);
    *started += hits;
    if (hits != 0) continue;
    Transfer what = transfer_of(rest[0], direction);
    what.peer = rest[0].rank;
    what.source_may_change = flags.source_may_change;
    what.immediate = flags.immediate;
    if (what.bytes != 0) {
      if (const Status status = transfer(what, counter); status != Status::kOk) return status;
    }
    ++*started;
  }
  return Status::kOk;
}

namespace {

// The operations at the front that the kernel can copy together, or those until the next that it can.
size_t length_of_run(RmaThread& thread, Ops ops, bool by_kernel) noexcept {
  size_t count = 1;
  while (count < ops.size() && goes_by_kernel(thread, ops[count]) == by_kernel &&
         !(by_kernel && (count == kMaxTogether || ops[count].rank != ops[0].rank)))
    ++count;
  return count;
}

// The ranks are those of the job, and the arguments have been checked.
Status start_many(Ops ops, Direction direction, CompletionCounter& counter) noexcept {
  RmaThread* thread = RmaThread::mine();
  if (thread == nullptr || !thread->has_peers())
    return fail(Status::kResource, "no memory for a thread's state of puts and gets");
  settle_exports();
  while (!ops.empty()) {
    const bool by_kernel = goes_by_kernel(*thread, ops[0]);
    const Ops run = ops.first(length_of_run(*thread, ops, by_kernel));
    Status status = Status::kUnsupported;
    if (by_kernel && run.size() > 1) status = copy_by_kernel(*thread, run, direction);
    size_t started = 0;
    if (status == Status::kUnsupported)
      status = start_each(*thread, run, direction, {}, counter, &started);
    if (status != Status::kOk) return status;
    ops = ops.subspan(run.size());
  }
  return Status::kOk;
}

// In parts that fit the stack, with the ranks of the job.
Status translate_and_start(gex_TM_t tm, Ops ops, Direction direction,
                           CompletionCounter& counter) noexcept {
  constexpr size_t kPart = 64;
  std::array<hydrant_rma_op_t, kPart> part;
  while (!ops.empty()) {
    const size_t count = std::min(ops.size(), kPart);
    std::copy_n(ops.begin(), count, part.begin());
    for (hydrant_rma_op_t& op : std::span(part).first(count)) {
      if (const Status status = resolve(tm, op.rank, &op.rank); status != Status::kOk)
        return status;
    }
    const Ops translated = Ops(part).first(count);
    const size_t known = copy_known(&hydrant_world, translated, direction);
    const Status status = start_many(translated.subspan(known), direction, counter);
    if (status != Status::kOk) return status;
    ops = ops.subspan(count);
  }
  return Status::kOk;
}

Status check_list(const hydrant_rma_op_t* list, size_t count, size_t total_bytes) noexcept {
  if (list == nullptr && count != 0)
    return fail(Status::kBadArg, "%zu operations, and the array is NULL", count);
  if (!job().debug) return Status::kOk;
  size_t sum = 0;
  for (const hydrant_rma_op_t& op : Ops(list, count)) sum += op.bytes;
  if (sum == total_bytes) return Status::kOk;
  return fail(Status::kBadArg, "total_bytes is %zu, but the %zu operations have %zu bytes",
              total_bytes, count, sum);
}

int do_many(gex_TM_t tm, const hydrant_rma_op_t* list, size_t count, size_t total_bytes,
            gex_Event_t* event, Direction direction, const char* call) noexcept {
  const InCall in_call(call);
  if (event != nullptr) *event = GEX_EVENT_INVALID;
  if (const Status status = check_list(list, count, total_bytes); status != Status::kOk)
    return return_or_abort(status, call, true);
  if (total_bytes == 0) return GASNET_OK;
  const size_t known = copy_known(tm, Ops(list, count), direction);
  if (known == count && count != 0) [[likely]]
    return GASNET_OK;
  const Ops ops(list + known, count - known);
  if (const Status status = check_all(tm, ops, known, direction); status != Status::kOk)
    return return_or_abort(status, call, true);
  hydrant_event* own = event != nullptr ? take_counted_event() : nullptr;
  CompletionCounter here;
  CompletionCounter& counter = own != nullptr ? own->counter : here;
  counter.returns_errors = true;
  const Status status = tm == &hydrant_world ? start_many(ops, direction, counter)
                                             : translate_and_start(tm, ops, direction, counter);
  if (status == Status::kOk && own != nullptr && !counter.all_done()) {
    *event = own;
    return GASNET_OK;
  }
  const Status waited = wait_for(counter);
  if (own != nullptr) release_event(own);
  return return_or_abort(status == Status::kOk ? waited : status, call, true);
}

}  // namespace

extern "C" {

int hydrant_put_many(gex_TM_t tm, const hydrant_rma_op_t* ops, size_t count, size_t total_bytes,
                     gex_Event_t* event) {
  return do_many(tm, ops, count, total_bytes, event, Direction::kPut, "hydrant_put_many");
}

int hydrant_get_many(gex_TM_t tm, const hydrant_rma_op_t* ops, size_t count, size_t total_bytes,
                     gex_Event_t* event) {
  return do_many(tm, ops, count, total_bytes, event, Direction::kGet, "hydrant_get_many");
}

const char* hydrant_last_error_text(void) { return last_error_text(); }

}  // extern "C"
