/* A library with a RUNPATH of its own, which loads others. The loader goes by the return address, so that a
 * tail call would be its caller's: the build forbids them here. */
#define _GNU_SOURCE
#include <dlfcn.h>

void* hooks_test_load(const char* file, int mode);
void* hooks_test_load(const char* file, int mode) { return dlopen(file, mode); }

void* hooks_test_load_in_base(const char* file, int mode);
void* hooks_test_load_in_base(const char* file, int mode) {
  return dlmopen(LM_ID_BASE, file, mode);
}
