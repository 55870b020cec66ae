// The registrar over libibverbs: ibv_reg_mr() in a protection domain of the caller, or in that of a device
// that the registrar opens itself. It registers memory; it has no queue pairs and no completion queues.
//
// Cost of a registration: the kernel charges each of its pages to RLIMIT_MEMLOCK of this process
// (CAP_IPC_LOCK lifts the limit), pages of overlapping registrations each time; and it takes an entry of the
// device's table.
//
// Threads: as every registrar, all methods from any thread at once; verbs are thread-safe.
// Fork: see forget_in_child(). While the fork protection of libibverbs is active (ibv_fork_init(),
// RDMAV_FORK_SAFE; on kernels that do not copy pinned pages at a fork), registrations may not outlive their
// memory: traits().unpin_before_release, which is set once, when the registrar is created. The first
// registration warns if it was activated in between.
#pragma once

#include "firehose/base/registrar.hpp"
#include "firehose/base/thread.hpp"
#include "firehose/registrars/ibv/ibv_device.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

struct ibv_context;
struct ibv_mr;
struct ibv_pd;

namespace hydrant {

// The key of a registration, for work requests. A peer's key (import_key()) has only the rkey, and no `mr`.
// The implicit key has no `mr` because only the registrar deregisters it.
struct IbvKey {
  ibv_mr* mr = nullptr;
  uint32_t lkey = 0;
  uint32_t rkey = 0;
};

// IBV_ACCESS_* of a registration with these rights, those that verbs demand with them included.
unsigned verbs_access(Access access) noexcept;

// How a registrar registers; all off by default.
struct IbvRegistrarOptions {
  bool relaxed_ordering = false;  // the device may reorder its writes to memory
  // Registrations pin nothing: the device faults pages in. Not charged to RLIMIT_MEMLOCK.
  bool on_demand = false;
  // All memory that will be pinned lies in huge pages of hugetlbfs. Ranges are whole huge pages.
  bool huge_pages = false;
};

class IbvRegistrar final : public Registrar {
 public:
  // Bytes of an exported key, always the same; ibv_key_blob.hpp has the layout.
  static constexpr size_t kBlobBytes = 32;

  // Registers in `pd`, which the caller owns and which must outlive the registrar.
  // Errors: kBadArg: `pd` is null; kUnsupported: the device cannot be queried, or lacks an option; kResource:
  // memory. *out is unchanged on failure.
  static Status create(ibv_pd* pd, std::unique_ptr<IbvRegistrar>* out,
                       const IbvRegistrarOptions& options = {}) noexcept;

  // Opens the named device; if `device_name` is null or "", the first that can be opened.
  // Errors: kUnsupported, with the reason why no device is usable, or which option it lacks; kResource.
  // Cost: milliseconds; loads the device's provider library.
  static Status open(const char* device_name, std::unique_ptr<IbvRegistrar>* out,
                     const IbvRegistrarOptions& options = {}) noexcept;

  // All pins must be undone before. Remaining registrations are logged, and last until the process exits.
  ~IbvRegistrar() override;
  IbvRegistrar(const IbvRegistrar&) = delete;
  IbvRegistrar& operator=(const IbvRegistrar&) = delete;

  const RegistrarTraits& traits() const noexcept override { return traits_; }
  // Reduces max_charge_bytes by `bytes`, to no less than 0: other registrations of the process may use them.
  // Must be called before the registrar is used.
  void keep_back(uint64_t bytes) noexcept;

  // A remote write right implies the local write right, as verbs demand.
  // EFAULT, EINVAL and EOPNOTSUPP are kRefused; ENOMEM and EAGAIN kNotReady; others kBroken.
  Status pin(MemoryRange range, Access access, std::byte* key) noexcept override;
  UnpinResult unpin(MemoryRange range, const std::byte* key) noexcept override;

  Status export_key(MemoryRange range, const std::byte* key, std::byte* blob,
                    size_t* len) noexcept override;
  Status import_key(const std::byte* blob, size_t len, std::byte* key) noexcept override;

  // Returns the key of an on-demand registration of the whole address space, one for each set of rights. The
  // first call creates it, and it is kept. Errors: kUnsupported: the device has no implicit on-demand paging
  // for RDMA writes and reads.
  Status implicit_key(Access access, std::byte* key) noexcept override;

  // Calls ibv_reg_dmabuf_mr(), if libibverbs has it. Neither a budget nor a cache counts the registration.
  Status pin_dmabuf(int fd, uint64_t offset, MemoryRange range, Access access,
                    std::byte* key) noexcept override;

  // Closes the child's copy of the device's descriptor, which would keep the parent's registrations
  // alive. The next pin in the child opens the device again; over a protection domain of the caller, which
  // belongs to the parent, it fails with kNotInit.
  void forget_in_child() noexcept override;

  // The device's name ("mlx5_0").
  const char* device_name() const noexcept { return device_name_; }
  // The protection domain in force; null in the child of a fork until its first pin.
  ibv_pd* protection_domain() const noexcept { return pd_.load(std::memory_order_acquire); }

 private:
  static constexpr size_t kAccessSets = 16;

  IbvRegistrar() noexcept = default;
  Status read_traits(ibv_context* context, const IbvRegistrarOptions& options) noexcept;
  Status open_device(const char* wanted) noexcept HYDRANT_REQUIRES(mu_);
  Status current_pd(ibv_pd** pd) noexcept;
  // Whether the device supports `access` and a registration of this length.
  Status check_request(MemoryRange range, Access access) const noexcept;
  // Whether the descriptors that libibverbs uses for `context` still are the device's.
  bool is_usable(ibv_context* context) const noexcept;
  Status register_range(void* addr, size_t len, unsigned flags, ibv_mr** mr) noexcept;
  void note_first_registration() noexcept;

  // Constant once the factory functions have returned.
  RegistrarTraits traits_;
  char device_name_[64] = "";
  bool owns_device_ = false;
  bool implicit_odp_ = false;
  // IBV_ACCESS_* of the options, part of every registration of host memory.
  unsigned option_flags_ = 0;
  // Only if owns_device_; when a child opens the device again, they are written before pd_.
  DeviceDescriptors descriptors_;
  CommandDescriptor borrowed_;  // only otherwise
  // Stored with release under mu_, and loaded with acquire by pins without it, so that they see a complete
  // object.
  std::atomic<ibv_pd*> pd_{nullptr};
  std::atomic<bool> has_registered_{false};

  // Guards the reopening of the device after a fork, and the implicit keys. Held across verbs calls, never
  // while calling the cache.
  Mutex mu_;
  ibv_context* context_ HYDRANT_GUARDED_BY(mu_) = nullptr;  // only if owns_device_
  ibv_mr* implicit_[kAccessSets] HYDRANT_GUARDED_BY(mu_) = {};
};

}  // namespace hydrant
