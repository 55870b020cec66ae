// Puts and gets over a network that moves data between pinned memory. Local and remote memory come from
// the pin cache; memory that cannot be pinned uses another path.
//
//   remote memory has a firehose                   -> one-sided put or get, no message
//   a small put or get misses                      -> its data travels in the move, or in the reply
//   a large get misses, puts precede messages      -> the target puts the data before it replies
//   another miss                                   -> rendezvous: posted when the reply arrives
//   the target refuses or declines                 -> Active Messages
//
//   local memory: pinned if that pays; without room, on-demand paging (on_demand.hpp); else a bounce buffer
//
// A waiting operation has no owner thread: callbacks put it on a list from which any polling thread
// takes it. Its own thread may have passed the event on and ended.
#pragma once

#include <hydrant/remote_pin.h>

#include "extended/event/completion_counter.hpp"
#include "extended/rma/common/rma_path.hpp"
#include "extended/rma/common/transfer.hpp"
#include "firehose/base/status.hpp"

#include <cstddef>
#include <span>

namespace hydrant {

// Own memory of this size is pinned for an operation, less only if it is pinned already: registering less
// costs more than copying it (decisions 0010, 0016).
inline constexpr size_t kMinPinned = 16384;

// Errors: as transfer(); kUnsupported: no piece is under way; use messages.
Status transfer_pinned(RmaThread& thread, const Transfer& what,
                       CompletionCounter& counter) noexcept;

// Fast path: firehoses on both ends, and room. True: the operation is under way. False: it is not; use
// transfer_pinned(), which also reports errors. Cost: about 200 instructions and the transport's call.
bool start_hit(RmaThread& thread, const Transfer& what, CompletionCounter& counter) noexcept;
// Starts several hits with one peer in one direction as one list for the transport. Returns how many,
// counted from the front, were started.
inline constexpr size_t kMaxBatch = 16;
size_t start_hits(RmaThread& thread, std::span<const Transfer> list,
                  CompletionCounter& counter) noexcept;
// Starts a persistent operation, which owns its piece. Call make_persistent() once, and start_persistent()
// while the operation is not under way. Between completion and the next start the piece holds no resources.
struct PersistentPiece;
void make_persistent(PersistentPiece& persistent, const Transfer& what,
                     CompletionCounter& counter) noexcept;
bool start_persistent(RmaThread& thread, PersistentPiece& persistent) noexcept;
// Blocking hits, for arguments that check_transfer() would accept. The operation is not counted as
// under way.
bool put_hit(gex_TM_t tm, gex_Rank_t rank, void* dest, const void* source, size_t bytes) noexcept;
bool get_hit(gex_TM_t tm, gex_Rank_t rank, void* dest, const void* source, size_t bytes) noexcept;

// The number of keys that the network has refused. A refusal means that an operation was under way when the
// peer's memory was unmapped; if the protocol is correct, there is no other cause.
uint64_t refused_operation_count() noexcept;

// Creates the domain and the remote pins of these puts and gets (firehose_binding.hpp), which call
// serve_move(). Called once per process, after rank, size and transport are set.
void start_pinned_transfers() noexcept;

// The target's part of a move (a hydrant_remote_fn).
size_t serve_move(void* user, uint32_t from, const hydrant_region_t* pinned, hydrant_range_t range,
                  const void* args, size_t args_len, void* reply, size_t room);

// Requests a firehose without waiting; evict() releases the firehoses on the range.
Status prefetch(Rank peer, uintptr_t remote, size_t bytes) noexcept;
Status evict(Rank peer, uintptr_t remote, size_t bytes) noexcept;

}  // namespace hydrant
