// Put and get: the single entry point for all calls.
//
// A call becomes a Transfer. rma_transfer.cpp chooses its path (rma_path.hpp), and has those whose copy is
// complete at return. Paths with pieces under way at return are in rma_posted.cpp (one-sided, through
// the transport), rma_messages.cpp (Active Messages) and pinned/. docs/put_get.md explains all of them.
#pragma once

#include <hydrant/gasnet/rma.h>

#include "extended/event/completion_counter.hpp"
#include "extended/rma/common/transfer.hpp"
#include "firehose/base/status.hpp"
#include "rdma/bootstrap/bootstrap.hpp"

#include <cstddef>
#include <cstdint>

namespace hydrant {

// Executes or starts an operation. Pieces under way at return report to `counter`; if the operation is
// complete, no piece was started. May poll. Errors: kNotReady: immediate, and it could not start at once;
// kBadArg: unmapped memory; kBroken: the peer has died or the job is ending; kResource: no memory for the
// library's own state.
Status transfer(const Transfer& what, CompletionCounter& counter) noexcept;
// Fast path for memory of another rank of the node that is known not to be mapped here, if the kernel
// copies: checks, transport, count. True: the copy is complete. False: use transfer(), which also
// reports errors. Cost: about 60 instructions and the transport's call.
bool put_by_cma(gex_TM_t tm, gex_Rank_t rank, void* dest, const void* source,
                size_t bytes) noexcept;
bool get_by_cma(gex_TM_t tm, gex_Rank_t rank, void* dest, const void* source,
                size_t bytes) noexcept;
// Fast path for created segments of the node's ranks that are mapped here (MemoryAccess::mapped()), for calls
// by a made team or a pair: as above, with a copy in this process.
bool put_to_created(gex_Rank_t rank, void* dest, const void* source, size_t bytes) noexcept;
bool get_from_created(gex_Rank_t rank, void* dest, const void* source, size_t bytes) noexcept;
// Sets `bytes` bytes of `peer` to `value`; otherwise like transfer().
Status fill(Rank peer, uintptr_t remote, int value, size_t bytes,
            CompletionCounter& counter) noexcept;

// Checks the arguments before memory is accessed. Errors: kNotInit; kBadArg: called in a handler,
// invalid rank, null with a length, a range that wraps around.
Status check_transfer(gex_TM_t tm, gex_Rank_t rank, Transfer& what) noexcept;

// Called once per process, after rank, size and transport are set. Errors: kResource.
Status start_rma() noexcept;

}  // namespace hydrant
