/* A plugin with its own copy of the pin cache, which it does not destroy. */
#include <hydrant/pin_cache.h>

static hydrant_domain_t domain;

__attribute__((visibility("default"))) int plugin_use(const void* memory, size_t bytes) {
  hydrant_pin_t pin;
  if (domain == 0) {
    hydrant_domain_options_t options;
    hydrant_domain_options_init(&options);
    options.registrar_name = "mlock";
    if (hydrant_domain_create(&options, &domain) != GASNET_OK) return -1;
  }
  pin = hydrant_pin(domain, memory, bytes, HYDRANT_LOCAL_WRITE);
  if (pin.region == NULL) return -2;
  return hydrant_release(pin) == GASNET_OK ? 0 : -3;
}
