// Finds the monitor and jemalloc for the shared library, through the dynamic linker. Backend::choose()
// calls it.
#include "firehose/watch/arena/process_symbols.hpp"

#include <cstdio>
#include <cstring>
#include <dlfcn.h>

// Resolved when this library is loaded: finds a libfirehose that was loaded together with it but is not in
// the global scope.
#pragma weak hydrant_monitor

namespace hydrant::arena {
namespace {

constexpr char kLibrary[] = "libhydrant_alloc_jemalloc.so." HYDRANT_ALLOC_SOVERSION;

}  // namespace

const hydrant_monitor_t* find_monitor_symbol() noexcept {
  if (hydrant_monitor != nullptr) return hydrant_monitor(HYDRANT_MONITOR_VERSION);
  using FindMonitor = const hydrant_monitor_t* (*)(uint32_t);
  void* found = dlsym(RTLD_DEFAULT, "hydrant_monitor");
  if (found == nullptr) return nullptr;
  return reinterpret_cast<FindMonitor>(found)(HYDRANT_MONITOR_VERSION);
}

const JemallocTable* find_jemalloc(char* reason, size_t room) noexcept {
  void* table = dlsym(RTLD_DEFAULT, kJemallocSymbol);
  if (table == nullptr) {
    // Searches beside this library first ($ORIGIN). Never unloaded: threads have caches of it.
    void* library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library != nullptr) table = dlsym(library, kJemallocSymbol);
  }
  if (table == nullptr) {
    const char* why = dlerror();
    if (why == nullptr) why = "not found";
    const char* hint =
        std::strstr(why, "static TLS") == nullptr
            ? ""
            : "; link or preload it, or set GLIBC_TUNABLES=glibc.rtld.optional_static_tls=8192";
    (void)std::snprintf(reason, room, "%s%s", why, hint);
    return nullptr;
  }
  const auto* found = static_cast<const JemallocTable*>(table);
  if (found->abi == kJemallocAbi) return found;
  (void)std::snprintf(reason, room, "%s has another version: install both libraries from one build",
                      kLibrary);
  return nullptr;
}

}  // namespace hydrant::arena
