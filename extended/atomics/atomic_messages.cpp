// Sends atomic operations to the ranks that own their targets, and executes those that arrive.
// atomic_calls.cpp sends.
#include "extended/atomics/atomic_messages.hpp"

#include "am/handler/token.hpp"
#include "am/job/endpoints.hpp"
#include "am/job/job.hpp"
#include "am/message/send.hpp"
#include "am/segment/segment_check.hpp"
#include "extended/atomics/atomic_ops.hpp"
#include "extended/message/handlers.hpp"
#include "extended/rma/common/count_pieces.hpp"
#include "extended/rma/common/rma_thread.hpp"
#include "extended/rma/paths/message_words.hpp"

#include <cstdio>

namespace hydrant {
namespace {

constexpr uint32_t kRequestArgs = 12;
constexpr uint32_t kReplyArgs = 8;

// ---- at the target ----

void on_atomic(gex_Token_t token, int32_t type_bits, int32_t op_bits, int32_t target_low,
               int32_t target_high, int32_t operand1_low, int32_t operand1_high,
               int32_t operand2_low, int32_t operand2_high, int32_t counter_low,
               int32_t counter_high, int32_t result_low, int32_t result_high) {
  const auto type = static_cast<gex_DT_t>(type_bits);
  const auto op = static_cast<gex_OP_t>(op_bits);
  const auto target = static_cast<uintptr_t>(join_words(target_low, target_high));
  // A refusal has the target in place of the old value.
  uint64_t value = target;
  const bool is_allowed = is_own_atomic_target(type, target);
  if (is_allowed)
    value = apply_atomic(type, op, reinterpret_cast<void*>(target),
                         join_words(operand1_low, operand1_high),
                         join_words(operand2_low, operand2_high));
  const auto args =
      pack_words(join_words(counter_low, counter_high), join_words(result_low, result_high), value,
                 join_words(type_bits, is_allowed ? 1 : 0));
  rma_reply(token, rma_request(token->from, kAtomicReplyHandler, args, false));
}

// ---- back at the initiator ----

void on_atomic_done(gex_Token_t token, int32_t counter_low, int32_t counter_high,
                    int32_t result_low, int32_t result_high, int32_t value_low, int32_t value_high,
                    int32_t type_bits, int32_t is_allowed) {
  const auto type = static_cast<gex_DT_t>(type_bits);
  const uint64_t value = join_words(value_low, value_high);
  if (is_allowed == 0) [[unlikely]] {
    char call[32];
    (void)snprintf(call, sizeof call, "gex_AD_Op*_%s", atomic_type_name(type));
    refuse_atomic_target(call, token->from, value, atomic_width(type));
  }
  auto* result = reinterpret_cast<void*>(join_words(result_low, result_high));
  if (result != nullptr) store_atomic_result(result, value, atomic_width(type));
  count_done(named_counter(counter_low, counter_high));
}

}  // namespace

bool is_own_atomic_target(gex_DT_t type, uintptr_t target) noexcept {
  return job().segment_mode == kSegmentEverything || is_in_bound_memory(target, atomic_width(type));
}

void refuse_atomic_target(const char* call, Rank owner, uintptr_t target, size_t bytes) noexcept {
  char relation[kSegmentRelationText];
  fatal(
      "%s: the target %#zx is in no segment of rank %u of the job%s: targets have to lie in a "
      "segment of their rank",
      call, static_cast<size_t>(target), owner,
      relate_to_segment(owner, target, bytes, relation, sizeof relation));
}

Status send_atomic(RmaThread& thread, const AtomicRequest& request,
                   CompletionCounter& counter) noexcept {
  if (const Status room = make_room(thread, counter, request.immediate); room != Status::kOk)
    return room;
  const auto args = pack_words(uint64_t{request.op} << 32 | request.type, request.target,
                               request.operand1, request.operand2, counter_name(counter),
                               reinterpret_cast<uintptr_t>(request.result));
  count_start(counter, request.peer);
  const Status status = send(rma_request(request.peer, kAtomicHandler, args, request.immediate));
  if (status != Status::kOk) uncount_start(counter);
  return status;
}

void add_atomic_handlers() noexcept {
  HandlerTable& table = job().handlers;
  table.add_internal(kAtomicHandler, reinterpret_cast<gex_AM_Fn_t>(on_atomic), kRequestArgs,
                     GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST, "atomic");
  table.add_internal(kAtomicReplyHandler, reinterpret_cast<gex_AM_Fn_t>(on_atomic_done), kReplyArgs,
                     GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REPLY, "atomic's reply");
}

}  // namespace hydrant
