// Pins memory with mlock(2): pages stay in memory, but not necessarily at one physical place, and a
// range that is unmapped and mapped again is no longer locked. Good for what only must not be paged
// out, and as the fallback where io_uring is not allowed; no key, no proof of staleness.
//
// mlock does not nest, so pages are counted (page_counts.hpp); a pin may be undone in pieces. Pins run
// concurrently; unpins take turns, because munlock must not overtake a new pin. Pages that the program has
// locked itself lose that lock with their last pin.
//
// Rights. From Linux 5.14 on the pages are first locked as they are, then made resident with the right that
// was asked for: memory that may not be written (or read) is refused, and one walk over the pages does
// both. A pin without a writing right leaves memory that was never touched as the shared page of zeros until
// somebody writes. Older kernels lock and make resident in one call, and check no writing right.
//
// Cost: one mlock, plus about 0.2 us, whatever the length.
//
// Charge: RLIMIT_MEMLOCK of this process, in an account of its own; a page once, however often pinned, so
// that charge(), which counts each pin, errs on the safe side.
#pragma once

#include "firehose/base/registrar.hpp"
#include "firehose/registrars/mlock_calls.hpp"

#include <memory>

namespace hydrant {

// Locks a page to see whether it may.
// Errors: kUnsupported (no page may be locked; the text says what to change), kResource (memory).
std::unique_ptr<Registrar> make_mlock_registrar(Status* status,
                                                const MlockCalls& calls = kMlockCalls) noexcept;

}  // namespace hydrant
