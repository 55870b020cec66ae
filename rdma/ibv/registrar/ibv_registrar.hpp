// The registrar over libibverbs: ibv_reg_mr in a protection domain that the caller brings, or in one of a
// device that the registrar opens itself. It registers memory; queue pairs and completions are not its
// business.
//
// What a verbs registration costs: each page of each registration is charged to RLIMIT_MEMLOCK of this
// process (CAP_IPC_LOCK lifts it), overlapping ones again, and an entry of the device's table.
//
// Threads: as every registrar, all methods from any thread at once; verbs are thread-safe.
// Fork: see forget_in_child(). While the fork protection of libibverbs is active (ibv_fork_init(),
// RDMAV_FORK_SAFE; on kernels that do not copy pinned pages at a fork), registrations may not outlive their
// memory: traits().unpin_before_release. It is asked for once, when the registrar is made.
#pragma once

#include "firehose/base/registrar.hpp"
#include "firehose/base/thread.hpp"
#include "rdma/ibv/device/ibv_device.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

struct ibv_context;
struct ibv_mr;
struct ibv_pd;

namespace hydrant {

// What work requests need. Keys of peers (import_key) have no `mr` and only the rkey; the implicit key has
// no `mr` because nobody but the registrar undoes it.
struct IbvKey {
  ibv_mr* mr = nullptr;
  uint32_t lkey = 0;
  uint32_t rkey = 0;
};

class IbvRegistrar final : public Registrar {
 public:
  // Bytes of an exported key, always the same; ibv_key_blob.hpp has the layout.
  static constexpr size_t kBlobBytes = 32;

  // Registers in `pd`, which stays the caller's and must outlive the registrar.
  // Errors: kBadArg (null), kUnsupported (the device does not answer), kResource (memory). *out is
  // unchanged on failure.
  static Status create(ibv_pd* pd, std::unique_ptr<IbvRegistrar>* out) noexcept;

  // Opens the named device, or the first that can be opened when `device_name` is null or "".
  // Errors: kUnsupported, with a text that says why no device is usable; kResource.
  // Cost: milliseconds; loads the device's provider library.
  static Status open(const char* device_name, std::unique_ptr<IbvRegistrar>* out) noexcept;

  // All pins must be undone before; what is left is reported and stays with the device until exit.
  ~IbvRegistrar() override;
  IbvRegistrar(const IbvRegistrar&) = delete;
  IbvRegistrar& operator=(const IbvRegistrar&) = delete;

  const RegistrarTraits& traits() const noexcept override { return traits_; }
  // So much of what the account allows others will take: no part of max_charge_bytes any more. Before its
  // first use.
  void keep_back(uint64_t bytes) noexcept;

  // Rights that write remotely include the local right to write, as verbs demand.
  // EFAULT, EINVAL and EOPNOTSUPP are kRefused; ENOMEM and EAGAIN kNotReady; others kBroken.
  Status pin(MemoryRange range, Access access, std::byte* key) noexcept override;
  UnpinResult unpin(MemoryRange range, const std::byte* key) noexcept override;

  Status export_key(MemoryRange range, const std::byte* key, std::byte* blob,
                    size_t* len) noexcept override;
  Status import_key(const std::byte* blob, size_t len, std::byte* key) noexcept override;

  // One on-demand registration of the whole address space per set of rights, made when first asked for
  // and kept. Errors: kUnsupported where the device has no implicit on-demand paging for RDMA writes and
  // reads.
  Status implicit_key(Access access, std::byte* key) noexcept override;

  // ibv_reg_dmabuf_mr(), where libibverbs has it. No budget and no cache knows of it.
  Status pin_dmabuf(int fd, uint64_t offset, MemoryRange range, Access access,
                    std::byte* key) noexcept override;

  // Closes the child's copy of the device's descriptor, which would keep the parent's registrations
  // alive. The next pin in the child opens the device again; in a caller's protection domain, which is
  // the parent's, it answers kNotInit.
  void forget_in_child() noexcept override;

  // The device's name ("mlx5_0").
  const char* device_name() const noexcept { return device_name_; }
  // The protection domain in force; null in the child of a fork until its first pin.
  ibv_pd* protection_domain() const noexcept { return pd_.load(std::memory_order_acquire); }

 private:
  static constexpr size_t kAccessSets = 16;

  IbvRegistrar() noexcept = default;
  Status read_traits(ibv_context* context) noexcept;
  Status open_device(const char* wanted) noexcept HYDRANT_REQUIRES(mu_);
  Status current_pd(ibv_pd** pd) noexcept;
  // Whether `range` and `access` can be had of this device at all.
  Status check_request(MemoryRange range, Access access) const noexcept;
  Status register_range(void* addr, size_t len, unsigned flags, ibv_mr** mr) noexcept;

  // Constant once the factory functions have returned.
  RegistrarTraits traits_;
  char device_name_[64] = "";
  bool owns_device_ = false;
  bool implicit_odp_ = false;
  // Of the device; written again where it is opened again, before pd_ is.
  DeviceDescriptors descriptors_;
  // Written under mu_ (release), read by pins without it (acquire): what it points to is complete.
  std::atomic<ibv_pd*> pd_{nullptr};

  // Opening the device again after a fork, and the implicit keys. Held across verbs calls, never while
  // calling the cache.
  Mutex mu_;
  ibv_context* context_ HYDRANT_GUARDED_BY(mu_) = nullptr;  // only if owns_device_
  ibv_mr* implicit_[kAccessSets] HYDRANT_GUARDED_BY(mu_) = {};
};

}  // namespace hydrant
