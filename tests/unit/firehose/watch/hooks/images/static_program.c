/* A program that is linked with -static: the hooks are in it by the linker's --wrap. Ends with 0 if they
 * work. */
#define _GNU_SOURCE
#include <hydrant/monitor.h>

#include "firehose/watch/hooks_abi.h"

#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

extern hydrant_hooks_t hydrant_hooks_1;

static uint64_t blocks[((size_t)1 << (47 - HYDRANT_MONITOR_BLOCK_SHIFT)) / 64];
static uint64_t sequence, removals = 7;
/* Volatile: the C library's headers promise that mmap() and others call nothing of this file. */
static volatile int syncs, settles, file_changes;
static int failures;

static void settle(void) {
  settles = settles + 1;
  sequence &= ~(uint64_t)1;
}
static void sync_all(void) {
  syncs = syncs + 1;
  sequence &= ~(uint64_t)1;
}
static void sync_range(uintptr_t addr, size_t len) {
  (void)addr;
  (void)len;
  sync_all();
}
static void invalidate(uintptr_t addr, size_t len) {
  (void)addr;
  (void)len;
}
static void files_changed(void) { file_changes = file_changes + 1; }
static void stack_ends(uintptr_t descriptor) { (void)descriptor; }

#define EXPECT(condition)                                                       \
  do {                                                                          \
    if (!(condition)) {                                                         \
      fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
      ++failures;                                                               \
    }                                                                           \
  } while (0)

static void* thread_main(void* argument) {
  int* syncs_seen = (int*)argument;
  void* memory;
  uintptr_t block;
  *syncs_seen = syncs;
  memory = malloc(100);
  block = (uintptr_t)memory >> HYDRANT_HOOKS_HEAP_SHIFT;
  EXPECT(hydrant_hooks_1.libc_blocks[block / 64] >> block % 64 & 1);
  free(memory);
  return argument;
}

int main(void) {
  static hydrant_monitor_t monitor;
  void *memory, *result;
  int before, seen = 0, fd;
  pthread_t thread;

  EXPECT(hydrant_hooks_1.version == HYDRANT_HOOKS_VERSION);
  EXPECT(hydrant_hooks_1.families == HYDRANT_HOOKS_ALL);
  memset(blocks, 0xff, sizeof blocks);
  monitor.size = sizeof monitor;
  monitor.version = HYDRANT_MONITOR_VERSION;
  monitor.blocks = blocks;
  monitor.sequence = &sequence;
  monitor.removals = &removals;
  monitor.invalidate = invalidate;
  monitor.settle = settle;
  monitor.sync = sync_all;
  monitor.sync_range = sync_range;
  monitor.files_changed = files_changed;
  monitor.stack_ends = stack_ends;
  __atomic_store_n(&hydrant_hooks_1.monitor, &monitor, __ATOMIC_RELEASE);

  before = syncs;
  memory = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  EXPECT(memory != MAP_FAILED && syncs == before + 1);
  sequence |= 1;
  EXPECT(munmap(memory, 4096) == 0 && settles == 1);
  errno = 0;
  EXPECT(munmap((char*)memory + 1, 4096) == -1 && errno == EINVAL);

  before = syncs;
  memory = malloc((size_t)40 << 20);
  EXPECT(memory != NULL && syncs == before + 1);
  free(memory);

  before = syncs;
  EXPECT(pthread_create(&thread, NULL, thread_main, &seen) == 0);
  EXPECT(pthread_join(thread, &result) == 0 && result == &seen);
  EXPECT(seen > before);
  EXPECT(hydrant_hooks_1.thread_count == 2);

  fd = memfd_create("hydrant-test", 0);
  EXPECT(ftruncate(fd, 8192) == 0 && file_changes == 2);
  close(fd);
  return failures != 0;
}
