/* Prints why the hooks do not serve malloc, or "hooked". */
#include "firehose/watch/hooks_abi.h"

#include <dlfcn.h>
#include <stdio.h>

int main(void) {
  const hydrant_hooks_t* hooks = (const hydrant_hooks_t*)dlsym(RTLD_DEFAULT, "hydrant_hooks_1");
  if (hooks == 0) return 1;
  if (hooks->families == HYDRANT_HOOKS_ALL) return puts("hooked") < 0;
  return puts(hooks->malloc_fault != 0 ? hooks->malloc_fault : "no reason") < 0;
}
