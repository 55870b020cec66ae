/* registrar_host PLUGIN: a domain over a registrar of a plugin that was unloaded. */
#include <hydrant/pin_cache.h>

#include <dlfcn.h>
#include <stdio.h>

static char memory[1 << 16];

static int failed(const char* what) {
  fprintf(stderr, "%s: %s\n", what, hydrant_error_text());
  return 1;
}

int main(int argc, char** argv) {
  hydrant_domain_options_t options;
  hydrant_domain_t domain;
  hydrant_pin_t pin;
  void* plugin = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
  if (plugin == NULL) return fprintf(stderr, "%s\n", dlerror()), 1;
  if (dlclose(plugin) != 0) return fprintf(stderr, "%s\n", dlerror()), 1;
  hydrant_domain_options_init(&options);
  options.registrar_name = "plugin";
  if (hydrant_domain_create(&options, &domain) != GASNET_OK) return failed("create");
  pin = hydrant_pin(domain, memory, sizeof memory, HYDRANT_LOCAL_WRITE);
  if (pin.region == NULL) return failed("pin");
  if (hydrant_release(pin) != GASNET_OK) return failed("release");
  return hydrant_domain_destroy(domain, HYDRANT_FINI_UNPIN) != GASNET_OK ? failed("destroy") : 0;
}
