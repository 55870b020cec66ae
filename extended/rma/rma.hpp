// Put and get: the description of an operation, and the single entry point for all calls.
//
// A call becomes a Transfer. rma_path.cpp chooses the path. Paths whose copy is complete at return are
// in rma_transfer.cpp. Paths with pieces under way at return are in rma_posted.cpp (one-sided, through
// the transport) and rma_messages.cpp (Active Messages). docs/put_get.md explains all of them.
#pragma once

#include <hydrant/gasnet/rma.h>

#include "extended/event/completion_counter.hpp"
#include "firehose/base/status.hpp"
#include "rdma/bootstrap/bootstrap.hpp"

#include <cstddef>
#include <cstdint>

namespace hydrant {

enum class Direction : uint32_t { kPut = 0, kGet = 1 };

struct Transfer {
  Direction direction = Direction::kPut;
  Rank peer = 0;
  uintptr_t remote = 0;
  std::byte* local = nullptr;  // puts only read it
  size_t bytes = 0;
  // The caller may change the source before completion.
  bool source_may_change = false;
  bool immediate = false;

  bool is_put() const noexcept { return direction == Direction::kPut; }
};

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
// Fast path for created segments of the node's ranks that are mapped here (Transport::mapped()), for calls
// by a made team or a pair: as above, with a copy in this process.
bool put_to_created(gex_Rank_t rank, void* dest, const void* source, size_t bytes) noexcept;
bool get_from_created(gex_Rank_t rank, void* dest, const void* source, size_t bytes) noexcept;
// Sets `bytes` bytes of `peer` to `value`; otherwise like transfer().
Status fill(Rank peer, uintptr_t remote, int value, size_t bytes,
            CompletionCounter& counter) noexcept;

// Checks the arguments before memory is accessed. Errors: kNotInit; kBadArg: called in a handler,
// invalid rank, null with a length, a range that wraps around.
Status check_transfer(gex_TM_t tm, gex_Rank_t rank, Transfer& what) noexcept;

// Final step of every call that can fail. Depending on HYDRANT_ON_FAULT it ends the job, with a line
// that names the rank and the call, or returns the code; `returns` is the meaning of "auto". kNotReady
// is always returned.
int return_or_abort(Status status, const char* call, bool returns = false) noexcept;

// Waits up to 2 s for the end of the job after a peer died. The launcher or another rank then ends the
// job with the cause, which this rank does not know.
void wait_for_job_exit_briefly() noexcept;

// True if errors are returned instead of ending the job, for a call for which "auto" means `returns`.
bool is_fault_returned(bool returns) noexcept;

// Called once per process, after rank, size and transport are set. Errors: kResource.
Status start_rma() noexcept;

}  // namespace hydrant
