// Pins memory with mlock(2). Locked pages stay resident but may move physically, and memory that is unmapped
// and mapped again is no longer locked. For memory that only must not be paged out, and as the fallback where
// io_uring is unavailable. It has no keys and cannot detect stale pins.
//
// mlock does not nest, so a count is kept for each run of pages (page_pin_counts.hpp); a pin may be undone in
// pieces. Pins and unpins run concurrently, but a pin waits while its pages are being unlocked. The child of
// a fork inherits no locks. Parts of a huge page can be locked and unlocked. hugetlbfs pages are never paged
// out; locking them has no effect.
//
// Locks of the program. The kernel does not report whose lock a page has. Pages that are locked before their
// first pin are not locked again, and stay locked after their last unpin, unless a later pin finds that the
// program has unlocked them: it locks them, and their last unpin unlocks them. Where locked and other pages
// alternate more than 64 times in one pin, some of the others stay locked as well. Where the kernel does not
// show what is locked in whole (locked_ranges.hpp), a pin makes the program's lock on fault a plain one.
// Pins of another registrar of this kind look like locks of the program: pages that both have pinned may stay
// locked. After mlockall(MCL_CURRENT), or if the registrar is made after mlockall(MCL_FUTURE), it unlocks
// nothing until munlockall(). Memory that replaces pinned memory, as reported to unmapped(), is not
// unlocked before it is pinned itself; each pin has a note (RegistrarTraits::note_bytes) by which its unpin
// knows whether that concerns it. Not noticed: a lock that the program or another registrar takes on pinned
// pages; their last unpin unlocks these.
// docs/pin_cache.md says what stays locked in doubt.
//
// Rights. Since Linux 5.14 pages are first locked on fault and then populated with the requested right. This
// refuses memory that may not be written (or read), in a single page walk. A pin without a writing right
// leaves untouched memory as the shared zero page until its first write. On older kernels one call locks and
// populates, and no writing right is checked.
//
// Mappings. Locking a part of a mapping divides it, and unlocking joins the parts again if the mapping had
// been written to before. So since Linux 5.14 a pin with a writing right first populates its ends. Memory
// that is first written while a pin without such a right holds it stays divided.
//
// Cost: one mlock, with a writing right up to two populations of a page (0.5 us each) before it, a query
// of the monitor (0.3 us), and one msync (0.3 us in one mapping, and linear in their number; under the
// registrar's mutex) for each part that was not pinned yet, plus about 0.2 us at any length:
// O(log n + runs touched) for n runs of different counts, each 64 bytes of heap, which a pin allocates before
// it counts (kResource). Where the program has locked pages, see locked_ranges.hpp. An unpin or a refused
// pin blocks signals (0.2 us) and makes one munlock per run whose count becomes 0. If parts were unmapped
// unreported, it queries the kernel for the mappings (mapping_query.hpp) and makes one munlock per mapped
// run; without /proc, one per page.
//
// Charge: RLIMIT_MEMLOCK of this process, in an account separate from other registrars. The kernel charges a
// page once, however often it is pinned. charge() counts each pin, so it may overstate but never understate.
#pragma once

#include "firehose/base/registrar.hpp"
#include "firehose/registrars/mlock_calls.hpp"

#include <memory>

namespace hydrant {

// How long Registrar::unmapped() waits for a munlock() of the range that is under way: the monitor's reader
// waits with it, and all that release memory wait for the reader.
inline constexpr uint64_t kReportPatienceNs = 250'000'000;

// Locks one page as a trial.
// Errors: kUnsupported (locking is not allowed; the text says what to change), kResource (out of memory).
std::unique_ptr<Registrar> make_mlock_registrar(
    Status* status, const MlockCalls& calls = kMlockCalls,
    uint64_t report_patience_ns = kReportPatienceNs) noexcept;

}  // namespace hydrant
