// The operations of atomic domains, as instructions of this processor on memory that is mapped here. Ranks
// that map the same memory, their threads, and handlers of their messages are atomic with respect to each
// other, because all of them end here or in the same instructions inlined (hydrant/gasnet/ratomic.h).
//
// Threads: any. Cost: one locked instruction, or a loop of compare-and-swap (MULT, MIN, MAX, the fetching
// forms of AND, OR and XOR, arithmetic of floats).
#pragma once

#include <cstddef>
#include <cstdint>
#include <gasnet_fwd.h>

namespace hydrant {

// Bytes of the type's values; 0: no type of atomic domains.
size_t atomic_width(gex_DT_t type) noexcept;
// "I32", ...; "?" for what is no type of atomic domains.
const char* atomic_type_name(gex_DT_t type) noexcept;
// "FADD", ...; "?" for what is not one operation of atomic domains.
const char* atomic_op_name(gex_OP_t op) noexcept;
// All operations that exist for the type; 0: no type of atomic domains.
gex_OP_t atomic_ops_of(gex_DT_t type) noexcept;

// True for operations that return the old value.
constexpr bool is_fetching(gex_OP_t op) noexcept {
  constexpr gex_OP_t kFetching = GEX_OP_GET | GEX_OP_SWAP | GEX_OP_FCAS | GEX_OP_FADD |
                                 GEX_OP_FSUB | GEX_OP_FMULT | GEX_OP_FMIN | GEX_OP_FMAX |
                                 GEX_OP_FINC | GEX_OP_FDEC | GEX_OP_FAND | GEX_OP_FOR | GEX_OP_FXOR;
  return (op & kFetching) != 0;
}
constexpr bool is_one_operation(gex_OP_t op) noexcept { return op != 0 && (op & (op - 1)) == 0; }

// Executes one operation that exists for the type on the aligned word at `target`, sequentially consistent.
// Operands and result are bits, in the lower half for types of 32 bits. Returns the old value.
uint64_t apply_atomic(gex_DT_t type, gex_OP_t op, void* target, uint64_t operand1,
                      uint64_t operand2) noexcept;
// Stores such a result in a variable of the type.
void store_atomic_result(void* result, uint64_t bits, size_t width) noexcept;

}  // namespace hydrant
