// In a static program the linker's --wrap has made every <name> ours, or the option was not given:
// then <name> and __wrap_<name> are two functions. One name of each family stands for it: the options come
// together.
#include "firehose/watch/hooks/allocator_check.hpp"
#include "firehose/watch/hooks/families.hpp"
#include "firehose/watch/hooks/hooks_object.hpp"
#include "firehose/watch/hooks/real_calls.hpp"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

namespace hydrant::hooks {
namespace {

template <typename Called, typename Hook>
uint32_t if_same(uint32_t family, Called* called, Hook* hook) {
  auto a = reinterpret_cast<uintptr_t>(called);
  // The compiler believes that two names are two addresses.
  __asm__ volatile("" : "+r"(a));
  const auto b = reinterpret_cast<uintptr_t>(hook);
  return a == b ? family : 0;
}

uint32_t malloc_family() {
  if (if_same(HYDRANT_HOOKS_MALLOC, malloc, hook_malloc) == 0) return 0;
  const bool seen = malloc_is_libcs() ? libc_chunks_are_readable()
                                      : allocator_maps_by_symbol(hook_malloc, hook_free);
  return seen ? HYDRANT_HOOKS_MALLOC : 0;
}

}  // namespace

uint32_t working_families() {
  // To ask for dlopen() would be to link it.
  return if_same(HYDRANT_HOOKS_MAP | HYDRANT_HOOKS_LOADER, mmap, hook_mmap) | malloc_family() |
         if_same(HYDRANT_HOOKS_THREADS, pthread_create, hook_pthread_create) |
         if_same(HYDRANT_HOOKS_FILES, ftruncate, hook_ftruncate);
}

}  // namespace hydrant::hooks
