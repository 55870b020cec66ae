#include "network.h"

#include <pthread.h>
#include <sys/mman.h>

#include "check.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uintptr_t arena;
static unsigned covered[NETWORK_PAGES];
static unsigned char forbidden[NETWORK_PAGES];
static network_counts_t counts;

uintptr_t network_start(void) {
  if (arena == 0) {
    const size_t slack = 65536;
    void* mapped = mmap(NULL, NETWORK_PAGES * NETWORK_PAGE + slack, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(mapped != MAP_FAILED);
    arena = ((uintptr_t)mapped + slack - 1) & ~(uintptr_t)(slack - 1);
  }
  return arena;
}

uintptr_t network_page(size_t i) { return network_start() + i * NETWORK_PAGE; }

static size_t first_page(uintptr_t addr, size_t len) {
  CHECK(addr % NETWORK_PAGE == 0 && len % NETWORK_PAGE == 0 && len != 0);
  CHECK(addr >= arena && addr + len <= arena + NETWORK_PAGES * NETWORK_PAGE);
  return (addr - arena) / NETWORK_PAGE;
}

void network_forbid(size_t first, size_t n) { memset(forbidden + first, 1, n); }

int network_forbidden(uintptr_t addr, size_t len) {
  const size_t first = first_page(addr, len);
  return memchr(forbidden + first, 1, len / NETWORK_PAGE) != NULL;
}

void network_pin(uintptr_t addr, size_t len) {
  const size_t first = first_page(addr, len);
  size_t i;
  pthread_mutex_lock(&lock);
  for (i = 0; i < len / NETWORK_PAGE; ++i) ++covered[first + i];
  ++counts.pins;
  counts.bytes += len;
  if (counts.bytes > counts.max_bytes) counts.max_bytes = counts.bytes;
  pthread_mutex_unlock(&lock);
}

void network_unpin(uintptr_t addr, size_t len) {
  const size_t first = first_page(addr, len);
  size_t i;
  pthread_mutex_lock(&lock);
  for (i = 0; i < len / NETWORK_PAGE; ++i) {
    CHECK(covered[first + i] != 0);
    --covered[first + i];
  }
  ++counts.unpins;
  counts.bytes -= len;
  pthread_mutex_unlock(&lock);
}

network_counts_t network_counts(void) {
  network_counts_t copy;
  pthread_mutex_lock(&lock);
  copy = counts;
  pthread_mutex_unlock(&lock);
  return copy;
}

int network_is_pinned(uintptr_t addr, size_t len) {
  const size_t first = first_page(addr, len);
  int all = 1;
  size_t i;
  pthread_mutex_lock(&lock);
  for (i = 0; i < len / NETWORK_PAGE; ++i) all = all && covered[first + i] != 0;
  pthread_mutex_unlock(&lock);
  return all;
}
