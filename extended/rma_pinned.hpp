// Puts and gets over a network that moves data between pinned memory: local and remote memory come from the
// pin cache, and what neither is pinned nor can be now goes another way.
//
//   remote memory is a firehose already            -> put or get, one-sided: no message
//   a small put or get misses                      -> its data travels in the move, or in its answer
//   a large get misses, writes come before messages -> the target puts it there before it answers
//   another miss                                   -> rendezvous: posted when the answer is here
//   the target says no, or not now                 -> Active Messages
//
//   local memory: pinned if that pays; where there is no room for that now, by an adapter that pages
//   (on_demand.hpp); else through a buffer of the library.
//
// An operation that waits belongs to nobody: callbacks put it where whoever polls next takes it, for its
// thread may have handed its event to another and ended.
#pragma once

#include <hydrant/remote_pin.h>

#include "extended/rma.hpp"
#include "extended/rma_path.hpp"

#include <cstddef>
#include <span>

namespace hydrant {

// Errors: as transfer(); kUnsupported: none of it is under way, take messages.
Status transfer_pinned(RmaThread& thread, const Transfer& what, Pieces& pieces) noexcept;

// The usual: there are firehoses on both ends, and room. True: it is under way. False: nothing is, take
// transfer_pinned(), which also finds out what is wrong. Cost: some 200 instructions, and the transport's.
bool start_hit(RmaThread& thread, const Transfer& what, Pieces& pieces) noexcept;
// The same of several with one peer in one direction; how many, from the front. The transport is told of them
// together.
inline constexpr size_t kMostHits = 16;
size_t start_hits(RmaThread& thread, std::span<const Transfer> list, Pieces& pieces) noexcept;
// The same of a persistent operation, which has its piece with it. keep(): once; start_kept(): while nothing
// of it is under way. Between its end and the next start it holds nothing.
struct KeptPiece;
void keep(KeptPiece& kept, const Transfer& what, Pieces& pieces) noexcept;
bool start_kept(RmaThread& thread, KeptPiece& kept) noexcept;
// The same, waiting for it; for what check_transfer() would let pass, if it was asked. Nothing is counted as
// under way.
bool put_hit(gex_TM_t tm, gex_Rank_t rank, void* dest, const void* source, size_t bytes) noexcept;
bool get_hit(gex_TM_t tm, gex_Rank_t rank, void* dest, const void* source, size_t bytes) noexcept;

// What operations that waited can do now; how many got on. Part of each poll.
uint32_t go_on_with_pinned() noexcept;

// How often the network has refused a key: an operation on its way when the peer's memory went, and with a
// protocol that holds, nothing else.
uint64_t refused_puts_and_gets() noexcept;

// The target's part of a move (hydrant_remote_fn).
size_t serve_move(void* user, uint32_t from, const hydrant_region_t* pinned, hydrant_range_t asked,
                  const void* args, size_t args_len, void* answer, size_t room);

// The segment stays where it is for the job's life: it may be cached whoever watches.
void note_own_segment() noexcept;

// Asks for a firehose that nobody waits for, or gives those of the range back.
Status prefetch(Rank peer, uintptr_t remote, size_t bytes) noexcept;
Status evict(Rank peer, uintptr_t remote, size_t bytes) noexcept;

}  // namespace hydrant
