// Pins memory with mlock(2): pages stay in memory, but not necessarily at one physical place, and a
// range that is unmapped and mapped again is no longer locked. Good for what only must not be paged
// out, and as the fallback where io_uring is not allowed; no key, no proof of staleness.
//
// mlock does not nest, so pages are counted; a pin may be undone in pieces. A writing right is checked
// and prepared with MADV_POPULATE_WRITE where the kernel has it (5.14), so that read-only memory is
// refused. Pins run concurrently; unpins take turns, because munlock must not overtake a new pin. Pages
// that the program has locked itself lose that lock with their last pin.
//
// Charge: RLIMIT_MEMLOCK of this process, in an account of its own; a page once, however often pinned, so
// that charge(), which counts each pin, errs on the safe side.
#pragma once

#include "firehose/base/registrar.hpp"

#include <memory>

namespace hydrant {

// Locks a page to see whether it may.
// Errors: kUnsupported (no page may be locked; the text says what to change), kResource (memory).
std::unique_ptr<Registrar> make_mlock_registrar(Status* status) noexcept;

}  // namespace hydrant
