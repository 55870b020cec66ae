// Rests of puts and gets, sent by messages in polls: those of calls with GEX_FLAG_IMMEDIATE that had room for
// their first pieces only, and those of pieces whose pinned memory was refused.
#pragma once

#include "extended/event/completion_counter.hpp"
#include "extended/rma/common/transfer.hpp"
#include "firehose/base/thread.hpp"

#include <cstddef>

namespace hydrant {

// Held while pieces of a rest are started. Polls of any thread do that, and the operation's own thread may
// have ended, so the pieces count for a thread state of their own, the carrier, and not for
// GASNET_NETWORKDEPTH.
Mutex& carrier_mutex() noexcept;

// Counts the pieces of a rest, which are one piece of their operation.
struct RestCount {
  CompletionCounter pieces;
  CompletionCounter* operation = nullptr;

  // Counts the rest as started; in the thread that starts the operation.
  void start(CompletionCounter& of, Rank peer) noexcept;
  // True: all pieces are complete, and so is the operation's.
  bool finish(Rank peer) noexcept;
};

// Prepares `pieces` for send_rest(), for a rest of the operation.
void count_by_carrier(CompletionCounter& pieces, const CompletionCounter& operation) noexcept;
// Sends as much of `part` behind its first `*sent` bytes as there is room for. False: there is more to send.
// After an error there is not, and `pieces` has it.
bool send_rest(const Transfer& part, size_t* sent, CompletionCounter& pieces) noexcept;

// Leaves the rest of an operation of which a part has started to the polls, with a copy of a source that may
// change. Without memory the call waits for room instead. Errors: as transfer().
Status finish_in_polls(RmaThread& thread, const Transfer& rest,
                       CompletionCounter& counter) noexcept;

}  // namespace hydrant
