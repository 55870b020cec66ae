// The hooked functions: one list, from which come the table of the real functions, the declarations of the
// hooks, and the exported names.
//
// A hook is called hook_<name> in here and exported as its alias <name>. So a hook's own address is known,
// and no header of libc disagrees about attributes. In the archive for static programs the hooks are exported
// as __wrap_<name>, and the real functions are __real_<name>: the linker's --wrap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <pthread.h>
#include <sys/types.h>
#include <threads.h>

// X(name, result, parameters). mremap always has its fifth parameter, as in libc. If a caller passes only
// four, an undefined value goes to the kernel, as without the hook; the kernel reads it only if the flags say
// so.
#define HYDRANT_HOOKED_MAP_CALLS(X)                                       \
  X(mmap, void*, (void*, size_t, int, int, int, off_t))                   \
  X(munmap, int, (void*, size_t))                                         \
  X(mremap, void*, (void*, size_t, size_t, int, void*))                   \
  X(madvise, int, (void*, size_t, int))                                   \
  X(posix_madvise, int, (void*, size_t, int))                             \
  X(process_madvise, ssize_t, (int, const iovec*, size_t, int, unsigned)) \
  X(remap_file_pages, int, (void*, size_t, int, size_t, int))             \
  X(shmat, void*, (int, const void*, int))                                \
  X(shmdt, int, (const void*))                                            \
  X(brk, int, (void*))                                                    \
  X(sbrk, void*, (intptr_t))

#define HYDRANT_HOOKED_MALLOC_CALLS(X)             \
  X(malloc, void*, (size_t))                       \
  X(calloc, void*, (size_t, size_t))               \
  X(realloc, void*, (void*, size_t))               \
  X(reallocarray, void*, (void*, size_t, size_t))  \
  X(free, void, (void*))                           \
  X(memalign, void*, (size_t, size_t))             \
  X(aligned_alloc, void*, (size_t, size_t))        \
  X(posix_memalign, int, (void**, size_t, size_t)) \
  X(valloc, void*, (size_t))                       \
  X(pvalloc, void*, (size_t))                      \
  X(malloc_trim, int, (size_t))

#define HYDRANT_HOOKED_THREAD_CALLS(X)                                                 \
  X(pthread_create, int, (pthread_t*, const pthread_attr_t*, void* (*)(void*), void*)) \
  X(thrd_create, int, (thrd_t*, thrd_start_t, void*))

#define HYDRANT_HOOKED_FILE_CALLS(X)     \
  X(ftruncate, int, (int, off_t))        \
  X(truncate, int, (const char*, off_t)) \
  X(fallocate, int, (int, int, off_t, off_t))

// ioctl() releases nothing: it is hooked so that the monitor makes room for another userfaultfd of the
// program (userfault_hooks.cpp). libc's own has `...` in place of the third parameter, and passes on what it
// finds there.
#define HYDRANT_HOOKED_USERFAULT_CALLS(X) X(ioctl, int, (int, unsigned long, void*))

// A separate list: a static program has these functions only if it calls them.
#define HYDRANT_HOOKED_LOADER_CALLS(X)        \
  X(dlopen, void*, (const char*, int))        \
  X(dlmopen, void*, (long, const char*, int)) \
  X(dlclose, int, (void*))

#define HYDRANT_HOOKED_CALLS(X)  \
  HYDRANT_HOOKED_MAP_CALLS(X)    \
  HYDRANT_HOOKED_MALLOC_CALLS(X) \
  HYDRANT_HOOKED_THREAD_CALLS(X) \
  HYDRANT_HOOKED_FILE_CALLS(X)   \
  HYDRANT_HOOKED_USERFAULT_CALLS(X)

struct iovec;

#define HYDRANT_DECLARE_HOOK(name, result, parameters) extern "C" result hook_##name parameters;
HYDRANT_HOOKED_CALLS(HYDRANT_DECLARE_HOOK)
HYDRANT_HOOKED_LOADER_CALLS(HYDRANT_DECLARE_HOOK)
#undef HYDRANT_DECLARE_HOOK

// Other names of free(): they have no real functions, because they call free().
extern "C" void hook_cfree(void* memory);
extern "C" void hook_free_sized(void* memory, size_t bytes);
extern "C" void hook_free_aligned_sized(void* memory, size_t alignment, size_t bytes);

// Exports hook_<hook> under the name <name>; used after the hook's definition, in the same file. The shared
// library also has __wrap_<name>, for programs that are linked dynamically with the options for static ones.
#define HYDRANT_EXPORT_HOOK_AS(name, hook)                              \
  extern "C" decltype(hook_##hook) wrap_##name __asm__("__wrap_" #name) \
      __attribute__((alias("hook_" #hook), visibility("default")));     \
  HYDRANT_EXPORT_PLAIN(name, hook)
#ifdef HYDRANT_HOOKS_SHARED
#define HYDRANT_EXPORT_PLAIN(name, hook)                          \
  extern "C" decltype(hook_##hook) exported_##name __asm__(#name) \
      __attribute__((alias("hook_" #hook), visibility("default")))
#else
#define HYDRANT_EXPORT_PLAIN(name, hook) static_assert(true)
#endif
#define HYDRANT_EXPORT_HOOK(name) HYDRANT_EXPORT_HOOK_AS(name, name)
