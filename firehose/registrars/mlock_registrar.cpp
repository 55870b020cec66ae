#include "firehose/registrars/mlock_registrar.hpp"

#include "firehose/base/thread.hpp"
#include "firehose/registrars/memlock.hpp"
#include "firehose/registrars/page_counts.hpp"

#include <cerrno>
#include <cstring>
#include <new>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace hydrant {
namespace {

constexpr int kRetries = 16;
constexpr Access kWriting = Access::kLocalWrite | Access::kRemoteWrite | Access::kRemoteAtomic;

void* pointer(uintptr_t addr) noexcept { return reinterpret_cast<void*>(addr); }

unsigned long long ull(uint64_t value) noexcept { return value; }

// The system calls themselves: the sanitizers replace the libc functions by ones that lock nothing.
// 0 or a positive errno.
int lock_range(MemoryRange range) noexcept {
  return syscall(SYS_mlock, range.addr, range.len) == 0 ? 0 : errno;
}
int unlock_range(MemoryRange range) noexcept {
  return syscall(SYS_munlock, range.addr, range.len) == 0 ? 0 : errno;
}

// MS_ASYNC does nothing on Linux but to look whether all of the range is mapped.
bool is_mapped(MemoryRange range) noexcept {
  return msync(pointer(range.addr), range.len, MS_ASYNC) == 0;
}

// A positive errno of mlock(), after its lock has been taken back.
Status explain(int error, MemoryRange range) noexcept {
  if (error != ENOMEM && error != EPERM && error != EAGAIN) {
    return fail(Status::kBroken, "mlock of [0x%llx, +%zu) failed: %s", ull(range.addr), range.len,
                std::strerror(error));
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
              ull(range.addr), range.len, std::strerror(error));
}

// errno of munlock(), 0 if all went well. What is not mapped any more took its lock with it.
int unlock_pages(MemoryRange range, size_t page_bytes) noexcept {
  int error = unlock_range(range);
  if (error != ENOMEM) return error;
  // munlock stops at the first hole: what lies behind one needs a call of its own.
  for (uintptr_t page = range.addr; page < range.end(); page += page_bytes) {
    error = unlock_range({page, page_bytes});
    if (error != 0 && error != ENOMEM) return error;
  }
  return 0;
}

class MlockRegistrar final : public Registrar {
 public:
  MlockRegistrar() noexcept = default;
  ~MlockRegistrar() override;

  Status start() noexcept;

  const RegistrarTraits& traits() const noexcept override { return traits_; }
  Status pin(MemoryRange range, Access access, std::byte* key) noexcept override;
  UnpinResult unpin(MemoryRange range, const std::byte* key) noexcept override;
  void forget_in_child() noexcept override HYDRANT_NO_TSA;

 private:
  Status lock_pages(MemoryRange range, Access access) noexcept;
  // Takes one count back and unlocks what nobody wants. errno of munlock, 0 if all went well.
  int release_locked(MemoryRange range) noexcept HYDRANT_REQUIRES(mu_);

  RegistrarTraits traits_;
  bool can_populate_ = false;
  // The counts, and munlock(): a count that falls to 0 and the unlocking are one step, or a pin that
  // comes between would lose its lock. mlock() runs outside, after its count is up.
  Mutex mu_;
  std::unique_ptr<PageCounts> counts_ HYDRANT_GUARDED_BY(mu_);  // made by the first pin
};

MlockRegistrar::~MlockRegistrar() {
  MutexLock lock(mu_);
  if (counts_ == nullptr) return;
  counts_->clear([](MemoryRange gone) noexcept { (void)unlock_range(gone); });
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
  can_populate_ = madvise(page, traits_.granule_bytes, MADV_POPULATE_WRITE) == 0;
  const uint64_t start_ns = now_ns();
  const int error = lock_range({reinterpret_cast<uintptr_t>(page), traits_.granule_bytes});
  const uint64_t pinned_ns = now_ns();
  munmap(page, traits_.granule_bytes);
  traits_.pin_base_ns = static_cast<uint32_t>(pinned_ns - start_ns);
  // A full account is no reason to give up: what fills it may go away.
  if (error == 0 || (error == ENOMEM && limit.bytes >= traits_.granule_bytes)) return Status::kOk;
  char advice[256];
  describe_memlock(limit, advice, sizeof advice);
  return fail(Status::kUnsupported, "mlock does not work here: %s; %s", std::strerror(error),
              advice);
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
  void* start = pointer(range.addr);
  int error = EAGAIN;
  for (int i = 0; i < kRetries && (error == EAGAIN || error == EINTR); ++i) {
    error = lock_range(range);
  }
  if (error != 0) return explain(error, range);
  if (!can_populate_ || bits(access & kWriting) == 0) return Status::kOk;
  // ENOMEM and the like cannot be: the pages are locked already. EINVAL: not writable.
  if (madvise(start, range.len, MADV_POPULATE_WRITE) == 0 || errno != EINVAL) return Status::kOk;
  return fail(Status::kRefused, "mlock: [0x%llx, +%zu) is not all writable", ull(range.addr),
              range.len);
}

int MlockRegistrar::release_locked(MemoryRange range) noexcept {
  int worst = 0;
  const size_t page_bytes = traits_.granule_bytes;
  counts_->remove(range, [&worst, page_bytes](MemoryRange gone) noexcept {
    const int error = unlock_pages(gone, page_bytes);
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
             std::strerror(error));
  return UnpinResult::kBroken;
}

// The child of a fork inherits no locks.
void MlockRegistrar::forget_in_child() noexcept {
  mu_.reset_in_child();
  // Forgotten, not freed: freeing is not async-signal-safe, and another thread may have been inside.
  (void)counts_.release();
}

}  // namespace

std::unique_ptr<Registrar> make_mlock_registrar(Status* status) noexcept {
  std::unique_ptr<MlockRegistrar> registrar(new (std::nothrow) MlockRegistrar);
  if (registrar == nullptr) {
    *status = fail(Status::kResource, "no memory for the mlock registrar");
    return nullptr;
  }
  *status = registrar->start();
  if (*status != Status::kOk) return nullptr;
  return registrar;
}

}  // namespace hydrant
