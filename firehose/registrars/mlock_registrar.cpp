#include "firehose/registrars/mlock_registrar.hpp"

#include "firehose/base/errno_text.hpp"
#include "firehose/base/thread.hpp"
#include "firehose/registrars/memlock.hpp"
#include "firehose/registrars/page_counts.hpp"

#include <cerrno>
#include <new>
#include <sys/mman.h>
#include <unistd.h>

namespace hydrant {
namespace {

constexpr int kRetries = 16;
constexpr Access kWriting = Access::kLocalWrite | Access::kRemoteWrite | Access::kRemoteAtomic;

void* pointer(uintptr_t addr) noexcept { return reinterpret_cast<void*>(addr); }

unsigned long long ull(uint64_t value) noexcept { return value; }

// MS_ASYNC does nothing on Linux but to look whether all of the range is mapped.
bool is_mapped(MemoryRange range) noexcept {
  return msync(pointer(range.addr), range.len, MS_ASYNC) == 0;
}

// A positive errno of locking `range`.
Status explain_lock(int error, MemoryRange range) noexcept {
  if (error != ENOMEM && error != EPERM && error != EAGAIN) {
    return fail(Status::kBroken, "mlock of [0x%llx, +%zu) failed: %s", ull(range.addr), range.len,
                errno_text(error));
  }
  if (!is_mapped(range)) {
    return fail(Status::kRefused, "mlock: [0x%llx, +%zu) is not all mapped", ull(range.addr),
                range.len);
  }
  const MemlockLimit limit = read_memlock_limit();
  const uint64_t usable = limit.usable_bytes();
  const uint64_t locked = read_process_bytes("VmLck");
  char advice[256];
  describe_memlock(limit, advice, sizeof advice);
  if (range.len > usable) {
    return fail(Status::kResource, "mlock: %zu bytes are more than may ever be locked: %s",
                range.len, advice);
  }
  if (locked > usable - range.len) {
    return fail(Status::kNotReady, "mlock: no budget to lock %zu bytes beside %llu: %s", range.len,
                ull(locked), advice);
  }
  if (error == EAGAIN) {
    return fail(Status::kNotReady, "mlock: the kernel has no memory for %zu bytes (EAGAIN)",
                range.len);
  }
  return fail(Status::kRefused,
              "mlock: [0x%llx, +%zu) cannot be made resident (%s): no access rights, "
              "a device, or too many mappings",
              ull(range.addr), range.len, errno_text(error));
}

// A positive errno of making `range` resident once it is locked.
Status explain_populate(int error, MemoryRange range, bool writing) noexcept {
  if (!is_mapped(range)) {
    return fail(Status::kRefused, "mlock: [0x%llx, +%zu) is not all mapped", ull(range.addr),
                range.len);
  }
  if (error == EINVAL) {
    return fail(Status::kRefused, "mlock: [0x%llx, +%zu) is not all %s", ull(range.addr), range.len,
                writing ? "writable" : "readable");
  }
  if (error == ENOMEM || error == EAGAIN || error == EINTR) {
    return fail(Status::kNotReady, "mlock: the kernel has no memory for %zu bytes (%s)", range.len,
                errno_text(error));
  }
  return fail(Status::kRefused, "mlock: [0x%llx, +%zu) cannot be made resident: %s",
              ull(range.addr), range.len, errno_text(error));
}

bool passes(int error) noexcept { return error == EAGAIN || error == EINTR; }

class MlockRegistrar final : public Registrar {
 public:
  explicit MlockRegistrar(const MlockCalls& calls) noexcept : calls_(calls) {}
  ~MlockRegistrar() override;

  Status start() noexcept;

  const RegistrarTraits& traits() const noexcept override { return traits_; }
  Status pin(MemoryRange range, Access access, std::byte* key) noexcept override;
  UnpinResult unpin(MemoryRange range, const std::byte* key) noexcept override;
  void forget_in_child() noexcept override HYDRANT_NO_TSA;

 private:
  int try_on(MemoryRange page) noexcept;
  Status lock_pages(MemoryRange range, Access access) noexcept;
  // errno of munlock, 0 if all went well. What is not mapped any more took its lock with it.
  int unlock_pages(MemoryRange range) noexcept;
  // Takes one count back and unlocks what nobody wants. errno of munlock, 0 if all went well.
  int release_locked(MemoryRange range) noexcept HYDRANT_REQUIRES(mu_);

  const MlockCalls calls_;
  RegistrarTraits traits_;
  // What the kernel can do; settled by start(). Locking makes resident, too, unless it is on fault.
  bool can_populate_ = false;
  bool on_fault_ = false;
  // The counts, and munlock(): a count that falls to 0 and the unlocking are one step, or a pin that
  // comes between would lose its lock. mlock() runs outside, after its count is up, and over all of the
  // range: whoever counted a page first may not have locked it yet, or may fail.
  Mutex mu_;
  std::unique_ptr<PageCounts> counts_ HYDRANT_GUARDED_BY(mu_);  // made by the first pin
};

MlockRegistrar::~MlockRegistrar() {
  MutexLock lock(mu_);
  if (counts_ == nullptr) return;
  counts_->clear([this](MemoryRange gone) noexcept { (void)unlock_pages(gone); });
}

Status MlockRegistrar::start() noexcept {
  const MemlockLimit limit = read_memlock_limit();
  traits_.name = "mlock";
  traits_.granule_bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  traits_.max_charge_bytes = limit.usable_bytes();
  traits_.charge_scope =
      limit.usable_bytes() == UINT64_MAX ? ChargeScope::kNone : ChargeScope::kProcess;
  traits_.divisible = true;
  void* page = mmap(nullptr, traits_.granule_bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return fail(Status::kResource, "no memory to try mlock on");
  const int error = try_on({reinterpret_cast<uintptr_t>(page), traits_.granule_bytes});
  munmap(page, traits_.granule_bytes);
  // A full account is no reason to give up: what fills it may go away.
  if (error == 0 || (error == ENOMEM && limit.bytes >= traits_.granule_bytes)) return Status::kOk;
  char advice[256];
  describe_memlock(limit, advice, sizeof advice);
  return fail(Status::kUnsupported, "mlock does not work here: %s; %s", errno_text(error), advice);
}

// Finds out what the kernel can do and how long it takes. The errno of locking a page.
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

Status MlockRegistrar::pin(MemoryRange range, Access access, std::byte* /*key*/) noexcept {
  const uintptr_t mask = traits_.granule_bytes - 1;
  if (!range.valid() || range.end() == 0 || (range.addr & mask) != 0 || (range.len & mask) != 0) {
    return fail(Status::kBadArg, "mlock: [0x%llx, +%zu) is not a range of whole pages",
                ull(range.addr), range.len);
  }
  {
    MutexLock lock(mu_);
    if (counts_ == nullptr) counts_ = std::make_unique<PageCounts>();
    counts_->add(range);
  }
  const Status status = lock_pages(range, access);
  if (status == Status::kOk) return status;
  MutexLock lock(mu_);
  (void)release_locked(range);
  return status;
}

Status MlockRegistrar::lock_pages(MemoryRange range, Access access) noexcept {
  int error = EAGAIN;
  for (int i = 0; i < kRetries && passes(error); ++i) error = calls_.lock(range, on_fault_);
  if (error != 0) return explain_lock(error, range);
  const bool writing = bits(access & kWriting) != 0;
  if (!can_populate_ || (!on_fault_ && !writing)) return Status::kOk;
  error = EAGAIN;
  for (int i = 0; i < kRetries && passes(error); ++i) error = calls_.populate(range, writing);
  return error == 0 ? Status::kOk : explain_populate(error, range, writing);
}

int MlockRegistrar::unlock_pages(MemoryRange range) noexcept {
  int error = calls_.unlock(range);
  if (error != ENOMEM) return error;
  // munlock stops at the first hole: what lies behind one needs a call of its own.
  const size_t page_bytes = traits_.granule_bytes;
  for (uintptr_t page = range.addr; page < range.end(); page += page_bytes) {
    error = calls_.unlock({page, page_bytes});
    if (error != 0 && error != ENOMEM) return error;
  }
  return 0;
}

int MlockRegistrar::release_locked(MemoryRange range) noexcept {
  int worst = 0;
  counts_->remove(range, [this, &worst](MemoryRange gone) noexcept {
    const int error = unlock_pages(gone);
    if (error != 0) worst = error;
  });
  return worst;
}

UnpinResult MlockRegistrar::unpin(MemoryRange range, const std::byte* /*key*/) noexcept {
  int error = 0;
  bool pinned = false;
  if (range.valid()) {
    MutexLock lock(mu_);
    pinned = counts_ != nullptr && counts_->covers(range);
    if (pinned) error = release_locked(range);
  }
  if (!pinned) {
    (void)fail(Status::kBroken, "mlock: [0x%llx, +%zu) is not all pinned", ull(range.addr),
               range.len);
    return UnpinResult::kBroken;
  }
  if (error == 0) return UnpinResult::kDone;
  (void)fail(Status::kBroken, "munlock of [0x%llx, +%zu) failed: %s", ull(range.addr), range.len,
             errno_text(error));
  return UnpinResult::kBroken;
}

// The child of a fork inherits no locks.
void MlockRegistrar::forget_in_child() noexcept {
  mu_.reset_in_child();
  // Forgotten, not freed: freeing is not async-signal-safe, and another thread may have been inside.
  (void)counts_.release();
}

}  // namespace

std::unique_ptr<Registrar> make_mlock_registrar(Status* status, const MlockCalls& calls) noexcept {
  std::unique_ptr<MlockRegistrar> registrar(new (std::nothrow) MlockRegistrar(calls));
  if (registrar == nullptr) {
    *status = fail(Status::kResource, "no memory for the mlock registrar");
    return nullptr;
  }
  *status = registrar->start();
  if (*status != Status::kOk) return nullptr;
  return registrar;
}

}  // namespace hydrant
