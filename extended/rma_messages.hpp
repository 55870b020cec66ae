// Puts and gets by Active Messages: what carries them on a network that offers nothing else, and what
// everything falls back to. docs/wire_format_am.md draws the messages.
//
//   put    Medium or Long with the data          -> done
//   get    Short that says what and where        -> Medium or Long with the data, which is also the answer
//   fill   Short with the byte and the length    -> done
//
// A Medium moves at most the longest Medium, a Long kLongPiece; larger operations are several, as many
// under way as GASNET_NETWORKDEPTH allows. Data has been copied when a put's call returns.
#pragma once

#include "extended/rma.hpp"
#include "extended/rma_path.hpp"

namespace hydrant {

// Keeps the target in its handler no longer than a few 100 us at a time.
inline constexpr size_t kLongPiece = size_t{4} << 20;

// `path` is kAmMedium or kAmLong. Errors: as transfer().
Status transfer_by_messages(RmaThread& thread, Path path, const Transfer& what,
                            Pieces& pieces) noexcept;
// The rest of an operation that went another way until here, which counts it.
Status go_on_by_messages(RmaThread& thread, const Transfer& rest, Pieces& pieces) noexcept;
// One message's worth, at once or not at all (kNotReady); it takes no room of the thread's.
Status send_one_message(const Transfer& part, Pieces& pieces) noexcept;
Status fill_by_messages(RmaThread& thread, Rank peer, uintptr_t remote, int value, size_t bytes,
                        Pieces& pieces) noexcept;

// Whether the thread, and `pieces`, may start one more.
bool has_room(const RmaThread& thread, const Pieces& pieces) noexcept;
// Polls until the thread, and `pieces`, may start one more. Errors: kNotReady: `immediate`, and there is no
// room; kBroken: the job is ending.
Status make_room(RmaThread& thread, const Pieces& pieces, bool immediate) noexcept;

void add_rma_handlers() noexcept;

}  // namespace hydrant
