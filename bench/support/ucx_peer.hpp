// UCX's registration cache as a peer, by the same calls as UCX's own transports. It has their default
// settings (no limit on regions or bytes), but without memory events: the domains beside it have no watcher
// either, so coherence is left to the caller in both.
#pragma once

#if HYDRANT_HAVE_UCX

#include "bench/support/ucx_rcache.hpp"

#include <cstddef>
#include <cstdint>
#include <dlfcn.h>
#include <string>

namespace hydrant::bench {

// The registration calls behind a UcxCache. The default does nothing.
class UcxRegistration {
 public:
  virtual ~UcxRegistration() = default;
  virtual bool pin(void* /*addr*/, size_t /*len*/, uint32_t* /*slot*/) { return true; }
  virtual void unpin(uint32_t /*slot*/) {}
};

// A ucs_rcache. Threads: get() and put() from any thread, as for ucs_rcache itself.
class UcxCache {
 public:
  struct Region {
    ucs_rcache_region_t super;  // must come first: UCX hands out pointers to it
    uint32_t slot;
  };

  explicit UcxCache(UcxRegistration* registration, UcxLimits limits = UcxLimits::kNone)
      : registration_(registration), limits_(limits) {
    static const ucs_rcache_ops_t ops = ucx_operations(&UcxCache::reg, &UcxCache::dereg);
    const ucs_rcache_params_t params = ucx_params(sizeof(Region), &ops, this, limits);
    if (ucs_rcache_create(&params, "bench", nullptr, &cache_) != UCS_OK) cache_ = nullptr;
  }
  UcxCache(const UcxCache&) = delete;
  UcxCache& operator=(const UcxCache&) = delete;
  // UCX 1.23 walks its list of recent regions in the end, which has no end once two threads have used a cache
  // with limits.
  ~UcxCache() {
    if (cache_ != nullptr && limits_ == UcxLimits::kNone) ucs_rcache_destroy(cache_);
  }

  bool works() const { return cache_ != nullptr; }
  uint64_t registrations() const { return registrations_; }

  // Takes a hold, or returns nullptr.
  Region* get(void* addr, size_t len) {
    ucs_rcache_region_t* region = nullptr;
    if (ucx_get(cache_, addr, len, &region) != UCS_OK) return nullptr;
    return reinterpret_cast<Region*>(region);
  }
  void put(Region* region) { ucs_rcache_region_put(cache_, &region->super); }
  // Drops the region from the cache, and the caller's hold on it.
  void invalidate(Region* region) {
    ucs_rcache_region_invalidate(
        cache_, &region->super, [](void*) {}, nullptr);
    put(region);
  }

 private:
  static UcxCache* self(void* context) { return static_cast<UcxCache*>(context); }
  static ucs_status_t reg(void* context, ucs_rcache_t*, void*, ucs_rcache_region_t* region,
                          uint16_t) {
    const uintptr_t start = region->super.start;
    const bool pinned =
        self(context)->registration_->pin(reinterpret_cast<void*>(start), region->super.end - start,
                                          &reinterpret_cast<Region*>(region)->slot);
    if (pinned) __atomic_fetch_add(&self(context)->registrations_, 1, __ATOMIC_RELAXED);
    return pinned ? UCS_OK : UCS_ERR_IO_ERROR;
  }
  static void dereg(void* context, ucs_rcache_t*, ucs_rcache_region_t* region) {
    self(context)->registration_->unpin(reinterpret_cast<Region*>(region)->slot);
  }

  UcxRegistration* registration_;
  UcxLimits limits_;
  ucs_rcache_t* cache_ = nullptr;
  uint64_t registrations_ = 0;
};

// Path of the measured library, for the output's context.
inline std::string ucx_library() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(&ucs_rcache_create), &info) == 0) return "unknown";
  return info.dli_fname == nullptr ? "unknown" : info.dli_fname;
}

}  // namespace hydrant::bench

#endif  // HYDRANT_HAVE_UCX
