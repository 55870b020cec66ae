// Atomic operations as those of an adapter: 64-bit fetch-and-add and compare-and-swap.
#pragma once

#include "extended/atomics/atomic_messages.hpp"
#include "extended/rma/paths/rma_posted.hpp"

#include <cstdint>
#include <gasnet_fwd.h>

namespace hydrant {

// True if an adapter has all of the operations, of this type.
bool are_adapter_operations(gex_DT_t type, gex_OP_t ops) noexcept;
// The adapter's form of such an operation.
PinnedOperations::Atomic adapter_operation(gex_OP_t op, uint64_t operand1,
                                           uint64_t operand2) noexcept;

// Posts the operation on the word with this key. Its completion counts for `counter`, after the result is
// stored. May poll. Errors: kNotReady: immediate, and no room; kBroken: the peer has died or the job is
// ending.
Status start_adapter_atomic(RmaThread& thread, const AtomicRequest& request, const std::byte* key,
                            CompletionCounter& counter) noexcept;

}  // namespace hydrant
