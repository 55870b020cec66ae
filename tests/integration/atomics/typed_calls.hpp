// The calls of gasnet_ratomic.h by the type of their operands.
#pragma once

#include "tests/integration/atomics/model_atomic.hpp"

#include <cstdint>
#include <gasnet_ratomic.h>

inline auto nb_call(int32_t) { return gex_AD_OpNB_I32; }
inline auto nb_call(uint32_t) { return gex_AD_OpNB_U32; }
inline auto nb_call(int64_t) { return gex_AD_OpNB_I64; }
inline auto nb_call(uint64_t) { return gex_AD_OpNB_U64; }
inline auto nb_call(float) { return gex_AD_OpNB_FLT; }
inline auto nb_call(double) { return gex_AD_OpNB_DBL; }
inline auto nbi_call(int32_t) { return gex_AD_OpNBI_I32; }
inline auto nbi_call(uint32_t) { return gex_AD_OpNBI_U32; }
inline auto nbi_call(int64_t) { return gex_AD_OpNBI_I64; }
inline auto nbi_call(uint64_t) { return gex_AD_OpNBI_U64; }
inline auto nbi_call(float) { return gex_AD_OpNBI_FLT; }
inline auto nbi_call(double) { return gex_AD_OpNBI_DBL; }

inline gex_EC_t category_of(gex_OP_t op) {
  if (op == GEX_OP_SET) return GEX_EC_PUT;
  return op == GEX_OP_GET ? GEX_EC_GET : GEX_EC_RMW;
}

// Runs an operation to its completion, by either call. With GEX_FLAG_IMMEDIATE it may take a second attempt.
template <typename T>
void run_call(bool by_event, gex_AD_t ad, T* result, gex_Rank_t rank, void* target, gex_OP_t op,
              T operand1, T operand2, gex_Flags_t flags) {
  constexpr gex_Flags_t kImmediate = GEX_FLAG_IMMEDIATE;
  if (by_event) {
    gex_Event_t event = nb_call(T{})(ad, result, rank, target, op, operand1, operand2, flags);
    if (event == GEX_EVENT_NO_OP)
      event = nb_call(T{})(ad, result, rank, target, op, operand1, operand2, flags & ~kImmediate);
    gex_Event_Wait(event);
  } else {
    if (nbi_call(T{})(ad, result, rank, target, op, operand1, operand2, flags) != 0)
      (void)nbi_call(T{})(ad, result, rank, target, op, operand1, operand2, flags & ~kImmediate);
    gex_NBI_Wait(category_of(op), 0);
  }
}
