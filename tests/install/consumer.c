/* An outside client in C99 with its own registrar: uses the cache as a network layer would, and checks that
 * the registrar received exactly the expected calls. Built outside the tree, against the installation. Exit
 * status 0 if all checks pass. */
#include <hydrant/pin_cache.h>

#include <stdio.h>

#define PAGE ((size_t)4096)

typedef struct counts {
  int pins, unpins, ends;
  uint64_t last_key;
} counts_t;

static char memory[8 * 4096];
static int faults;

static void expect(int holds, const char* what, int line) {
  if (holds) return;
  ++faults;
  fprintf(stderr, "consumer.c:%d: not so: %s (%s)\n", line, what, hydrant_error_text());
}
#define EXPECT(condition) expect((condition) != 0, #condition, __LINE__)

static int count_pin(void* user, uintptr_t addr, size_t len, uint32_t access, void* key) {
  counts_t* counts = (counts_t*)user;
  (void)len;
  if (addr % PAGE != 0 || access > HYDRANT_ACCESS_ALL) return HYDRANT_ERR_REFUSED;
  counts->pins += 1;
  counts->last_key = 1000u + (uint64_t)counts->pins;
  *(uint64_t*)key = counts->last_key;
  return GASNET_OK;
}

static int count_unpin(void* user, uintptr_t addr, size_t len, const void* key) {
  counts_t* counts = (counts_t*)user;
  (void)addr;
  (void)len;
  counts->unpins += *(const uint64_t*)key > 1000u;
  return HYDRANT_UNPIN_DONE;
}

static void count_end(void* user) { ((counts_t*)user)->ends += 1; }

static hydrant_domain_t create(counts_t* counts) {
  hydrant_registrar_t registrar = {0};
  hydrant_domain_options_t options;
  hydrant_domain_t domain = 0;
  registrar.size = sizeof registrar;
  registrar.user = counts;
  registrar.name = "counting";
  registrar.key_bytes = sizeof(uint64_t);
  registrar.pin = count_pin;
  registrar.unpin = count_unpin;
  registrar.destroy = count_end;
  hydrant_domain_options_init(&options);
  options.name = "consumer";
  options.registrar = &registrar;
  options.watch = HYDRANT_WATCH_CLIENT;
  options.budget_bytes = 64 * PAGE;
  EXPECT(hydrant_domain_create(&options, &domain) == GASNET_OK);
  return domain;
}

static hydrant_stats_t stats_of(hydrant_domain_t domain) {
  hydrant_stats_t stats = {0};
  stats.size = sizeof stats;
  EXPECT(hydrant_get_stats(domain, &stats) == GASNET_OK);
  return stats;
}

static void pin_twice_release(hydrant_domain_t domain, counts_t* counts) {
  const char* start = memory + 5000;
  hydrant_pin_t first = hydrant_pin(domain, start, 6000, HYDRANT_LOCAL_WRITE);
  hydrant_pin_t second = hydrant_pin(domain, start, 100, HYDRANT_LOCAL_WRITE);
  EXPECT(hydrant_pin_status(first) == GASNET_OK && hydrant_pin_status(second) == GASNET_OK);
  if (first.region == NULL || second.region == NULL) return;
  EXPECT(first.region->addr % PAGE == 0 && first.region->addr <= (uintptr_t)start);
  EXPECT(first.region->addr + first.region->len >= (uintptr_t)start + 6000);
  EXPECT(*(const uint64_t*)first.region->key == counts->last_key);
  EXPECT(counts->pins == 1 && stats_of(domain).live_holds == 2);
  EXPECT(hydrant_release(first) == GASNET_OK && hydrant_release(second) == GASNET_OK);
  EXPECT(counts->unpins == 0 && stats_of(domain).live_holds == 0);
  EXPECT(stats_of(domain).misses == 1 && stats_of(domain).pins == 1);
}

int main(void) {
  counts_t counts = {0, 0, 0, 0};
  hydrant_pin_t pin;
  hydrant_domain_t domain = create(&counts);
  if (faults != 0) return 1;
  pin_twice_release(domain, &counts);

  EXPECT(hydrant_invalidate(domain, memory, sizeof memory) == GASNET_OK);
  EXPECT(hydrant_poll(domain) == 0);
  EXPECT(counts.pins == 1 && counts.unpins == 1);
  EXPECT(hydrant_pin_status(hydrant_try_pin(domain, memory + 5000, 100, 0)) ==
         GASNET_ERR_NOT_READY);

  pin = hydrant_pin(domain, memory + 5000, 100, HYDRANT_LOCAL_WRITE);
  EXPECT(hydrant_pin_status(pin) == GASNET_OK && hydrant_release(pin) == GASNET_OK);
  EXPECT(counts.pins == 2 && counts.unpins == 1);

  pin = hydrant_pin(domain, memory, 0, HYDRANT_LOCAL_WRITE);
  EXPECT(hydrant_pin_status(pin) == GASNET_ERR_BAD_ARG && hydrant_error_text()[0] != '\0');

  EXPECT(hydrant_domain_destroy(domain, HYDRANT_FINI_UNPIN) == GASNET_OK);
  EXPECT(counts.pins == 2 && counts.unpins == 2 && counts.ends == 1);
  pin = hydrant_pin(domain, memory, 1, HYDRANT_LOCAL_WRITE);
  EXPECT(hydrant_pin_status(pin) == GASNET_ERR_NOT_INIT);
  if (faults == 0) printf("consumer: %d pins, %d unpins\n", counts.pins, counts.unpins);
  return faults != 0;
}
