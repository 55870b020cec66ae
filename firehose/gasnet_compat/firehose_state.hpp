// The state behind include/firehose.h: one hydrant_fh per firehose_init, a domain of the public C API
// with the client's move callback as its registrar. Read docs/firehose_h.md next.
//
// This file and its implementation use the pin cache only through include/hydrant/pin_cache.h: they are
// a client of it like any other.
#pragma once

#include <hydrant/firehose_shim.h>
#include <hydrant/pin_cache.h>

#include "firehose/gasnet_compat/firehose_limits.hpp"
#include "firehose/gasnet_compat/firehose_registrar.hpp"
#include "firehose/gasnet_compat/firehose_remote.hpp"
#include "firehose/gasnet_compat/firehose_rules.hpp"

#include <cstdint>
#include <memory>

// The type is a C name, so it lives outside the namespace.
//
// Thread safety: immutable between init and fini, but for the registrar and the remote part, which lock for
// themselves.
struct hydrant_fh {
  hydrant_fh(const hydrant_fh_client_t& for_client, size_t bucket_bytes) noexcept
      : client(for_client), bucket(bucket_bytes), registrar(for_client, bucket_bytes) {}

  hydrant_fh_client_t client;
  size_t bucket;
  hydrant::CompatRegistrar registrar;
  hydrant::CompatLimits limits;
  hydrant_domain_t domain = 0;
  std::unique_ptr<hydrant::CompatRemote> remote;  // null: local pins only
  uintptr_t max_pinnable = 0;
  uint64_t prepinned_bytes = 0;
  uint32_t flags = 0;  // FIREHOSE_INIT_FLAG_*
  bool verbose = false;
};

namespace hydrant {

// FIREHOSE_INIT_FLAG_*, which belong to a header that cannot be included without a client.
inline constexpr uint32_t kCompatLocalOnly = 0x01;
inline constexpr uint32_t kCompatUnpinOnFini = 0x02;
inline constexpr uint32_t kCompatMayReinit = 0x04;

// The one access that firehose.h knows: GASNet's regions are written locally and used remotely.
inline constexpr uint32_t kCompatAccess =
    HYDRANT_LOCAL_WRITE | HYDRANT_REMOTE_READ | HYDRANT_REMOTE_WRITE;

// Aborts: this firehose cannot serve that call.
[[noreturn]] void abort_wrong_call(const hydrant_fh_t* fh, uint32_t shape,
                                   const char* function) noexcept;

inline void check_compat_call(const hydrant_fh_t* fh, uint32_t shape, CompatCall call,
                              const char* function) noexcept {
  if (fh == nullptr || fh->client.shape != shape) abort_wrong_call(fh, shape, function);
#if HYDRANT_DEBUG
  check_call_rules(call, function);
#else
  static_cast<void>(call);
#endif
}

// Creates the domain of `fh`. Prepinned regions are firehose_region_t of the client's layout. Aborts if
// the arguments are unusable. (firehose_init.cpp)
void create_compat_domain(hydrant_fh& fh, size_t max_regions, size_t max_region_size,
                          const void* prepinned, size_t num_prepinned) noexcept;

// Waits until the range can be pinned; aborts if it never can. (firehose_wait.cpp)
hydrant_pin_t wait_for_compat_pin(hydrant_fh& fh, uintptr_t addr, size_t len) noexcept;

// Prints a line on standard error, at any HYDRANT_LOG: GASNET_FIREHOSE_VERBOSE requests it.
[[gnu::format(printf, 1, 2)]] void compat_print(const char* format, ...) noexcept;

}  // namespace hydrant
