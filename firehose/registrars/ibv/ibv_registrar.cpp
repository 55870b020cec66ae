// Registers memory with ibv_reg_mr for the pin cache. ibv_device.cpp finds and opens devices;
// rail_registrar.cpp uses an IbvRegistrar for each device.
#include "firehose/registrars/ibv/ibv_registrar.hpp"

#include "firehose/base/config/config_grammar.hpp"
#include "firehose/base/errno_text.hpp"
#include "firehose/base/log.hpp"
#include "firehose/base/machine/machine_limits.hpp"
#include "firehose/base/uncancelled.hpp"
#include "firehose/registrars/ibv/fork_protection.hpp"
#include "firehose/registrars/ibv/ibv_device.hpp"
#include "firehose/registrars/ibv/ibv_key_blob.hpp"

#include <infiniband/verbs.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>
#include <sys/resource.h>
#include <unistd.h>
#include <utility>

// Exists in libibverbs from rdma-core 34 on. Weak, so that a program also runs with an older library: null
// there.
extern "C" ibv_mr* ibv_reg_dmabuf_mr(ibv_pd* pd, uint64_t offset, size_t length, uint64_t iova,
                                     int fd, int access) __attribute__((weak));

namespace hydrant {
namespace {

static_assert(IbvRegistrar::kBlobBytes == kIbvBlobBytes);

IbvKey load_key(const std::byte* key) noexcept {
  IbvKey loaded;
  std::memcpy(&loaded, key, sizeof loaded);
  return loaded;
}

void store_key(const IbvKey& key, std::byte* out) noexcept { std::memcpy(out, &key, sizeof key); }

const char* memlock_text(char* text, size_t room) noexcept {
  rlimit limit{};
  const bool known = getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return format_size_rounded(known ? limit.rlim_cur : kUnlimited, text, room);
}

// Translates the error of a registration into a status for the cache.
Status registration_failed(int error, const void* addr, size_t len, const char* device) noexcept {
  const auto first = static_cast<unsigned long>(reinterpret_cast<uintptr_t>(addr));
  char memlock[32];
  switch (error) {
    case EFAULT:
    case EINVAL:
    case EOPNOTSUPP:  // long-term pinning is forbidden: direct-access (DAX) files
      return fail(
          Status::kRefused,
          "%s does not register [%#lx, +%zu) with this right: %s (unmapped, read-only for a right "
          "that writes, or memory that cannot be pinned)",
          device, first, len, errno_text(error));
    case ENOMEM:
    case EAGAIN:
      return fail(
          Status::kNotReady,
          "%s has no room to register %zu bytes: %s. The memlock limit is %s, charged per "
          "registration (raise it with ulimit -l or in /etc/security/limits.conf); or the device's "
          "table is full",
          device, len, errno_text(error), memlock_text(memlock, sizeof memlock));
    case EPERM:
      return fail(
          Status::kBroken,
          "%s: this process may not pin memory at all: %s. The memlock limit is %s (ulimit -l)",
          device, errno_text(error), memlock_text(memlock, sizeof memlock));
    default:
      return fail(Status::kBroken, "%s: ibv_reg_mr([%#lx, +%zu)) failed: %s (errno %d)", device,
                  first, len, errno_text(error), error);
  }
}

}  // namespace

unsigned verbs_access(Access access) noexcept {
  unsigned flags = 0;
  if (includes(access, Access::kLocalWrite)) flags |= IBV_ACCESS_LOCAL_WRITE;
  if (includes(access, Access::kRemoteRead)) flags |= IBV_ACCESS_REMOTE_READ;
  // The verbs specification demands local write for both of these.
  if (includes(access, Access::kRemoteWrite))
    flags |= IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE;
  if (includes(access, Access::kRemoteAtomic)) {
    flags |= IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_LOCAL_WRITE;
  }
  return flags;
}

Status IbvRegistrar::create(ibv_pd* pd, std::unique_ptr<IbvRegistrar>* out,
                            const IbvRegistrarOptions& options) noexcept {
  if (pd == nullptr || pd->context == nullptr) {
    return fail(Status::kBadArg, "no protection domain to register in");
  }
  std::unique_ptr<IbvRegistrar> made(new (std::nothrow) IbvRegistrar);
  if (!made) return fail(Status::kResource, "no memory for a registrar");
  const Status status = made->read_traits(pd->context, options);
  if (status != Status::kOk) return status;
  made->borrowed_.note(*pd->context);
  made->pd_.store(pd, std::memory_order_release);
  *out = std::move(made);
  return Status::kOk;
}

Status IbvRegistrar::open(const char* device_name, std::unique_ptr<IbvRegistrar>* out,
                          const IbvRegistrarOptions& options) noexcept {
  std::unique_ptr<IbvRegistrar> made(new (std::nothrow) IbvRegistrar);
  if (!made) return fail(Status::kResource, "no memory for a registrar");
  made->owns_device_ = true;
  const MutexLock lock(made->mu_);
  Status status = made->open_device(device_name != nullptr ? device_name : "");
  if (status != Status::kOk) return status;
  status = made->read_traits(made->context_, options);
  if (status != Status::kOk) return status;
  *out = std::move(made);
  return Status::kOk;
}

Status IbvRegistrar::open_device(const char* wanted) noexcept {
  OpenDevice opened;
  const Status status = open_ibv_device(wanted, &opened);
  if (status != Status::kOk) return status;
  context_ = opened.context;
  descriptors_.note(*context_);
  pd_.store(opened.pd, std::memory_order_release);
  return Status::kOk;
}

Status IbvRegistrar::read_traits(ibv_context* context,
                                 const IbvRegistrarOptions& options) noexcept {
  DeviceAttributes attributes;
  const Status status = query_ibv_device(context, &attributes);
  if (status != Status::kOk) return status;
  std::snprintf(device_name_, sizeof device_name_, "%s", attributes.name);
  implicit_odp_ = attributes.implicit_odp;
  if (options.on_demand && !attributes.explicit_odp) {
    return fail(Status::kUnsupported,
                "%s has no on-demand paging for RDMA writes and reads of reliable connections: "
                "register without it",
                device_name_);
  }
  const MachineLimits machine = read_machine_limits();
  if (options.huge_pages && machine.huge_page_bytes == 0)
    return fail(Status::kUnsupported, "%s: this kernel has no huge pages", device_name_);
  if (options.relaxed_ordering) option_flags_ |= IBV_ACCESS_RELAXED_ORDERING;
  if (options.on_demand) option_flags_ |= IBV_ACCESS_ON_DEMAND;
  if (options.huge_pages) option_flags_ |= IBV_ACCESS_HUGETLB;

  traits_.name = "ibv";
  traits_.key_bytes = sizeof(IbvKey);
  traits_.granule_bytes = options.huge_pages ? machine.huge_page_bytes : machine.page_bytes;
  const size_t granule = traits_.granule_bytes;
  traits_.max_region_bytes =
      std::max<size_t>(attributes.max_region_bytes & ~(granule - 1), granule);
  traits_.max_regions = attributes.max_regions;
  const bool lifted = machine.memlock_lifted || options.on_demand;
  traits_.max_charge_bytes = lifted ? kUnlimited : machine.memlock_bytes;
  const bool charged = traits_.max_charge_bytes != kUnlimited;
  traits_.charge_scope = charged ? ChargeScope::kProcess : ChargeScope::kNone;
  traits_.supported = attributes.atomics
                          ? Access::kAll
                          : Access::kLocalWrite | Access::kRemoteRead | Access::kRemoteWrite;
  traits_.exports = true;
  traits_.export_bytes = kBlobBytes;
  traits_.unpin_before_release = fork_protection() == ForkProtection::kActive;
  return Status::kOk;
}

void IbvRegistrar::keep_back(uint64_t bytes) noexcept {
  uint64_t& most = traits_.max_charge_bytes;
  if (most != kUnlimited) most -= std::min(most, bytes);
}

// A client may have released a protection domain of its own before: it is read only for a registration, with
// which the client cannot have released it.
IbvRegistrar::~IbvRegistrar() {
  const MutexLock lock(mu_);
  if (context_ != nullptr) (void)descriptors_.keep_ours(context_);
  for (ibv_mr* mr : implicit_) {
    if (mr != nullptr && (!is_usable(mr->context) || uncancelled::call(ibv_dereg_mr, mr) != 0)) {
      log_warning("%s: an implicit registration could not be undone", device_name_);
    }
  }
  if (context_ != nullptr) close_ibv_device({context_, protection_domain()});
}

bool IbvRegistrar::is_usable(ibv_context* context) const noexcept {
  return owns_device_ ? descriptors_.keep_ours(context) : borrowed_.is_open(context);
}

Status IbvRegistrar::current_pd(ibv_pd** pd) noexcept {
  *pd = protection_domain();
  if (*pd != nullptr) [[likely]] {
    if (is_usable((*pd)->context)) [[likely]]
      return Status::kOk;
    return device_is_closed(device_name_);
  }
  if (!owns_device_) {
    return fail(
        Status::kNotInit,
        "the protection domain belongs to the process that forked this one: open the device "
        "here and create another registrar");
  }
  const MutexLock lock(mu_);
  if (protection_domain() == nullptr) {
    const Status status = open_device(device_name_);
    if (status != Status::kOk) {
      // The device worked in the parent, so a device that is unusable now has failed: kBroken.
      return add_context(status == Status::kUnsupported ? Status::kBroken : status,
                         "opening the device again after a fork");
    }
  }
  *pd = protection_domain();
  return Status::kOk;
}

Status IbvRegistrar::register_range(void* addr, size_t len, unsigned flags, ibv_mr** mr) noexcept {
  ibv_pd* pd = nullptr;
  const Status status = current_pd(&pd);
  if (status != Status::kOk) return status;
  errno = 0;
  ibv_mr* made = uncancelled::call([&] { return ibv_reg_mr(pd, addr, len, flags); });
  if (made == nullptr) return registration_failed(errno, addr, len, device_name_);
  if (!has_registered_.load(std::memory_order_relaxed)) note_first_registration();
  *mr = made;
  return Status::kOk;
}

// From the first registration of a process on, its fork protection does not change any more.
void IbvRegistrar::note_first_registration() noexcept {
  if (has_registered_.exchange(true, std::memory_order_relaxed)) return;
  if (traits_.unpin_before_release || fork_protection() != ForkProtection::kActive) return;
  log_warning(
      "%s: ibv_fork_init() was called after the registrar was created, which does not end "
      "registrations before their memory: call it earlier, or data may be lost at forks",
      device_name_);
}

Status IbvRegistrar::check_request(MemoryRange range, Access access) const noexcept {
  if (range.len > traits_.max_region_bytes) {
    return fail(Status::kResource, "%s registers at most %zu bytes at once, not %zu", device_name_,
                traits_.max_region_bytes, range.len);
  }
  if (!includes(traits_.supported, access)) {
    return fail(Status::kRefused, "%s has no remote atomic operations", device_name_);
  }
  return Status::kOk;
}

Status IbvRegistrar::pin(MemoryRange range, Access access, std::byte* key) noexcept {
  Status status = check_request(range, access);
  if (status != Status::kOk) return status;
  ibv_mr* mr = nullptr;
  auto* addr = reinterpret_cast<void*>(range.addr);
  status = register_range(addr, range.len, verbs_access(access) | option_flags_, &mr);
  if (status != Status::kOk) return status;
  store_key({mr, mr->lkey, mr->rkey}, key);
  return Status::kOk;
}

Status IbvRegistrar::pin_dmabuf(int fd, uint64_t offset, MemoryRange range, Access access,
                                std::byte* key) noexcept {
  Status status = check_request(range, access);
  if (status != Status::kOk) return status;
  const uint64_t in_page = traits_.granule_bytes - 1;
  if (range.len > UINTPTR_MAX - range.addr || range.len > UINT64_MAX - offset) {
    return fail(Status::kBadArg,
                "%zu bytes from offset %#llx on of a dma-buf, named %#lx: offset or address wraps "
                "around",
                range.len, static_cast<unsigned long long>(offset),
                static_cast<unsigned long>(range.addr));
  }
  if (range.len == 0 || ((offset | range.addr | range.len) & in_page) != 0) {
    return fail(
        Status::kBadArg,
        "%zu bytes from offset %#llx on of a dma-buf, named %#lx: there have to be some, and "
        "all three whole pages of %zu bytes",
        range.len, static_cast<unsigned long long>(offset), static_cast<unsigned long>(range.addr),
        traits_.granule_bytes);
  }
  ibv_pd* pd = nullptr;
  status = current_pd(&pd);
  if (status != Status::kOk) return status;
  errno = ENOSYS;
  ibv_mr* mr = nullptr;
  if (&ibv_reg_dmabuf_mr != nullptr) {
    mr = uncancelled::call(ibv_reg_dmabuf_mr, pd, offset, range.len, range.addr, fd,
                           static_cast<int>(verbs_access(access)));
  }
  if (mr != nullptr) {
    store_key({mr, mr->lkey, mr->rkey}, key);
    return Status::kOk;
  }
  switch (const int error = errno) {
    case ENOSYS:
    case ENOTTY:
    case EOPNOTSUPP:
    case EPROTONOSUPPORT:
      return fail(Status::kUnsupported,
                  "%s does not register memory of other devices: %s. It needs rdma-core 34, Linux "
                  "5.12, and a driver of the adapter that takes dma-bufs",
                  device_name_, errno_text(error));
    case EBADF:
    case EINVAL:
      return fail(
          Status::kBadArg,
          "%s does not register %zu bytes from offset %#llx on of descriptor %d: %s (is it a "
          "dma-buf, and as long as that?)",
          device_name_, range.len, static_cast<unsigned long long>(offset), fd, errno_text(error));
    case EFAULT:
      return fail(Status::kRefused,
                  "%s does not register a dma-buf with this right: %s (a buffer that is exported "
                  "read-only, for a right that writes)",
                  device_name_, errno_text(error));
    case ENOMEM:
    case EAGAIN:
      return fail(Status::kNotReady,
                  "%s has no room to register %zu bytes of a dma-buf: %s. The device's table is "
                  "full, or the kernel has no memory: deregister something and try again",
                  device_name_, range.len, errno_text(error));
    default:
      return fail(Status::kBroken, "%s: ibv_reg_dmabuf_mr([%#lx, +%zu)) failed: %s (errno %d)",
                  device_name_, static_cast<unsigned long>(range.addr), range.len,
                  errno_text(error), error);
  }
}

UnpinResult IbvRegistrar::unpin(MemoryRange range, const std::byte* key) noexcept {
  ibv_mr* mr = load_key(key).mr;
  if (mr == nullptr) {
    static_cast<void>(
        fail(Status::kBadArg, "a key that was imported or is implicit is not unpinned"));
    return UnpinResult::kBroken;
  }
  if (!is_usable(mr->context)) {
    static_cast<void>(device_is_closed(device_name_));
    return UnpinResult::kBroken;
  }
  const int error = uncancelled::call(ibv_dereg_mr, mr);
  if (error == 0) return UnpinResult::kDone;
  static_cast<void>(fail(Status::kBroken, "%s: ibv_dereg_mr([%#lx, +%zu)) failed: %s (errno %d)",
                         device_name_, static_cast<unsigned long>(range.addr), range.len,
                         errno_text(error), error));
  return UnpinResult::kBroken;
}

Status IbvRegistrar::export_key(MemoryRange range, const std::byte* key, std::byte* blob,
                                size_t* len) noexcept {
  if (*len < kBlobBytes) {
    const size_t room = std::exchange(*len, kBlobBytes);
    return fail(Status::kBadArg, "an exported key needs %zu bytes, there are %zu", kBlobBytes,
                room);
  }
  const IbvKey loaded = load_key(key);
  if (loaded.mr == nullptr) {
    return fail(Status::kBadArg, "only a key of memory pinned here can be exported");
  }
  encode_ibv_key({range, loaded.rkey}, blob);
  *len = kBlobBytes;
  return Status::kOk;
}

Status IbvRegistrar::import_key(const std::byte* blob, size_t len, std::byte* key) noexcept {
  IbvKeyBlob decoded;
  const Status status = decode_ibv_key(blob, len, &decoded);
  if (status != Status::kOk) return status;
  store_key({nullptr, 0, decoded.rkey}, key);
  return Status::kOk;
}

Status IbvRegistrar::implicit_key(Access access, std::byte* key) noexcept {
  if (!implicit_odp_) {
    return fail(
        Status::kUnsupported,
        "%s has no key for all of memory: the device or its driver lacks implicit on-demand paging "
        "for RDMA writes and reads",
        device_name_);
  }
  if (!includes(traits_.supported, access)) {
    return fail(Status::kRefused, "%s has no remote atomic operations", device_name_);
  }
  ibv_pd* pd = nullptr;
  Status status = current_pd(&pd);  // before mu_ is locked, because it may lock mu_ itself
  if (status != Status::kOk) return status;
  const MutexLock lock(mu_);
  ibv_mr*& mr = implicit_[bits(access)];
  if (mr == nullptr) {
    errno = 0;
    mr = uncancelled::call([&] {
      return ibv_reg_mr(pd, nullptr, SIZE_MAX, verbs_access(access) | IBV_ACCESS_ON_DEMAND);
    });
    if (mr == nullptr) return registration_failed(errno, nullptr, SIZE_MAX, device_name_);
  }
  store_key({nullptr, mr->lkey, mr->rkey}, key);
  return Status::kOk;
}

void IbvRegistrar::forget_in_child() noexcept {
  mu_.reset_in_child();
  const MutexLock lock(mu_);  // for the thread-safety annotations: the child has a single thread
  if (context_ != nullptr) {
    // ibv_close_device() is not called: it frees memory, which is not safe here, and sends the device
    // commands about objects of the parent. The library's structures are leaked.
    descriptors_.close_in_child(*context_);
  }
  context_ = nullptr;
  std::fill(std::begin(implicit_), std::end(implicit_), nullptr);
  pd_.store(nullptr, std::memory_order_release);
}

}  // namespace hydrant
