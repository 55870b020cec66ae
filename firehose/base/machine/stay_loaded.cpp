// Pins this object in memory with dlopen(RTLD_NODELETE), before threads or signal handlers use its code.
#include "firehose/base/machine/stay_loaded.hpp"

#include "firehose/base/log.hpp"
#include "firehose/base/uncancelled.hpp"

#include <atomic>
#include <dlfcn.h>
#include <link.h>

// Weak, so that a static program does not pull in the loader: it cannot unload anything.
#pragma weak dlopen
#pragma weak dladdr1

namespace hydrant {
namespace {

// Null for the program itself, which is never unloaded, and in static programs.
const char* path_of_object_of(const void* code) noexcept {
  if (&dladdr1 == nullptr || &dlopen == nullptr) return nullptr;
  Dl_info info{};
  void* found = nullptr;
  if (dladdr1(code, &info, &found, RTLD_DL_LINKMAP) == 0 || found == nullptr) return nullptr;
  const char* path = static_cast<const link_map*>(found)->l_name;
  return path != nullptr && *path != '\0' ? path : nullptr;
}

}  // namespace

void keep_loaded(const void* code) noexcept {
  const CancellationDisabled guard;
  const char* path = path_of_object_of(code);
  if (path != nullptr &&
      uncancelled::call(dlopen, path, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE) == nullptr)
    log_debug("cannot keep %s loaded: the program must not unload it with dlclose()", path);
}

void stay_loaded() noexcept {
  static std::atomic<bool> done{false};
  if (done.load(std::memory_order_acquire)) return;
  // No lock: it could deadlock with a thread that loads a library and arrives here. Two concurrent calls are
  // harmless.
  keep_loaded(reinterpret_cast<const void*>(&stay_loaded));
  done.store(true, std::memory_order_release);
}

}  // namespace hydrant
