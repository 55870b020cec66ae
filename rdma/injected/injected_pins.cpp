// Registers memory for the injected network, and checks the rights of keys. The registrar over this table is
// at the end.
#include "rdma/injected/injected_pins.hpp"

#include "firehose/base/errno_text.hpp"
#include "firehose/base/machine/machine_limits.hpp"
#include "firehose/base/uncancelled.hpp"

#include <algorithm>
#include <cerrno>
#include <new>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

namespace hydrant {
namespace {

constexpr Access kWriting = Access::kLocalWrite | Access::kRemoteWrite | Access::kRemoteAtomic;
constexpr int kRetries = 16;

void* pointer(uintptr_t addr) noexcept { return reinterpret_cast<void*>(addr); }
bool passes(int error) noexcept { return error == EAGAIN || error == EINTR; }

// Direct system calls: sanitizers replace the libc functions by ones that lock nothing.
int lock(MemoryRange range) noexcept {
  return syscall(SYS_mlock, range.addr, range.len) == 0 ? 0 : errno;
}
int unlock(MemoryRange range) noexcept {
  return syscall(SYS_munlock, range.addr, range.len) == 0 ? 0 : errno;
}
int populate(MemoryRange range, bool writing) noexcept {
  const int advice = writing ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
  return madvise(pointer(range.addr), range.len, advice) == 0 ? 0 : errno;
}
// MS_ASYNC on Linux only checks whether all of the range is mapped.
bool is_mapped(MemoryRange range) noexcept {
  return uncancelled::msync(pointer(range.addr), range.len, MS_ASYNC) == 0;
}

// A random start, so that processes do not share registration numbers.
uint64_t random_start() noexcept {
  uint64_t start = 0;
  if (syscall(SYS_getrandom, &start, sizeof start, 0) != static_cast<long>(sizeof start))
    start = now_ns() ^ static_cast<uint64_t>(getpid()) << 40;
  return start;
}

}  // namespace

InjectedPins::InjectedPins(const Limits& limits, Mutex& wire) noexcept
    : limits_(limits), wire_(wire) {}

Status InjectedPins::open(const Limits& limits, Mutex& wire,
                          std::unique_ptr<InjectedPins>* pins) noexcept {
  std::unique_ptr<InjectedPins> made(new (std::nothrow) InjectedPins(limits, wire));
  if (made == nullptr) return fail(Status::kResource, "no memory for the injected network's pins");
  if (const Status status = made->init(); status != Status::kOk) return status;
  *pins = std::move(made);
  return Status::kOk;
}

Status InjectedPins::init() noexcept {
  void* memory = mmap(nullptr, sizeof(Record) * kMax, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  slots_.reset(new (std::nothrow) Slot[kMax]);
  if (memory == MAP_FAILED || slots_ == nullptr)
    return fail(Status::kResource, "no memory for the injected network's registrations");
  // Zeroed memory is an array of empty records.
  records_ = static_cast<Record*>(memory);
  process_ = getpid();
  const MachineLimits machine = read_machine_limits();
  traits_.name = "injected";
  traits_.key_bytes = sizeof(InjectedKey);
  traits_.granule_bytes = machine.page_bytes;
  traits_.max_regions = kMax;
  traits_.exports = true;
  traits_.export_bytes = kInjectedBlobBytes;
  if (!limits_.is_fake && !machine.memlock_lifted && machine.memlock_bytes != kUnlimited) {
    traits_.max_charge_bytes = machine.memlock_bytes;
    traits_.charge_scope = ChargeScope::kProcess;
  }
  if (limits_.bytes != 0 && limits_.bytes <= traits_.max_charge_bytes) {
    traits_.max_charge_bytes = limits_.bytes;
    traits_.charge_scope = ChargeScope::kDevice;
  }
  void* page = mmap(nullptr, traits_.granule_bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return fail(Status::kResource, "no memory to try a pin on");
  can_populate_ = populate({reinterpret_cast<uintptr_t>(page), traits_.granule_bytes}, true) == 0;
  munmap(page, traits_.granule_bytes);
  const MutexLock guard(mu_);
  nonce_state_ = random_start();
  return Status::kOk;
}

InjectedPins::~InjectedPins() {
  if (records_ != nullptr) munmap(records_, sizeof(Record) * kMax);
}

// splitmix64: each state yields a different number.
uint64_t InjectedPins::next_nonce() noexcept {
  uint64_t z = 0;
  while (z == 0) {
    z = nonce_state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    z ^= z >> 31;
  }
  return z;
}

// ---- pins ----

Status InjectedPins::admit(MemoryRange range, Access access) noexcept {
  const uintptr_t mask = traits_.granule_bytes - 1;
  if (!range.valid() || range.end() == 0 || ((range.addr | range.len) & mask) != 0) {
    return fail(Status::kBadArg, "the injected network pins whole pages, not [0x%llx, +%zu)",
                ull(range.addr), range.len);
  }
  if (!includes(traits_.supported, access))
    return fail(Status::kBadArg, "the injected network knows no such rights: %#x", bits(access));
  if (range.len > traits_.max_charge_bytes) {
    return fail(Status::kResource, "%zu bytes are more than may ever be pinned here: %llu, by %s",
                range.len, ull(traits_.max_charge_bytes),
                traits_.charge_scope == ChargeScope::kDevice ? "HYDRANT_INJECT's pins=SIZE"
                                                             : "the memlock limit (ulimit -l)");
  }
  if (limits_.bytes != 0 &&
      (limits_.bytes < pinned_bytes_ || range.len > limits_.bytes - pinned_bytes_)) {
    return fail(Status::kNotReady,
                "no room for %zu bytes beside the %llu that are pinned: HYDRANT_INJECT allows "
                "pins=%llu",
                range.len, ull(pinned_bytes_), ull(limits_.bytes));
  }
  if (free_ == kNoSlot && used_ == kMax)
    return fail(Status::kNotReady, "all %u registrations of the injected network are taken", kMax);
  return Status::kOk;
}

Status InjectedPins::lock_pages(MemoryRange range, Access access) noexcept {
  const bool writing = bits(access & kWriting) != 0;
  int error = can_populate_ ? EAGAIN : 0;
  for (int i = 0; i < kRetries && passes(error); ++i) error = populate(range, writing);
  if (error == 0) {
    error = EAGAIN;
    for (int i = 0; i < kRetries && passes(error); ++i) error = lock(range);
    if (error == 0) return Status::kOk;
    if (is_mapped(range)) {
      return fail(Status::kNotReady,
                  "%zu bytes cannot be locked now: %s; the memlock limit (ulimit -l) may be used "
                  "up, or HYDRANT_INJECT have pins=fake",
                  range.len, errno_text(error));
    }
  }
  if (passes(error)) {
    return fail(Status::kNotReady, "the kernel has no memory for %zu bytes: %s", range.len,
                errno_text(error));
  }
  return fail(Status::kRefused, "[0x%llx, +%zu) is not all mapped%s", ull(range.addr), range.len,
              writing ? " and writable" : " and readable");
}

int InjectedPins::release_pages(MemoryRange range) noexcept {
  int worst = 0;
  const size_t page_bytes = traits_.granule_bytes;
  page_counts_->remove(range, [&worst, page_bytes](MemoryRange uncovered) noexcept {
    int error = unlock(uncovered);
    // munlock stops at the first hole: pages behind it need calls of their own.
    for (uintptr_t page = uncovered.addr; error == ENOMEM && page < uncovered.end();
         page += page_bytes) {
      const int of_page = unlock({page, page_bytes});
      if (of_page != ENOMEM) worst = std::max(worst, of_page);
    }
    if (error != ENOMEM) worst = std::max(worst, error);
  });
  return worst;
}

Status InjectedPins::pin(uint32_t owner, MemoryRange range, Access access,
                         std::byte* key) noexcept {
  const MutexLock guard(mu_);
  if (const Status status = admit(range, access); status != Status::kOk) return status;
  if (!limits_.is_fake) {
    if (page_counts_ == nullptr) page_counts_ = std::make_unique<InjectedPageCounts>();
    page_counts_->add(range);
    if (const Status status = lock_pages(range, access); status != Status::kOk) {
      // Undoes the lock of the part that was locked.
      (void)release_pages(range);
      return status;
    }
  }
  uint32_t index = free_;
  if (index != kNoSlot) {
    free_ = slots_[index].next;
  } else {
    index = used_++;
  }
  slots_[index] = {owner, kNoSlot};
  pinned_bytes_ += range.len;
  Record& record = records_[index];
  const uint64_t nonce = next_nonce();
  record.addr.store(range.addr, std::memory_order_release);
  record.len.store(range.len, std::memory_order_release);
  record.access.store(bits(access), std::memory_order_release);
  record.nonce.store(nonce, std::memory_order_release);
  InjectedKey{index, nonce, range, bits(access), InjectedKey::kLocal}.store(key);
  return Status::kOk;
}

InjectedPins::Record* InjectedPins::find(const InjectedKey& key, MemoryRange range) const noexcept {
  if (key.kind != InjectedKey::kLocal || key.record >= kMax || key.nonce == 0) return nullptr;
  Record& record = records_[key.record];
  const bool is_it = record.nonce.load(std::memory_order_acquire) == key.nonce &&
                     record.addr.load(std::memory_order_acquire) == range.addr &&
                     record.len.load(std::memory_order_acquire) == range.len;
  return is_it ? &record : nullptr;
}

// The order matters: first the key dies, then copies that use it end, then the pages are released.
int InjectedPins::end_registration(uint32_t index) noexcept {
  Record& record = records_[index];
  const MemoryRange range{record.addr.load(std::memory_order_relaxed),
                          record.len.load(std::memory_order_relaxed)};
  record.nonce.store(0, std::memory_order_seq_cst);
  if (!is_child_) {
    const MutexLock copies_have_ended(wire_);
  }
  record.addr.store(0, std::memory_order_release);
  record.len.store(0, std::memory_order_release);
  record.access.store(0, std::memory_order_release);
  pinned_bytes_ -= range.len;
  slots_[index] = {0, free_};
  free_ = index;
  return limits_.is_fake ? 0 : release_pages(range);
}

UnpinResult InjectedPins::unpin(uint32_t owner, MemoryRange range, const std::byte* key) noexcept {
  const InjectedKey wanted = InjectedKey::load(key);
  const MutexLock guard(mu_);
  if (find(wanted, range) == nullptr || slots_[wanted.record].owner != owner) {
    (void)fail(Status::kBroken, "[0x%llx, +%zu) is not pinned with this key", ull(range.addr),
               range.len);
    return UnpinResult::kBroken;
  }
  const int error = end_registration(static_cast<uint32_t>(wanted.record));
  if (error == 0) return UnpinResult::kDone;
  (void)fail(Status::kBroken, "munlock of [0x%llx, +%zu) failed: %s", ull(range.addr), range.len,
             errno_text(error));
  return UnpinResult::kBroken;
}

void InjectedPins::unpin_all(uint32_t owner) noexcept {
  const MutexLock guard(mu_);
  for (uint32_t i = 0; i < used_; ++i) {
    if (slots_[i].owner == owner && records_[i].nonce.load(std::memory_order_relaxed) != 0)
      (void)end_registration(i);
  }
}

Status InjectedPins::export_key(MemoryRange range, const std::byte* key, std::byte* blob) noexcept {
  InjectedKey live = InjectedKey::load(key);
  // The range may be a part of the registration, as with an adapter; the key is the registration's.
  const Record* record = find(live, live.range);
  if (record == nullptr || !live.range.covers(range)) {
    return fail(Status::kBadArg, "[0x%llx, +%zu) is not pinned with this key", ull(range.addr),
                range.len);
  }
  live.record = reinterpret_cast<uintptr_t>(record);
  encode_injected_key(live, blob);
  return Status::kOk;
}

// The child of a fork inherits no memory locks. Peers do not read its copies of the records, and it continues
// with other registration numbers.
void InjectedPins::forget_in_child() noexcept {
  if (process_ == getpid()) return;
  process_ = getpid();
  is_child_ = true;
  mu_.reset_in_child();
  for (uint32_t i = 0; i < used_; ++i) records_[i].nonce.store(0, std::memory_order_relaxed);
  used_ = 0;
  free_ = kNoSlot;
  pinned_bytes_ = 0;
  nonce_state_ = random_start();
  // Leaked, not freed: freeing is not async-signal-safe, and another thread may have been changing it.
  (void)page_counts_.release();
}

// ---- checks ----

Status InjectedPins::check_local(const InjectedKey& key, MemoryRange range,
                                 Access what) const noexcept {
  if (key.kind != InjectedKey::kLocal || key.record >= kMax || key.nonce == 0)
    return fail_literal(Status::kRefused, "this is no key of memory that is pinned here");
  const Record& record = records_[key.record];
  const uint64_t before = record.nonce.load(std::memory_order_seq_cst);
  const MemoryRange pinned{record.addr.load(std::memory_order_acquire),
                           record.len.load(std::memory_order_acquire)};
  const auto access = static_cast<Access>(record.access.load(std::memory_order_acquire));
  // A record that is unpinned during the read does not count.
  if (before != key.nonce || record.nonce.load(std::memory_order_relaxed) != before)
    return fail_literal(Status::kRefused, "a key of this rank whose memory is not pinned any more");
  if (!pinned.covers(range) || !includes(access, what)) {
    return fail(Status::kRefused,
                "a key of this rank, of [0x%llx, +%zu), does not allow %s [0x%llx, +%zu)",
                ull(pinned.addr), pinned.len, what == Access::kLocalRead ? "reading" : "writing",
                ull(range.addr), range.len);
  }
  return Status::kOk;
}

Status InjectedPins::check_remote(const InjectedKey& key, const RecordBytes& record,
                                  MemoryRange range, Access what) noexcept {
  if (record.nonce != key.nonce || key.nonce == 0)
    return fail_literal(Status::kRefused, "a peer's key whose memory is not pinned any more");
  if (record.addr != key.range.addr || record.len != key.range.len || record.access != key.access)
    return fail_literal(Status::kRefused, "a peer's key differs from its registration");
  if (!key.range.covers(range) || !includes(static_cast<Access>(key.access), what)) {
    return fail(Status::kRefused,
                "a peer's key, of [0x%llx, +%zu), does not allow %s [0x%llx, +%zu)",
                ull(key.range.addr), key.range.len,
                what == Access::kRemoteRead ? "reading" : "writing", ull(range.addr), range.len);
  }
  return Status::kOk;
}

// ---- the registrar ----

class InjectedPins::Handle final : public Registrar {
 public:
  Handle(InjectedPins& pins, uint32_t owner) noexcept : pins_(pins), owner_(owner) {}
  ~Handle() override { pins_.unpin_all(owner_); }

  const RegistrarTraits& traits() const noexcept override { return pins_.traits_; }
  Status pin(MemoryRange range, Access access, std::byte* key) noexcept override {
    return pins_.pin(owner_, range, access, key);
  }
  UnpinResult unpin(MemoryRange range, const std::byte* key) noexcept override {
    return pins_.unpin(owner_, range, key);
  }
  Status export_key(MemoryRange range, const std::byte* key, std::byte* blob,
                    size_t* len) noexcept override {
    if (*len < kInjectedBlobBytes) {
      const size_t room = std::exchange(*len, kInjectedBlobBytes);
      return fail(Status::kBadArg, "an exported key needs %zu bytes, there are %zu",
                  kInjectedBlobBytes, room);
    }
    *len = kInjectedBlobBytes;
    return pins_.export_key(range, key, blob);
  }
  Status import_key(const std::byte* blob, size_t len, std::byte* key) noexcept override {
    InjectedKey imported;
    if (const Status status = decode_injected_key(blob, len, &imported); status != Status::kOk)
      return status;
    imported.store(key);
    return Status::kOk;
  }
  void forget_in_child() noexcept override { pins_.forget_in_child(); }

 private:
  InjectedPins& pins_;
  const uint32_t owner_;
};

std::unique_ptr<Registrar> InjectedPins::make_registrar() noexcept {
  uint32_t owner = 0;
  {
    const MutexLock guard(mu_);
    owner = ++owners_;
  }
  std::unique_ptr<Registrar> made(new (std::nothrow) Handle(*this, owner));
  if (made == nullptr) (void)fail(Status::kResource, "no memory for a registrar");
  return made;
}

}  // namespace hydrant
