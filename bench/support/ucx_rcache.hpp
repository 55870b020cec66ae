// UCX's registration cache (ucs_rcache of libucs) through its installed header, <ucs/memory/rcache.h>, whose
// interface is not stable: what differs between 1.13 and the releases from 1.18 to 1.23 is here.
#pragma once

#if HYDRANT_HAVE_UCX

#include <climits>
#include <cstddef>
#include <cstdint>
#include <sys/mman.h>

// UCX's C headers contain constructs that C++ compilers warn about.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#pragma GCC diagnostic ignored "-Wold-style-cast"
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wcast-align"
extern "C" {
#include <ucs/memory/rcache.h>
}
#pragma GCC diagnostic pop

namespace hydrant::bench {

// The newer releases call merge() for regions that they join. A template, so that the member need not exist.
template <typename Operations = ucs_rcache_ops_t>
Operations ucx_operations(decltype(Operations::mem_reg) reg,
                          decltype(Operations::mem_dereg) dereg) {
  Operations made{};
  made.mem_reg = reg;
  made.mem_dereg = dereg;
  made.dump_region = [](void*, ucs_rcache_t*, ucs_rcache_region_t*, char* text, size_t room) {
    if (room != 0) text[0] = '\0';
  };
  if constexpr (requires { made.merge; }) {
    made.merge = [](void*, ucs_rcache_t*, void*, ucs_rcache_region_t*) {};
  }
  return made;
}

// kNone: the default of UCX's transports. kUnreached: limits on regions and bytes that no benchmark reaches;
// each use is then entered in a list of recent ones.
enum class UcxLimits { kNone, kUnreached };

// The settings of UCX's transports, without memory events. `operations` has to outlive the cache.
template <typename Params = ucs_rcache_params_t>
Params ucx_params(size_t region_bytes, const ucs_rcache_ops_t* operations, void* context,
                  UcxLimits limits) {
  Params made{};
  made.region_struct_size = region_bytes;
  if constexpr (requires { made.max_alignment; }) {
    made.alignment = UCS_RCACHE_MIN_ALIGNMENT;
    made.max_alignment = 4096;
  }
  made.ucm_event_priority = 1000;
  made.ops = operations;
  made.context = context;
  made.max_regions = ULONG_MAX;
  made.max_size = SIZE_MAX;
  made.max_unreleased = SIZE_MAX;
  if (limits == UcxLimits::kUnreached) {
    constexpr unsigned kNeedsLruLock = 1u << 3;  // no flag in 1.13 and 1.18, which always lock
    made.max_regions = 1ul << 30;
    made.max_size = size_t{1} << 50;
    made.flags = kNeedsLruLock;
  }
  return made;
}

// The newer releases take an alignment with each request.
template <auto kGet = &ucs_rcache_get>
ucs_status_t ucx_get(ucs_rcache_t* cache, void* addr, size_t len, ucs_rcache_region_t** region) {
  constexpr int kAccess = PROT_READ | PROT_WRITE;
  if constexpr (requires { kGet(cache, addr, len, kAccess, nullptr, region); }) {
    return kGet(cache, addr, len, kAccess, nullptr, region);
  } else {
    return kGet(cache, addr, len, UCS_RCACHE_MIN_ALIGNMENT, kAccess, nullptr, region);
  }
}

}  // namespace hydrant::bench

#endif  // HYDRANT_HAVE_UCX
