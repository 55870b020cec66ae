/* Links the installed hooks and checks that they are present and in force. Exit status 0 if so. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct hooks_head {
  size_t size;
  unsigned version, families;
};

#ifdef LINKED_STATICALLY
extern struct hooks_head hydrant_hooks_1;
static const struct hooks_head* find_hooks(void) { return &hydrant_hooks_1; }
#else
static const struct hooks_head* find_hooks(void) {
  return (const struct hooks_head*)dlsym(RTLD_DEFAULT, "hydrant_hooks_1");
}
#endif

int main(void) {
  const struct hooks_head* hooks = find_hooks();
  char* memory = (char*)malloc(100);
  if (memory == NULL || hooks == NULL) {
    fprintf(stderr, "no hooks in this process\n");
    return 1;
  }
  strcpy(memory, "memory");
  free(memory);
  if (hooks->version != 3 || hooks->families != 31) {
    fprintf(stderr, "version %u, families %u\n", hooks->version, hooks->families);
    return 1;
  }
  return 0;
}
