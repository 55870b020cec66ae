// Implements the mlock registrar, the fallback when io_uring is unavailable. The cache calls pin() on a miss
// and unpin() on an eviction. page_pin_counts.hpp counts overlapping pins, locked_ranges.hpp finds what is
// locked already, mlock_calls.hpp makes the system calls, and mlock_errors.hpp explains their errors.
#include "firehose/registrars/mlock_registrar.hpp"

#include "firehose/base/brief_lock.hpp"
#include "firehose/base/errno_text.hpp"
#include "firehose/base/pending_ranges.hpp"
#include "firehose/base/signals_blocked.hpp"
#include "firehose/base/thread.hpp"
#include "firehose/base/uncancelled.hpp"
#include "firehose/registrars/charge/memlock.hpp"
#include "firehose/registrars/locked_ranges.hpp"
#include "firehose/registrars/mlock_errors.hpp"
#include "firehose/registrars/page_pin_counts.hpp"

#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>
#include <optional>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

namespace hydrant {
namespace {

constexpr int kRetries = 16;
// How often unlock_pages() queries the mappings again when they change meanwhile.
constexpr int kMaxDepth = 4;
// How long a pin waits until its pages have been unlocked: a terabyte of small pages takes 30 s.
constexpr uint64_t kUnlockPatienceNs = 60'000'000'000;
// How a report of unmapped memory waits for an unlocking of it that is under way.
constexpr int kUnlockYields = 16;
constexpr long kUnlockNapNs = 20'000;
constexpr MemoryRange kEverything{0, SIZE_MAX};
constexpr Access kWriting = Access::kLocalWrite | Access::kRemoteWrite | Access::kRemoteAtomic;

void* pointer(uintptr_t addr) noexcept { return reinterpret_cast<void*>(addr); }

// Calls `call` again while its errno is a transient one.
template <class Call>
int retried(Call call) noexcept {
  int error = EAGAIN;
  for (int i = 0; i < kRetries && (error == EAGAIN || error == EINTR); ++i) error = call();
  return error;
}

class MlockRegistrar final : public Registrar {
 public:
  MlockRegistrar(const MlockCalls& calls, uint64_t report_patience_ns) noexcept
      : calls_(calls), report_patience_ns_(report_patience_ns) {}
  ~MlockRegistrar() override;

  Status start() noexcept;

  const RegistrarTraits& traits() const noexcept override { return traits_; }
  Status pin(MemoryRange range, Access access, std::byte* key) noexcept override;
  UnpinResult unpin(MemoryRange range, const std::byte* key) noexcept override;
  void unmapped(MemoryRange range) noexcept override HYDRANT_EXCLUDES(mu_);
  uint64_t left_locked_bytes() const noexcept override {
    return left_locked_bytes_.load(std::memory_order_relaxed);
  }
  void forget_in_child() noexcept override HYDRANT_NO_TSA;

 private:
  int try_on(MemoryRange page) noexcept;
  // Makes `range` resident and locks what is not `locked` in whole.
  Status lock_pages(MemoryRange range, const LockedRanges& locked, bool writing) noexcept;
  // Errno of locking a part of a pin in which the program has no lock.
  int lock_own(MemoryRange part, bool writing) noexcept;
  int lock_with(bool on_fault, MemoryRange part) const noexcept {
    return retried([&] { return calls_.lock(part, on_fault); });
  }
  // Unlocks the mapped parts of `range`. errno of munlock, 0 on success. Unmapping already released the rest.
  // ETIMEDOUT: impatient_ has changed, and the rest stays locked.
  int unlock_pages(MemoryRange range, uint32_t impatient, int depth = 0) noexcept;
  int unlock_each_page(MemoryRange range, uint32_t impatient) noexcept;
  int unlock(MemoryRange range, uint32_t impatient) const noexcept {
    return impatient_.load(std::memory_order_acquire) == impatient ? calls_.unlock(range)
                                                                   : ETIMEDOUT;
  }
  // Adds one to the count of each page, and to `locked` what is not the registrar's to lock. kNotReady if
  // pages of it were being unlocked for too long.
  Status count(MemoryRange range, LockedRanges* locked, uint64_t* stamp) noexcept
      HYDRANT_EXCLUDES(mu_);
  struct Released {
    int error = 0;             // errno of munlock, 0 on success
    uint64_t left_locked = 0;  // bytes with count 0 whose lock may be the program's
  };
  // Subtracts one from the count of each page and unlocks pages with count 0. False if not all of `range` is
  // counted.
  bool release(MemoryRange range, uint64_t stamp, Released* released) noexcept
      HYDRANT_EXCLUDES(mu_);
  bool being_unlocked(MemoryRange range) const noexcept HYDRANT_REQUIRES(mu_);
  // Notes what was reported while the mutex was held, also in `more`. Comes before each look at the counts.
  void settle_pending(PagePinCounts* more = nullptr) noexcept HYDRANT_REQUIRES(mu_);
  // Afterwards reports wait for the unlocking, or are noted in `ranges`, which are to be unlocked.
  void begin_unlock(PagePinCounts* ranges) noexcept HYDRANT_REQUIRES(mu_);
  // Whether the program has locked all of its memory since start().
  bool all_is_locked() const noexcept { return calls_.find_lock(sentinel_) == EBUSY; }

  const MlockCalls calls_;
  const uint64_t report_patience_ns_;
  RegistrarTraits traits_;
  // Features of the kernel; start() sets them. Without on_fault_ locking also makes pages resident.
  bool can_populate_ = false;
  bool on_fault_ = false;
  // A page that only mlockall() locks.
  MemoryRange sentinel_;
  // Locking and unlocking run outside mu_, because munlock() of a large range takes milliseconds. find_lock()
  // runs under it, before another pin of the pages can lock them: it queries each gap in the counts, at a
  // cost linear in the mappings there, and other pins and unpins wait. A pin counts first, then locks
  // all that the program had not locked: the pin that counted a page first may not have locked it yet, or may
  // fail. A count's fall to 0 and the unlocking must look atomic to pins of the same pages, or those would
  // lose their lock. Such pins wait for unlocking_ to end; other pins proceed.
  Mutex mu_;
  CondVar unlocked_;
  struct Counts {
    NodePool nodes;
    PagePinCounts of{&nodes};
  };
  std::unique_ptr<Counts> counts_ HYDRANT_GUARDED_BY(mu_);  // made by the first pin
  // Reports of unmapped memory that mu_'s holder, perhaps interrupted by the reporter, has to note.
  PendingRanges pending_ranges_;
  // Threads that may be about to call munlock(), with signals blocked.
  std::atomic<uint32_t> unlocks_{0};
  // Reports that have lost patience: a thread that sees a new one unlocks nothing more.
  std::atomic<uint32_t> impatient_{0};
  std::atomic<uint64_t> left_locked_bytes_{0};
  struct PendingUnlock {
    MemoryRange range;
    PendingUnlock* next;
  };
  // An entry for each thread inside release().
  PendingUnlock* unlocking_ HYDRANT_GUARDED_BY(mu_) = nullptr;
};

MlockRegistrar::~MlockRegistrar() {
  MutexLock lock(mu_);
  settle_pending();
  const uint32_t impatient = impatient_.load(std::memory_order_relaxed);
  if (counts_ != nullptr && !all_is_locked())
    counts_->of.each([&](MemoryRange gone) noexcept { (void)unlock_pages(gone, impatient); });
  if (sentinel_.valid()) munmap(pointer(sentinel_.addr), sentinel_.len);
}

Status MlockRegistrar::start() noexcept {
  const MemlockLimit limit = read_memlock_limit();
  traits_.name = "mlock";
  traits_.granule_bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  traits_.max_charge_bytes = limit.usable_bytes();
  traits_.charge_scope =
      limit.usable_bytes() == UINT64_MAX ? ChargeScope::kNone : ChargeScope::kProcess;
  traits_.divisible = true;
  traits_.wants_unmap_reports = true;
  traits_.shares_locks_with_program = true;
  traits_.note_bytes = sizeof(uint64_t);
  void* page = mmap(nullptr, traits_.granule_bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED)
    return fail(Status::kResource,
                "cannot map a page for a trial of mlock: free memory, or raise ulimit -v");
  sentinel_ = {reinterpret_cast<uintptr_t>(page), traits_.granule_bytes};
  const int error = try_on(sentinel_);
  // A new page: only mlockall() can have locked it.
  if (mmap(page, traits_.granule_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
           0) == MAP_FAILED)
    return fail(Status::kResource,
                "cannot map a page beside mlock: free memory, or raise ulimit -v");
  // An account that is full now may have room later, so this is not a failure.
  if (error == 0 || (error == ENOMEM && limit.bytes >= traits_.granule_bytes)) return Status::kOk;
  char advice[256];
  describe_memlock(limit, advice, sizeof advice);
  return fail(Status::kUnsupported, "mlock does not work here: %s; %s", errno_text(error), advice);
}

// Probes the kernel's features and measures costs. Returns the errno of locking a page.
int MlockRegistrar::try_on(MemoryRange page) noexcept {
  can_populate_ = calls_.populate(page, true) == 0;
  uint64_t start_ns = now_ns();
  int error = calls_.lock(page, can_populate_);
  on_fault_ = can_populate_ && (error == 0 || error == ENOMEM);
  if (can_populate_ && !on_fault_) {
    start_ns = now_ns();
    error = calls_.lock(page, false);
  }
  if (on_fault_) (void)calls_.populate(page, true);
  traits_.pin_base_ns = static_cast<uint32_t>(now_ns() - start_ns);
  return error;
}

Status MlockRegistrar::pin(MemoryRange range, Access access, std::byte* note) noexcept {
  const uintptr_t mask = traits_.granule_bytes - 1;
  if (!range.valid() || range.end() == 0 || (range.addr & mask) != 0 || (range.len & mask) != 0) {
    return fail(Status::kBadArg, "mlock: [0x%llx, +%zu) is not a range of whole pages",
                ull(range.addr), range.len);
  }
  uint64_t stamp = PagePinCounts::kNoStamp;
  LockedRanges locked;
  Status status = count(range, &locked, &stamp);
  if (status != Status::kOk) return status;
  status = lock_pages(range, locked, bits(access & kWriting) != 0);
  if (status != Status::kOk) {
    Released ignored;  // left_locked_bytes_ counts unpins alone
    (void)release(range, stamp, &ignored);
  } else if (note != nullptr) {
    std::memcpy(note, &stamp, sizeof stamp);
  }
  return status;
}

bool MlockRegistrar::being_unlocked(MemoryRange range) const noexcept {
  for (const PendingUnlock* one = unlocking_; one != nullptr; one = one->next) {
    if (one->range.overlaps(range)) return true;
  }
  return false;
}

Status MlockRegistrar::count(MemoryRange range, LockedRanges* locked, uint64_t* stamp) noexcept {
  MutexLock lock(mu_);
  uint64_t deadline_ns = 0;
  while (being_unlocked(range)) {
    if (deadline_ns == 0) deadline_ns = now_ns() + kUnlockPatienceNs;
    if (unlocked_.wait_until(mu_, deadline_ns) || now_ns() < deadline_ns) continue;
    return fail(Status::kNotReady,
                "mlock: another thread has been unlocking pages of [0x%llx, +%zu) for %llu s: "
                "pin again later",
                ull(range.addr), range.len, ull(kUnlockPatienceNs / 1'000'000'000u));
  }
  if (counts_ == nullptr) counts_.reset(new (std::nothrow) Counts);
  if (counts_ == nullptr) return fail_no_counts(range);
  settle_pending();
  PagePinCounts& counts = counts_->of;
  counts.each_not_own(range,
                      [&](MemoryRange run) { locked->find(calls_, run, traits_.granule_bytes); });
  if (!counts.reserve(range, locked->size())) return fail_no_counts(range);
  *stamp = counts.add(range);  // ends the mark of kept pages that were unlocked since
  for (const auto& locked_part : *locked) counts.keep(locked_part.range);
  return Status::kOk;
}

Status MlockRegistrar::lock_pages(MemoryRange range, const LockedRanges& locked,
                                  bool writing) noexcept {
  int error = 0;
  uintptr_t at = range.addr;
  for (const auto& [locked_part, whole] : locked) {
    if (locked_part.addr != at) error = lock_own({at, locked_part.addr - at}, writing);
    // Without populate() locking is what makes pages resident.
    if (error == 0 && (!whole || !can_populate_)) error = lock_with(false, locked_part);
    if (error != 0) return explain_lock(error, range);
    at = locked_part.end();
  }
  if (at != range.end()) error = lock_own({at, range.end() - at}, writing);
  if (error != 0) return explain_lock(error, range);
  const bool is_resident = !on_fault_ && locked.size() == 0;
  if (!can_populate_ || (is_resident && !writing)) return Status::kOk;
  error = retried([&] { return calls_.populate(range, writing); });
  return error == 0 ? Status::kOk : explain_populate(error, range, writing);
}

// A mapping gets its reverse map (anon_vma) when a page of it is first written. Locking divides the mappings
// at both ends of the part: parts that get one each afterwards never join again, those of a mapping that had
// one do. What fails here fails again below.
int MlockRegistrar::lock_own(MemoryRange part, bool writing) noexcept {
  const size_t page_bytes = traits_.granule_bytes;
  if (can_populate_ && writing) {
    (void)calls_.populate({part.addr, page_bytes}, true);
    if (part.len != page_bytes) (void)calls_.populate({part.end() - page_bytes, page_bytes}, true);
  }
  return lock_with(on_fault_, part);
}

// munlock stops at the first hole, so memory with holes takes one call per mapped run.
int MlockRegistrar::unlock_pages(MemoryRange range, uint32_t impatient, int depth) noexcept {
  const int error = unlock(range, impatient);
  // Below the first level the range was mapped, but other threads may have unmapped parts meanwhile.
  if (error != ENOMEM || (depth > 0 && is_mapped(range))) return error;
  if (depth == kMaxDepth) return unlock_each_page(range, impatient);
  struct Work {
    MlockRegistrar* self;
    uint32_t impatient;
    int depth;
    int worst;
  } work{this, impatient, depth + 1, 0};
  const auto each = [](void* context, MemoryRange run) {
    auto* w = static_cast<Work*>(context);
    const int failed = w->self->unlock_pages(run, w->impatient, w->depth);
    if (failed != 0) w->worst = failed;
  };
  return calls_.mapped(range, each, &work) == 0 ? work.worst : unlock_each_page(range, impatient);
}

// Fallback if the kernel cannot report the mappings, or if they keep changing.
int MlockRegistrar::unlock_each_page(MemoryRange range, uint32_t impatient) noexcept {
  const size_t page_bytes = traits_.granule_bytes;
  for (uintptr_t page = range.addr; page < range.end(); page += page_bytes) {
    const int error = unlock({page, page_bytes}, impatient);
    if (error != 0 && error != ENOMEM) return error;
  }
  return 0;
}

bool MlockRegistrar::release(MemoryRange range, uint64_t stamp, Released* released) noexcept {
  const SignalsBlocked blocked;
  std::optional<PagePinCounts> zero;
  PendingUnlock mine{};
  uint32_t impatient = 0;
  {
    MutexLock lock(mu_);
    settle_pending();
    if (counts_ == nullptr || !counts_->of.covers(range)) return false;
    zero.emplace(&counts_->nodes);
    counts_->of.remove_to(range, &*zero, stamp);
    released->left_locked += counts_->of.take_left_bytes();
    if (zero->intervals() == 0) {
      counts_->nodes.trim();
      return true;
    }
    mine = {zero->bounds(), unlocking_};
    unlocking_ = &mine;
    // A report that gave up before has been noted in the counts.
    impatient = impatient_.load(std::memory_order_acquire);
    begin_unlock(&*zero);
  }
  const bool leaves_locked = all_is_locked();
  zero->each([&](MemoryRange unused) noexcept {
    if (leaves_locked) {
      released->left_locked += unused.len;
      return;
    }
    const int failed = unlock_pages(unused, impatient);
    if (failed != 0) released->error = failed;
  });
  // Before the mutex is taken: its holder may wait for a release of memory, which waits for the report.
  unlocks_.fetch_sub(1, std::memory_order_acq_rel);
  MutexLock lock(mu_);
  zero->clear();  // here, because the nodes' pool is the mutex's
  counts_->nodes.trim();
  PendingUnlock** link = &unlocking_;
  while (*link != &mine) link = &(*link)->next;
  *link = mine.next;
  unlocked_.notify_all();
  return true;
}

UnpinResult MlockRegistrar::unpin(MemoryRange range, const std::byte* note) noexcept {
  uint64_t stamp = PagePinCounts::kNoStamp;
  if (note != nullptr) std::memcpy(&stamp, note, sizeof stamp);
  Released released;
  if (!range.valid() || !release(range, stamp, &released)) {
    (void)fail(Status::kBroken, "mlock: [0x%llx, +%zu) is not all pinned", ull(range.addr),
               range.len);
    return UnpinResult::kBroken;
  }
  left_locked_bytes_.fetch_add(released.left_locked, std::memory_order_relaxed);
  if (released.error == 0) return UnpinResult::kDone;
  (void)fail(Status::kBroken, "munlock of [0x%llx, +%zu) failed: %s", ull(range.addr), range.len,
             errno_text(released.error));
  return UnpinResult::kBroken;
}

void MlockRegistrar::settle_pending(PagePinCounts* more) noexcept {
  if (!pending_ranges_.any()) return;
  PagePinCounts* counts = counts_ == nullptr ? nullptr : &counts_->of;
  const auto note = [counts, more](MemoryRange range) {
    if (counts != nullptr) counts->must_note_unmapped(range);
    if (more != nullptr) more->must_note_unmapped(range);
  };
  pending_ranges_.take(
      note, [] {}, [&] { note(kEverything); });
}

// A report that added_meanwhile() misses is added later, and then sees the unlocking. Noting one allocates,
// so no unlocking may be waited for meanwhile.
void MlockRegistrar::begin_unlock(PagePinCounts* ranges) noexcept {
  for (;;) {
    settle_pending(ranges);
    unlocks_.fetch_add(1, std::memory_order_acq_rel);
    if (!pending_ranges_.added_meanwhile()) return;
    unlocks_.fetch_sub(1, std::memory_order_acq_rel);
  }
}

// The caller of a hooked function continues, or gets its memory, after this: an unlocking that has begun must
// not reach the next memory at these addresses. The thread that unlocks waits for no other thread in the
// library, and no signal handler interrupts it. But it may be stopped, or wait for the kernel. Then it
// unlocks no further range, except in a call of munlock() that it has entered: its unpin returns kBroken.
void MlockRegistrar::unmapped(MemoryRange range) noexcept {
  bool noted = false;
  bool waits = true;
  if (lock_briefly(mu_)) {
    noted = counts_ == nullptr || counts_->of.note_unmapped(range);
    waits = !noted || being_unlocked(range);
    mu_.unlock();
  }
  if (!noted) pending_ranges_.add(range);
  uint64_t deadline_ns = 0;
  for (int tries = 0; waits && unlocks_.load(std::memory_order_acquire) != 0; ++tries) {
    tries < kUnlockYields ? (void)sched_yield() : uncancelled::sleep_ns(kUnlockNapNs);
    if (deadline_ns == 0) deadline_ns = now_ns() + report_patience_ns_;
    if (now_ns() >= deadline_ns) {
      impatient_.fetch_add(1, std::memory_order_release);
      return;
    }
    if (!mu_.try_lock()) continue;
    waits = being_unlocked(range);
    mu_.unlock();
  }
}

// The child of a fork inherits no locks.
void MlockRegistrar::forget_in_child() noexcept {
  mu_.reset_in_child();
  unlocked_.reset_in_child();
  unlocking_ = nullptr;
  pending_ranges_.reset_in_child();
  unlocks_.store(0, std::memory_order_relaxed);
  // Leaked, because freeing is not async-signal-safe and another thread may have been inside.
  (void)counts_.release();
}

}  // namespace

std::unique_ptr<Registrar> make_mlock_registrar(Status* status, const MlockCalls& calls,
                                                uint64_t report_patience_ns) noexcept {
  std::unique_ptr<MlockRegistrar> registrar(new (std::nothrow)
                                                MlockRegistrar(calls, report_patience_ns));
  if (registrar == nullptr) {
    *status = fail(Status::kResource,
                   "out of memory for the mlock registrar: free memory, or raise ulimit -v");
    return nullptr;
  }
  *status = registrar->start();
  if (*status != Status::kOk) return nullptr;
  return registrar;
}

}  // namespace hydrant
