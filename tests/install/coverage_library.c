/* The part of an outside program that uses the cache, in some tests a library of its own. Returns how memory
 * is covered, and how many of ten hits queried the kernel. */
#include <hydrant/pin_cache.h>

static int pin(void* user, uintptr_t addr, size_t len, uint32_t access, void* key) {
  (void)user;
  (void)addr;
  (void)len;
  (void)access;
  (void)key;
  return GASNET_OK;
}

static int unpin(void* user, uintptr_t addr, size_t len, const void* key) {
  (void)user;
  (void)addr;
  (void)len;
  (void)key;
  return HYDRANT_UNPIN_DONE;
}

const char* ask_coverage(void* memory, size_t bytes, unsigned long long* checked_hits);
const char* ask_coverage(void* memory, size_t bytes, unsigned long long* checked_hits) {
  hydrant_registrar_t registrar = {0};
  hydrant_domain_options_t options;
  hydrant_domain_t domain;
  hydrant_stats_t stats = {0};
  uint32_t coverage;
  int i;
  registrar.size = sizeof registrar;
  registrar.name = "nothing";
  registrar.pin = pin;
  registrar.unpin = unpin;
  hydrant_domain_options_init(&options);
  options.registrar = &registrar;
  if (hydrant_domain_create(&options, &domain) != GASNET_OK) return hydrant_error_text();
  if (hydrant_coverage(domain, memory, bytes, &coverage) != GASNET_OK) return hydrant_error_text();
  for (i = 0; i < 11; ++i) {
    hydrant_pin_t held = hydrant_pin(domain, memory, bytes, HYDRANT_LOCAL_WRITE);
    if (held.region == NULL) return hydrant_error_text();
    hydrant_release(held);
  }
  stats.size = sizeof stats;
  hydrant_get_stats(domain, &stats);
  *checked_hits = stats.checked_hits;
  hydrant_domain_destroy(domain, HYDRANT_FINI_UNPIN);
  return hydrant_coverage_name(coverage);
}
