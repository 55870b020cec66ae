/* A library with a RUNPATH of its own, which loads others. */
#define _GNU_SOURCE
#include <dlfcn.h>

void* hooks_test_load(const char* file, int mode);
void* hooks_test_load(const char* file, int mode) {
  void* handle = dlopen(file, mode);
  return handle; /* not a jump to dlopen(): the return address is in here */
}

void* hooks_test_load_in_base(const char* file, int mode);
void* hooks_test_load_in_base(const char* file, int mode) {
  void* handle = dlmopen(LM_ID_BASE, file, mode);
  return handle;
}
