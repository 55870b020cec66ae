// Starts lists of puts and gets under one counter: for hydrant_put_many() and vector, indexed and strided
// transfers.
#pragma once

#include <hydrant/rma.h>

#include "extended/rma/rma.hpp"

#include <span>

namespace hydrant {

// As transfer() for each operation. The ranks are those of the job, and the arguments have been checked.
Status start_many(std::span<const hydrant_rma_op_t> ops, Direction direction,
                  bool source_may_change, CompletionCounter& counter) noexcept;

}  // namespace hydrant
