/* Not position independent, and takes the addresses of hooked functions: it has entries of its own for them,
 * which stand for the functions in the whole process. The hooks know that the names still lead to them:
 * status 0. */
#define _GNU_SOURCE
#include "firehose/watch/hooks_abi.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

typedef void (*any_fn)(void);
static any_fn volatile taken[] = {(any_fn)malloc, (any_fn)free, (any_fn)mmap, (any_fn)munmap};

int main(void) {
  const hydrant_hooks_t* hooks = (const hydrant_hooks_t*)dlsym(RTLD_DEFAULT, "hydrant_hooks_1");
  if (hooks == NULL || hooks->families != HYDRANT_HOOKS_ALL) {
    fprintf(stderr, "families %u\n", hooks != NULL ? hooks->families : 0);
    return 1;
  }
  if ((uintptr_t)dlsym(RTLD_DEFAULT, "malloc") != (uintptr_t)taken[0]) return 2;
  return 0;
}
