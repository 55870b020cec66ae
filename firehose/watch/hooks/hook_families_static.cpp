// Determines which families of functions reach the hooks in a static program. If the linker was given --wrap,
// every <name> is the hook; otherwise <name> and __wrap_<name> are two functions. One name of each family
// stands for all, because the options come together.
//
// In a program with a dynamic loader --wrap reaches only the objects that it was linked from. Its libraries
// call libc past the hooks, so the archive claims nothing there.
#include "firehose/watch/hooks/allocator_check.hpp"
#include "firehose/watch/hooks/hook_families.hpp"
#include "firehose/watch/hooks/hooks_object.hpp"
#include "firehose/watch/hooks/real_calls.hpp"

#include <link.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

// libc's own functions, under names that programs leave alone; absent from other C libraries.
#define HYDRANT_LIBC_CALL(name) \
  extern "C" decltype(hook_##name) libc_##name __asm__("__" #name) __attribute__((weak));
HYDRANT_LIBC_CALL(mmap)
HYDRANT_LIBC_CALL(munmap)
HYDRANT_LIBC_CALL(mremap)
HYDRANT_LIBC_CALL(madvise)
#undef HYDRANT_LIBC_CALL

namespace hydrant::hooks {
namespace {

int look_at_first_object(dl_phdr_info* object, size_t, void* found) {
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    if (object->dlpi_phdr[i].p_type == PT_INTERP) *static_cast<bool*>(found) = true;
  }
  return 1;  // the program comes first, and is enough
}

bool has_dynamic_loader() {
  bool found = false;
  dl_iterate_phdr(&look_at_first_object, &found);
  return found;
}

template <typename Called, typename Hook>
uint32_t if_same(uint32_t family, Called* called, Hook* hook) {
  auto a = reinterpret_cast<uintptr_t>(called);
  // The compiler assumes that two names have two addresses.
  __asm__ volatile("" : "+r"(a));
  const auto b = reinterpret_cast<uintptr_t>(hook);
  return a == b ? family : 0;
}

// A program that defines one of these functions itself calls it past the hooks in the defining object.
bool is_libc_mmap() {
  return real.mmap == libc_mmap && real.munmap == libc_munmap && real.mremap == libc_mremap &&
         real.madvise == libc_madvise;
}

uint32_t map_family() {
  if (!is_libc_mmap()) return 0;
  return if_same(HYDRANT_HOOKS_MAP | HYDRANT_HOOKS_LOADER, mmap, hook_mmap);
}

uint32_t malloc_family(const char** fault) {
  if (if_same(HYDRANT_HOOKS_MALLOC, malloc, hook_malloc) == 0) return 0;
  *fault = malloc_is_libcs() ? fault_of_libc_chunks() : fault_of_allocator(hook_malloc, hook_free);
  return *fault == nullptr ? HYDRANT_HOOKS_MALLOC : 0;
}

}  // namespace

uint32_t working_families(const char** malloc_fault) {
  if (has_dynamic_loader()) return 0;
  // dlopen() is not checked here, because a reference to it would link it.
  return map_family() | malloc_family(malloc_fault) |
         if_same(HYDRANT_HOOKS_THREADS, pthread_create, hook_pthread_create) |
         if_same(HYDRANT_HOOKS_FILES, ftruncate, hook_ftruncate);
}

}  // namespace hydrant::hooks
