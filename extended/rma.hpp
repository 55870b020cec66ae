// Put and get: what a call asks for, and the one way in for all of them.
//
// A call becomes a Transfer. rma_path.cpp decides the path; those on which the copy is over when the call
// returns are in rma_transfer.cpp, those that leave pieces under way in rma_posted.cpp (one-sided, through
// the transport) and rma_messages.cpp (Active Messages). docs/put_get.md explains all of it.
#pragma once

#include <hydrant/gasnet/rma.h>

#include "extended/pieces.hpp"
#include "firehose/base/status.hpp"
#include "rdma/bootstrap.hpp"

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
  // The caller may change the source before the operation is complete.
  bool source_is_free = false;
  bool immediate = false;

  bool is_put() const noexcept { return direction == Direction::kPut; }
};

// Copies, or starts to. Pieces that are under way at return report to `pieces`; if all is over none
// was started. May poll. Errors: kNotReady: immediate, and it could not start at once; kBadArg:
// memory that is not there; kBroken: the peer is gone or the job is ending; kResource: no memory
// for the library's own state.
Status transfer(const Transfer& what, Pieces& pieces) noexcept;
// The short way to memory of another rank of the node that is known not to be mapped here, where
// the kernel copies: checks, transport, count. True: the copy is over. False: take the long way,
// which also finds out what is wrong. Cost: some 60 instructions, and what the transport takes.
bool put_by_kernel(gex_TM_t tm, gex_Rank_t rank, void* dest, const void* source,
                   size_t bytes) noexcept;
bool get_by_kernel(gex_TM_t tm, gex_Rank_t rank, void* dest, const void* source,
                   size_t bytes) noexcept;
// Sets `bytes` bytes of `peer` to `value`. The same otherwise.
Status fill(Rank peer, uintptr_t remote, int value, size_t bytes, Pieces& pieces) noexcept;

// What is wrong with it, before anything is touched. Errors: kNotInit; kBadArg: a handler, no such rank, null
// with a length, a range that wraps around.
Status check_transfer(gex_TM_t tm, gex_Rank_t rank, Transfer& what) noexcept;

// The end of every call that can fail: ends the job with a line that begins with the rank and names the call,
// or returns the code, by HYDRANT_ON_FAULT; `returns` is what auto means. kNotReady is always returned.
int answer(Status status, const char* call, bool returns = false) noexcept;

// A peer is gone: whoever has ended it, or waits for it, ends the job in a moment and says why, which its
// peers, who notice it first, cannot. Returns after 2 s if nobody does.
void await_the_jobs_end() noexcept;

// Whether what cannot be done is an answer, and not the end of the job, to a call for which auto means
// `returns`.
bool faults_return(bool returns) noexcept;

// Once per process, when rank, size and transport are there. Errors: kResource.
Status start_rma() noexcept;

}  // namespace hydrant
