// Hooks malloc and its family. Blocks that libc's own allocator returns are looked at (libc_chunks.hpp);
// another allocator maps by the symbols in map_hooks.cpp. Each of these calls may release memory: libc trims
// its heaps in free() and consolidates in malloc().
#include "firehose/watch/hooks/libc_chunks.hpp"
#include "firehose/watch/hooks/real_calls.hpp"
#include "firehose/watch/hooks/watched_call.hpp"

#include <cstdlib>

using hydrant::hooks::handed_out;
using hydrant::hooks::note_reuse;
using hydrant::hooks::own_mapping;
using hydrant::hooks::real;
using hydrant::hooks::Released;
using hydrant::hooks::releasing;

void* hook_malloc(size_t size) {
  return handed_out(releasing([&] { return real.malloc(size); }));
}
HYDRANT_EXPORT_HOOK(malloc);

void* hook_calloc(size_t count, size_t size) {
  return handed_out(releasing([&] { return real.calloc(count, size); }));
}
HYDRANT_EXPORT_HOOK(calloc);

void* hook_realloc(void* memory, size_t size) {
  const Released before = own_mapping(memory);
  return note_reuse(releasing(before, [&] { return real.realloc(memory, size); }), before);
}
HYDRANT_EXPORT_HOOK(realloc);

void* hook_reallocarray(void* memory, size_t count, size_t size) {
  const Released before = own_mapping(memory);
  return note_reuse(releasing(before, [&] { return real.reallocarray(memory, count, size); }),
                    before);
}
HYDRANT_EXPORT_HOOK(reallocarray);

void hook_free(void* memory) {
  releasing(own_mapping(memory), [&] { real.free(memory); });
}
HYDRANT_EXPORT_HOOK(free);

// These release what free() does, so they call the program's: it may be that of an allocator before the hooks
// which has no such functions. C23's further arguments are hints. Programs linked long ago call cfree().
void hook_cfree(void* memory) { free(memory); }
HYDRANT_EXPORT_HOOK(cfree);

void hook_free_sized(void* memory, size_t) { free(memory); }
HYDRANT_EXPORT_HOOK(free_sized);

void hook_free_aligned_sized(void* memory, size_t, size_t) { free(memory); }
HYDRANT_EXPORT_HOOK(free_aligned_sized);

void* hook_memalign(size_t alignment, size_t size) {
  return handed_out(releasing([&] { return real.memalign(alignment, size); }));
}
HYDRANT_EXPORT_HOOK(memalign);

void* hook_aligned_alloc(size_t alignment, size_t size) {
  return handed_out(releasing([&] { return real.aligned_alloc(alignment, size); }));
}
HYDRANT_EXPORT_HOOK(aligned_alloc);

int hook_posix_memalign(void** memory, size_t alignment, size_t size) {
  const int result = releasing([&] { return real.posix_memalign(memory, alignment, size); });
  if (result == 0) handed_out(*memory);
  return result;
}
HYDRANT_EXPORT_HOOK(posix_memalign);

void* hook_valloc(size_t size) {
  return handed_out(releasing([&] { return real.valloc(size); }));
}
HYDRANT_EXPORT_HOOK(valloc);

void* hook_pvalloc(size_t size) {
  return handed_out(releasing([&] { return real.pvalloc(size); }));
}
HYDRANT_EXPORT_HOOK(pvalloc);

int hook_malloc_trim(size_t kept) {
  return releasing([&] { return real.malloc_trim(kept); });
}
HYDRANT_EXPORT_HOOK(malloc_trim);
