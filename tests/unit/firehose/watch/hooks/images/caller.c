/* A library with a RUNPATH of its own, which loads others. The loader takes the caller from the return
 * address, so a tail call would count as its caller's: the build forbids tail calls here. */
#define _GNU_SOURCE
#include <dlfcn.h>

void* hooks_test_load(const char* file, int mode);
void* hooks_test_load(const char* file, int mode) { return dlopen(file, mode); }

void* hooks_test_load_in_base(const char* file, int mode);
void* hooks_test_load_in_base(const char* file, int mode) {
  return dlmopen(LM_ID_BASE, file, mode);
}
