/* Loads libfirehose at run time, uses it from the main thread and from a thread that outlives the dlclose()
 * of the library, and checks the number of unpins. usage: dlopen_client path/to/libfirehose.so.N */
#define _POSIX_C_SOURCE 200809L
#include <hydrant/pin_cache.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

typedef int (*create_fn)(const hydrant_domain_options_t*, hydrant_domain_t*);
typedef int (*destroy_fn)(hydrant_domain_t, uint32_t);
typedef void (*options_fn)(hydrant_domain_options_t*, size_t);
typedef hydrant_pin_t (*pin_fn)(hydrant_domain_t, const void*, size_t, uint32_t);
typedef int (*release_fn)(hydrant_pin_t);

static char memory[3 * 4096];
static int live_pins;
static pthread_barrier_t library_closed;
static pin_fn pin_memory;
static release_fn release_pin;
static hydrant_domain_t domain;

static int count_pin(void* user, uintptr_t addr, size_t len, uint32_t access, void* key) {
  (void)user, (void)addr, (void)len, (void)access, (void)key;
  ++live_pins;
  return GASNET_OK;
}

static int count_unpin(void* user, uintptr_t addr, size_t len, const void* key) {
  (void)user, (void)addr, (void)len, (void)key;
  --live_pins;
  return HYDRANT_UNPIN_DONE;
}

/* ISO C has no conversion from an object pointer to a function pointer; POSIX promises that this works. */
static int find(void* library, const char* name, void* function) {
  void* symbol = dlsym(library, name);
  if (symbol == NULL) fprintf(stderr, "dlsym: %s\n", dlerror());
  memcpy(function, &symbol, sizeof symbol);
  return symbol != NULL;
}

static int use_once(void) {
  const hydrant_pin_t pin = pin_memory(domain, memory + 4096, 100, HYDRANT_LOCAL_WRITE);
  return pin.region != NULL && release_pin(pin) == GASNET_OK;
}

static void* use_in_thread(void* used) {
  *(int*)used = use_once();
  pthread_barrier_wait(&library_closed);
  return NULL; /* the library's per-thread state is destroyed after this */
}

int main(int argc, char** argv) {
  hydrant_registrar_t registrar = {0};
  hydrant_domain_options_t options;
  options_fn init_options;
  create_fn create;
  destroy_fn destroy;
  pthread_t thread;
  int used = 0;
  void* library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
  if (library == NULL) {
    fprintf(stderr, "dlopen: %s\n", argc > 1 ? dlerror() : "no library named");
    return 1;
  }
  if (!find(library, "hydrant_domain_options_init_sized", &init_options) ||
      !find(library, "hydrant_domain_create", &create) ||
      !find(library, "hydrant_domain_destroy", &destroy) ||
      !find(library, "hydrant_pin", &pin_memory) || !find(library, "hydrant_release", &release_pin))
    return 1;
  registrar.size = sizeof registrar;
  registrar.name = "counting";
  registrar.pin = count_pin;
  registrar.unpin = count_unpin;
  init_options(&options, sizeof options);
  options.registrar = &registrar;
  if (create(&options, &domain) != GASNET_OK || !use_once()) return 1;

  pthread_barrier_init(&library_closed, NULL, 2);
  if (pthread_create(&thread, NULL, use_in_thread, &used) != 0) return 1;
  dlclose(library);
  pthread_barrier_wait(&library_closed);
  pthread_join(thread, NULL);
  if (!used || live_pins != 1) return 1;
  if (destroy(domain, HYDRANT_FINI_UNPIN) != GASNET_OK || live_pins != 0) return 1;
  puts("dlopen_client: done");
  return 0;
}
