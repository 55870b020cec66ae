// Finds the real functions with dlsym(RTLD_NEXT): libc's, or those of an allocator or another library of
// hooks that comes after this one.
//
// The first call of any of them finds all. Memory is therefore never taken from one allocator and freed by
// another, however early the first call comes.
#include "firehose/watch/hooks/libc_chunks.hpp"
#include "firehose/watch/hooks/real_calls.hpp"

#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>

// glibc's allocator under names that no library replaces; absent from other C libraries.
#define HYDRANT_LIBC_CALL(name, result, parameters) \
  extern "C" result libc_##name parameters __asm__("__libc_" #name) __attribute__((weak));
HYDRANT_LIBC_CALL(malloc, void*, (size_t))
HYDRANT_LIBC_CALL(calloc, void*, (size_t, size_t))
HYDRANT_LIBC_CALL(realloc, void*, (void*, size_t))
HYDRANT_LIBC_CALL(free, void, (void*))
#undef HYDRANT_LIBC_CALL

namespace hydrant::hooks {
namespace {

// Set while this thread looks the functions up; dlsym() itself must not wait for that when it allocates. It
// allocates only if a lookup fails; the names of the malloc family, which come first, do not fail.
constinit thread_local bool resolving = false;

ssize_t raw_process_madvise(int pid_fd, const iovec* ranges, size_t count, int advice,
                            unsigned flags) {
  constexpr long kNumber = 440;  // on every architecture
  return syscall(kNumber, pid_fd, ranges, count, advice, flags);
}

// The functions that serve a thread's calls while it is resolving.
constexpr RealCalls make_fallback() {
  RealCalls calls = {};
  calls.malloc = libc_malloc;
  calls.calloc = libc_calloc;
  calls.realloc = libc_realloc;
  calls.free = libc_free;
  calls.process_madvise = raw_process_madvise;
  return calls;
}
constinit const RealCalls kFallback = make_fallback();
constinit const RealLoaderCalls kNoLoaderFallback = {};

template <typename Table>
Table& table_of();
template <>
RealCalls& table_of<RealCalls>() {
  return real;
}
template <>
RealLoaderCalls& table_of<RealLoaderCalls>() {
  return real_loader;
}

template <typename Table>
const Table& fallback_in();
template <>
const RealCalls& fallback_in<RealCalls>() {
  return kFallback;
}
template <>
const RealLoaderCalls& fallback_in<RealLoaderCalls>() {
  return kNoLoaderFallback;
}

// The initial value of each member of `real`: resolves all functions, and calls the one.
template <auto Member>
struct First;
template <typename Table, typename Result, typename... Parameters,
          Result (*Table::*Member)(Parameters...)>
struct First<Member> {
  static Result call(Parameters... parameters) {
    if (resolving) {
      if (fallback_in<Table>().*Member == nullptr) __builtin_trap();
      return (fallback_in<Table>().*Member)(parameters...);
    }
    resolve_real_calls();
    Result (*found)(Parameters...) = table_of<Table>().*Member;
    if (found == &First::call) __builtin_trap();  // this C library has no such function
    return found(parameters...);
  }
};

template <auto Member>
struct Resolve;
template <typename Table, typename Function, Function Table::*Member>
struct Resolve<Member> {
  static void from(const char* name) {
    Function found = reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
    if (found == nullptr) found = fallback_in<Table>().*Member;
    if (found != nullptr) __atomic_store_n(&(table_of<Table>().*Member), found, __ATOMIC_RELAXED);
  }
};

constinit bool resolved = false;

}  // namespace

#define HYDRANT_FIRST(name, result, parameters) .name = First<&RealCalls::name>::call,
constinit RealCalls real = {HYDRANT_HOOKED_CALLS(HYDRANT_FIRST)};
#undef HYDRANT_FIRST
#define HYDRANT_FIRST(name, result, parameters) .name = First<&RealLoaderCalls::name>::call,
constinit RealLoaderCalls real_loader = {HYDRANT_HOOKED_LOADER_CALLS(HYDRANT_FIRST)};
#undef HYDRANT_FIRST

bool malloc_is_libcs() { return libc_malloc != nullptr && real.malloc == libc_malloc; }

// Two threads may do it at the same time: they find the same functions.
void resolve_real_calls() {
  if (__atomic_load_n(&resolved, __ATOMIC_ACQUIRE)) return;
  resolving = true;
#define HYDRANT_RESOLVE(name, result, parameters) Resolve<&RealCalls::name>::from(#name);
  HYDRANT_HOOKED_MALLOC_CALLS(HYDRANT_RESOLVE)
  HYDRANT_HOOKED_MAP_CALLS(HYDRANT_RESOLVE)
  HYDRANT_HOOKED_THREAD_CALLS(HYDRANT_RESOLVE)
  HYDRANT_HOOKED_FILE_CALLS(HYDRANT_RESOLVE)
  HYDRANT_HOOKED_USERFAULT_CALLS(HYDRANT_RESOLVE)
#undef HYDRANT_RESOLVE
#define HYDRANT_RESOLVE(name, result, parameters) Resolve<&RealLoaderCalls::name>::from(#name);
  HYDRANT_HOOKED_LOADER_CALLS(HYDRANT_RESOLVE)
#undef HYDRANT_RESOLVE
  resolving = false;
  if (malloc_is_libcs()) note_libc_heap_start();
  __atomic_store_n(&resolved, true, __ATOMIC_RELEASE);
}

}  // namespace hydrant::hooks
