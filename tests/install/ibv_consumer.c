/* Names the registrar of libfirehose_ibv and calls no function of it: the link options must keep the library.
 * Without a device the failure's text is the registrar's. */
#include <hydrant/pin_cache.h>

#include <stdio.h>
#include <string.h>

int main(void) {
  hydrant_domain_options_t options;
  hydrant_domain_t domain;
  hydrant_domain_options_init(&options);
  options.registrar_name = "ibv";
  if (hydrant_domain_create(&options, &domain) == GASNET_OK)
    return hydrant_domain_destroy(domain, HYDRANT_FINI_UNPIN);
  printf("%s\n", hydrant_error_text());
  if (strstr(hydrant_error_text(), "libfirehose_ibv")) return 1;
  return strstr(hydrant_error_text(), "verbs device") ? 0 : 1;
}
