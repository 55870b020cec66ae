/* A network layer sends from memory of its client: it pins the memory, so that the device reads it in place.
 * If the pin is refused, it copies through a buffer that is pinned already. C99. */
#include <hydrant/pin_cache.h>

#include <stdio.h>
#include <string.h>

#define KIB ((size_t)1024)

static char message[64 * 1024];
static char large_message[2048 * 1024];
static char bounce[64 * 1024];

/* Stands for the device: prints what the device would receive. */
static void post(const void* from, size_t len, const hydrant_region_t* region, size_t key_bytes) {
  const unsigned char* key = (const unsigned char*)region->key;
  printf("  post %zu KiB, %zu bytes into its region, key", len / KIB,
         (size_t)((uintptr_t)from - region->addr));
  for (size_t i = 0; key && i < key_bytes; ++i) printf(" %02x", key[i]);
  printf("%s\n", key ? "" : " (none: pinned is enough)");
}

static void send_through_bounce(hydrant_domain_t domain, hydrant_pin_t pinned_bounce,
                                const char* data, size_t len) {
  size_t pieces = 0;
  for (size_t done = 0; done < len; done += sizeof bounce, ++pieces) {
    size_t piece = len - done < sizeof bounce ? len - done : sizeof bounce;
    memcpy(bounce, data + done, piece); /* a real device must be done with the last piece */
    if (pieces == 0) post(bounce, piece, pinned_bounce.region, hydrant_key_bytes(domain));
  }
  printf("  ... %zu such pieces, copied\n", pieces);
}

static void send_message(hydrant_domain_t domain, hydrant_pin_t pinned_bounce, const char* data,
                         size_t len) {
  hydrant_pin_t pin = hydrant_pin(domain, data, len, HYDRANT_LOCAL_READ);
  printf("send %zu KiB: %s\n", len / KIB, hydrant_status_name(hydrant_pin_status(pin)));
  if (!pin.region) {
    printf("  because %s\n", hydrant_error_text());
    send_through_bounce(domain, pinned_bounce, data, len);
    return;
  }
  post(data, len, pin.region, hydrant_key_bytes(domain));
  hydrant_release(pin); /* once the device is done; the memory stays registered for the next time */
}

int main(void) {
  hydrant_domain_options_t options;
  hydrant_domain_t domain;
  hydrant_pin_t pinned_bounce;
  hydrant_stats_t stats;

  hydrant_domain_options_init(&options);
  options.registrar_name = "auto"; /* io_uring where the kernel allows it, else mlock */
  options.max_region_bytes = 1024 * KIB;
  if (hydrant_domain_create(&options, &domain) != GASNET_OK) {
    fprintf(stderr, "no domain: %s\n", hydrant_error_text());
    return 1;
  }
  printf("registrar: %s\n", hydrant_registrar_name(domain));
  pinned_bounce = hydrant_pin(domain, bounce, sizeof bounce, HYDRANT_LOCAL_READ);
  if (!pinned_bounce.region) {
    fprintf(stderr, "no bounce buffer: %s\n", hydrant_error_text());
    return 1;
  }

  send_message(domain, pinned_bounce, message, sizeof message);
  send_message(domain, pinned_bounce, message, sizeof message); /* a hit: nanoseconds */
  send_message(domain, pinned_bounce, large_message, sizeof large_message);

  stats.size = sizeof stats;
  hydrant_get_stats(domain, &stats);
  printf("hits %llu, misses %llu, registrations %llu\n",
         (unsigned long long)(stats.hits + stats.refills), (unsigned long long)stats.misses,
         (unsigned long long)stats.pins);
  hydrant_release(pinned_bounce);
  return hydrant_domain_destroy(domain, HYDRANT_FINI_UNPIN) == GASNET_OK ? 0 : 1;
}
