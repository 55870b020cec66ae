/* Heaps of threads that are shorter than 64 MiB (glibc.malloc.hugetlb=2) keep no marks, also where the first
 * begins at a multiple of 64 MiB: status 0. 77: libc has no such heaps. */
#define _GNU_SOURCE
#include "firehose/watch/hooks_abi.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define HEAP ((uintptr_t)8 << 20) /* with huge pages of 2 MiB */
#define BLOCK ((uintptr_t)1 << HYDRANT_HOOKS_HEAP_SHIFT)
#define THREADS 2

static pthread_barrier_t all;
static uintptr_t memory[THREADS];
static char stacks[THREADS][256 << 10] __attribute__((aligned(4096)));

/* Every thread has an arena of its own while all are there. */
static void* allocate(void* result) {
  void* block = malloc(1000);
  *(uintptr_t*)result = (uintptr_t)block;
  pthread_barrier_wait(&all);
  free(block);
  return 0;
}

/* libc maps twice the length of a heap, and keeps an aligned half. Fills the space above the place from which
 * the kernel takes that, down to the end of such a mapping at a multiple of 64 MiB. */
static void choose_place(void) {
  char* next = mmap(0, 2 * HEAP, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  munmap(next, 2 * HEAP);
  (void)mmap(0, (uintptr_t)next % BLOCK, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
             0);
}

int main(void) {
  const hydrant_hooks_t* hooks = (const hydrant_hooks_t*)dlsym(RTLD_DEFAULT, "hydrant_hooks_1");
  pthread_t threads[THREADS];
  int marked = 0;
  int at_multiples = 0;
  if (hooks == 0 || hooks->families != HYDRANT_HOOKS_ALL) return 1;
  pthread_barrier_init(&all, 0, THREADS + 1);
  choose_place();
  for (int i = 0; i < THREADS; ++i) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, stacks[i], sizeof stacks[i]);
    if (pthread_create(&threads[i], &attributes, allocate, &memory[i]) != 0) return 2;
  }
  pthread_barrier_wait(&all);
  for (int i = 0; i < THREADS; ++i) {
    const uintptr_t block = memory[i] / BLOCK;
    pthread_join(threads[i], 0);
    marked +=
        (__atomic_load_n(&hooks->heap_blocks[block / 64], __ATOMIC_ACQUIRE) >> block % 64 & 1) == 0;
    at_multiples += memory[i] % BLOCK < HEAP;
    printf("%#lx\n", (unsigned long)memory[i]);
  }
  if (at_multiples == 0) return 3;
  if (at_multiples < THREADS) return marked;
  printf("this libc's heaps begin at multiples of 64 MiB with huge pages, too\n");
  return 77;
}
