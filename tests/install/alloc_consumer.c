/* An outside program in C99 that takes memory from hydrant_alloc. usage: alloc_consumer BACKEND: the
 * allocator that must serve. Exit status 0 if all checks pass. */
#include <hydrant/alloc.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char** argv) {
  const size_t bytes = (size_t)5 << 20;
  const char* wanted = argc > 1 ? argv[1] : "";
  void* libcs = malloc(100);
  char* p = (char*)hydrant_alloc(bytes);
  void* shared = hydrant_alloc_shared(64, 100);
  hydrant_alloc_location_t location;
  int good;
  if (p == NULL || shared == NULL || libcs == NULL) return 1;
  memset(p, 'x', bytes);
  p = (char*)hydrant_realloc(p, 2 * bytes);
  if (p == NULL) return 1;
  good = p[bytes - 1] == 'x' && hydrant_alloc_owns(p) && !hydrant_alloc_owns(libcs) &&
         hydrant_alloc_shared_location(shared, &location) == 0;
  hydrant_free(shared);
  hydrant_free(p);
  free(libcs);
  printf("%s: %s\n", hydrant_alloc_backend(), hydrant_alloc_backend_reason());
  return !good || strcmp(hydrant_alloc_backend(), wanted) != 0;
}
