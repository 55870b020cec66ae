/* A registrar of your own: the cache decides when to register, your functions register. The device is
 * simulated and has a table of four entries. C99. */
#include <hydrant/pin_cache.h>

#include <stdio.h>
#include <string.h>

#define ENTRIES 4
#define PAGE ((size_t)4096)

/* The cache may call from several threads at once, so a real device needs a lock, or has one inside. */
typedef struct device {
  int used[ENTRIES];
  unsigned registered, deregistered, turned_away;
} device_t;

static int device_pin(void* user, uintptr_t addr, size_t len, uint32_t access, void* key) {
  device_t* device = (device_t*)user;
  (void)addr, (void)len;
  if (access & HYDRANT_REMOTE_ATOMIC) {
    hydrant_set_error_text("this device has no atomics");
    return HYDRANT_ERR_REFUSED; /* never possible for this memory and right */
  }
  for (uint32_t entry = 0; entry < ENTRIES; ++entry) {
    if (device->used[entry]) continue;
    device->used[entry] = 1;
    device->registered += 1;
    memcpy(key, &entry, sizeof entry);
    return GASNET_OK;
  }
  device->turned_away += 1;
  hydrant_set_error_text("all entries of the device are in use");
  return GASNET_ERR_NOT_READY; /* the table is full: the cache evicts a region and retries */
}

static int device_unpin(void* user, uintptr_t addr, size_t len, const void* key) {
  device_t* device = (device_t*)user;
  uint32_t entry;
  (void)addr, (void)len;
  memcpy(&entry, key, sizeof entry);
  device->used[entry] = 0;
  device->deregistered += 1;
  return HYDRANT_UNPIN_DONE;
}

int main(void) {
  static char memory[16 * 4096];
  device_t device = {{0}, 0, 0, 0};
  hydrant_registrar_t registrar = {0};
  hydrant_domain_options_t options;
  hydrant_domain_t domain;
  hydrant_pin_t pin;

  registrar.size = sizeof registrar;
  registrar.user = &device;
  registrar.name = "four-entries";
  registrar.key_bytes = sizeof(uint32_t);
  registrar.pin = device_pin;
  registrar.unpin = device_unpin;
  hydrant_domain_options_init(&options);
  options.registrar = &registrar;
  options.merge_bytes = 1; /* one region for each request, to keep the counts easy to follow */
  if (hydrant_domain_create(&options, &domain) != GASNET_OK) {
    fprintf(stderr, "no domain: %s\n", hydrant_error_text());
    return 1;
  }
  for (size_t round = 0; round < 3; ++round) { /* eight pages through four entries */
    for (size_t i = 0; i < 8; ++i) {
      pin = hydrant_pin(domain, memory + 2 * i * PAGE, 100, HYDRANT_LOCAL_WRITE);
      if (!pin.region) printf("page %zu: %s\n", i, hydrant_error_text());
      if (pin.region) hydrant_release(pin);
    }
  }
  pin = hydrant_pin(domain, memory, 100, HYDRANT_REMOTE_ATOMIC);
  printf("atomics: %s: %s\n", hydrant_status_name(hydrant_pin_status(pin)), hydrant_error_text());
  hydrant_domain_destroy(domain, HYDRANT_FINI_UNPIN);
  printf("registered %u, deregistered %u, turned away %u times\n", device.registered,
         device.deregistered, device.turned_away);
  return device.registered == device.deregistered ? 0 : 1;
}
