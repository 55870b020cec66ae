// Puts and gets by Active Messages: the path for networks without other capabilities, and the fallback of
// all other paths. docs/wire_format_am.md shows the messages.
//
//   put    Medium or Long with the data          -> done
//   get    Short with address and length         -> Medium or Long with the data, which is also the reply
//   fill   Short with the byte and the length    -> done
//
// A piece is at most one Medium, or kLongPiece bytes of a Long. Larger operations consist of several
// pieces, with at most GASNET_NETWORKDEPTH of them under way. A put's data has been copied when the
// call returns, unless it is immediate and its source stays as it is: polls send the pieces that had no room
// (rma_rest.hpp).
#pragma once

#include "extended/event/completion_counter.hpp"
#include "extended/rma/common/rma_path.hpp"
#include "extended/rma/common/transfer.hpp"
#include "firehose/base/status.hpp"

namespace hydrant {

// Limits the time in the target's handler to a few 100 us per piece.
inline constexpr size_t kLongPiece = size_t{4} << 20;

// `path` is kAmMedium or kAmLong. Errors: as transfer().
Status transfer_by_messages(RmaThread& thread, Path path, const Transfer& what,
                            CompletionCounter& counter) noexcept;
// Sends the rest of an operation that began on another path; an immediate one leaves what has no room to the
// polls. Does not count the operation: that path has.
Status continue_by_messages(RmaThread& thread, const Transfer& rest,
                            CompletionCounter& counter) noexcept;
// Sends at most one message, at once or not at all (kNotReady); does not occupy the thread's room.
Status send_one_message(const Transfer& part, CompletionCounter& counter) noexcept;
Status fill_by_messages(RmaThread& thread, Rank peer, uintptr_t remote, int value, size_t bytes,
                        CompletionCounter& counter) noexcept;

void add_rma_handlers() noexcept;

}  // namespace hydrant
