// Starts lists of puts and gets under one counter: for hydrant_put_many() and vector, indexed and strided
// transfers.
#pragma once

#include <hydrant/rma.h>

#include "extended/event/completion_counter.hpp"
#include "extended/rma/common/transfer.hpp"
#include "firehose/base/status.hpp"

#include <span>

namespace hydrant {

struct ManyFlags {
  bool source_may_change = false;
  bool immediate = false;
};
// As transfer() for each operation. The ranks are those of the job, and the arguments have been checked.
// `*started`: how many operations at the front have been started. Those that the kernel copies together may
// have been copied behind them.
Status start_many(std::span<const hydrant_rma_op_t> ops, Direction direction, ManyFlags flags,
                  CompletionCounter& counter, size_t* started) noexcept;

}  // namespace hydrant
