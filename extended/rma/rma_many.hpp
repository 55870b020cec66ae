// Starts lists of puts and gets under one counter: for hydrant_put_many() and vector, indexed and strided
// transfers.
#pragma once

#include <hydrant/rma.h>

#include "extended/event/completion_counter.hpp"
#include "extended/rma/common/transfer.hpp"
#include "firehose/base/status.hpp"

#include <span>

namespace hydrant {

class RmaThread;

// Both functions take ranks of the job, and arguments that have been checked.

// Lets the kernel copy up to kMaxTogether operations for one rank in one system call. Errors: as
// MemoryAccess::put(); kUnsupported: it cannot execute one of them, which start_each() finds; others may have
// been copied.
inline constexpr size_t kMaxTogether = 128;  // bounded by the stack; UIO_MAXIOV is 1024
Status copy_by_kernel(RmaThread& thread, std::span<const hydrant_rma_op_t> ops,
                      Direction direction) noexcept;

struct ManyFlags {
  bool source_may_change = false;
  bool immediate = false;
};
// Starts each operation like transfer(); the adapter gets runs of hits as one list. Counts in `*started` how
// many at the front have been started.
Status start_each(RmaThread& thread, std::span<const hydrant_rma_op_t> ops, Direction direction,
                  ManyFlags flags, CompletionCounter& counter, size_t* started) noexcept;

}  // namespace hydrant
