// Translates atomic operations for the adapter, and posts them through rma_posted.cpp. Called by
// atomic_calls.cpp.
#include "extended/atomics/adapter_atomics.hpp"

namespace hydrant {

bool are_adapter_operations(gex_DT_t type, gex_OP_t ops) noexcept {
  constexpr gex_OP_t kOfBits = GEX_OP_GET | GEX_OP_CAS | GEX_OP_FCAS;
  constexpr gex_OP_t kOfIntegers = kOfBits | GEX_OP_ADD | GEX_OP_FADD | GEX_OP_SUB | GEX_OP_FSUB |
                                   GEX_OP_INC | GEX_OP_FINC | GEX_OP_DEC | GEX_OP_FDEC;
  switch (type) {
    case GEX_DT_I64:
    case GEX_DT_U64: return (ops & ~kOfIntegers) == 0;
    case GEX_DT_DBL: return (ops & ~kOfBits) == 0;
    default: return false;
  }
}

PinnedOperations::Atomic adapter_operation(gex_OP_t op, uint64_t operand1,
                                           uint64_t operand2) noexcept {
  using Kind = PinnedOperations::Atomic::Kind;
  switch (op) {
    case GEX_OP_CAS:
    case GEX_OP_FCAS: return {Kind::kCompareSwap, operand2, operand1};
    case GEX_OP_SUB:
    case GEX_OP_FSUB: return {Kind::kFetchAdd, 0 - operand1, 0};
    case GEX_OP_INC:
    case GEX_OP_FINC: return {Kind::kFetchAdd, 1, 0};
    case GEX_OP_DEC:
    case GEX_OP_FDEC: return {Kind::kFetchAdd, UINT64_MAX, 0};
    case GEX_OP_GET: return {Kind::kFetchAdd, 0, 0};
    default: return {Kind::kFetchAdd, operand1, 0};
  }
}

Status start_adapter_atomic(RmaThread& thread, const AtomicRequest& request, const std::byte* key,
                            CompletionCounter& counter) noexcept {
  return post_atomic(thread,
                     {.peer = request.peer,
                      .word = {request.target, key},
                      .what = adapter_operation(request.op, request.operand1, request.operand2),
                      .result = request.result,
                      .immediate = request.immediate},
                     counter);
}

}  // namespace hydrant
