/* A plugin that adds a registrar to the host's libfirehose when it is loaded. */
#include <hydrant/pin_cache.h>

static int pins;

static int pin(void* user, uintptr_t addr, size_t len, uint32_t access, void* key) {
  (void)user, (void)addr, (void)len, (void)access, (void)key;
  ++pins;
  return GASNET_OK;
}
static int unpin(void* user, uintptr_t addr, size_t len, const void* key) {
  (void)user, (void)addr, (void)len, (void)key;
  --pins;
  return HYDRANT_UNPIN_DONE;
}
static int open_registrar(const char* argument, hydrant_registrar_t* registrar) {
  (void)argument;
  registrar->pin = pin;
  registrar->unpin = unpin;
  return GASNET_OK;
}

__attribute__((constructor)) static void add(void) {
  (void)hydrant_registrar_add("plugin", open_registrar);
}
