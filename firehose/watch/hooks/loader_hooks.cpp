// Hooks dlopen(), dlmopen() and dlclose(), which map and unmap memory by internal calls of the loader that no
// hook sees.
//
// They run constructors and destructors of the program, whose own calls are hooked. The loader unmaps memory
// but does not remove pages, so its thread does not count as inside a release meanwhile; its record says that
// the loader may unmap something. Constructors that use new static memory through the cache run before the
// sync.
#include "firehose/watch/hooks/loader_call.hpp"
#include "firehose/watch/hooks/real_calls.hpp"
#include "firehose/watch/hooks/watched_call.hpp"

using hydrant::hooks::acquired_somewhere;
using hydrant::hooks::call_on_behalf;
using hydrant::hooks::LoaderCall;
using hydrant::hooks::real_loader;
using hydrant::hooks::this_thread;
using hydrant::hooks::Thread;

namespace {

// While it exists, its thread counts as inside the loader. Its destructor returns when every cache has
// forgotten what the loader unmapped.
class LoaderCallScope {
 public:
  LoaderCallScope() : thread_(this_thread()) { add(1); }
  ~LoaderCallScope() {
    hydrant::hooks::settle_if_needed();
    add(UINT32_MAX);
  }
  LoaderCallScope(const LoaderCallScope&) = delete;
  LoaderCallScope& operator=(const LoaderCallScope&) = delete;

 private:
  // Only the thread itself writes it.
  void add(uint32_t n) {
    __atomic_store_n(&thread_->loading, __atomic_load_n(&thread_->loading, __ATOMIC_RELAXED) + n,
                     __ATOMIC_RELEASE);
  }
  Thread* thread_;
};

void* as_pointer(uintptr_t word) { return reinterpret_cast<void*>(word); }

template <typename Function>
LoaderCall as_loader_call(Function* function) {
  return reinterpret_cast<LoaderCall>(reinterpret_cast<uintptr_t>(function));
}

}  // namespace

// The caller matters for paths with a slash, too: loaded objects inherit its RPATH.
void* hook_dlopen(const char* file, int mode) {
  const LoaderCallScope loading;
  void* got = as_pointer(
      call_on_behalf(__builtin_return_address(0), as_loader_call(real_loader.dlopen),
                     reinterpret_cast<uintptr_t>(file), static_cast<uintptr_t>(mode), 0));
  if (got != nullptr) acquired_somewhere();
  return got;
}
HYDRANT_EXPORT_HOOK(dlopen);

void* hook_dlmopen(long name_space, const char* file, int mode) {
  const LoaderCallScope loading;
  void* got =
      as_pointer(call_on_behalf(__builtin_return_address(0), as_loader_call(real_loader.dlmopen),
                                static_cast<uintptr_t>(name_space),
                                reinterpret_cast<uintptr_t>(file), static_cast<uintptr_t>(mode)));
  if (got != nullptr) acquired_somewhere();
  return got;
}
HYDRANT_EXPORT_HOOK(dlmopen);

int hook_dlclose(void* handle) {
  const LoaderCallScope loading;
  return real_loader.dlclose(handle);
}
HYDRANT_EXPORT_HOOK(dlclose);
