/* Stands between the hooks and libc, and reports each call that arrives there to the test program. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#ifdef mmap64
#error "built with 64-bit file offsets as another name"
#endif

typedef void (*on_call_fn)(const char*);
static on_call_fn tell;

void hydrant_spy_on_calls(on_call_fn on_call);
void hydrant_spy_on_calls(on_call_fn on_call) { tell = on_call; }

#define SPY(result, name, parameters, arguments)         \
  result name parameters {                               \
    static result(*next) parameters;                     \
    if (!next) *(void**)&next = dlsym(RTLD_NEXT, #name); \
    if (tell) tell(#name);                               \
    return next arguments;                               \
  }

SPY(void*, mmap, (void* a, size_t n, int p, int f, int d, off_t o), (a, n, p, f, d, o))
SPY(int, munmap, (void* a, size_t n), (a, n))
SPY(int, madvise, (void* a, size_t n, int advice), (a, n, advice))
SPY(int, posix_madvise, (void* a, size_t n, int advice), (a, n, advice))
SPY(ssize_t, process_madvise, (int d, const struct iovec* v, size_t n, int advice, unsigned f),
    (d, v, n, advice, f))
SPY(int, remap_file_pages, (void* a, size_t n, int p, size_t o, int f), (a, n, p, o, f))
SPY(void*, shmat, (int id, const void* a, int f), (id, a, f))
SPY(int, shmdt, (const void* a), (a))
SPY(int, brk, (void* a), (a))
SPY(void*, sbrk, (intptr_t n), (n))
SPY(int, ftruncate, (int d, off_t n), (d, n))
SPY(int, truncate, (const char* path, off_t n), (path, n))
SPY(int, fallocate, (int d, int mode, off_t o, off_t n), (d, mode, o, n))

void* mremap(void* a, size_t old_n, size_t n, int f, ...) {
  static void* (*next)(void*, size_t, size_t, int, void*);
  __builtin_va_list more;
  void* target;
  if (!next) *(void**)&next = dlsym(RTLD_NEXT, "mremap");
  __builtin_va_start(more, f);
  target = __builtin_va_arg(more, void*);
  __builtin_va_end(more);
  if (tell) tell("mremap");
  return next(a, old_n, n, f, target);
}

/* This library comes after the hooks, so its constructor runs before theirs. */
static int families_then = -1;
static int early_calls_worked;

static void* early_thread(void* argument) {
  free(malloc(1000));
  return argument;
}

__attribute__((constructor)) static void call_early(void) {
  const char* hooks = (const char*)dlsym(RTLD_DEFAULT, "hydrant_hooks_1");
  pthread_t thread;
  void* result = NULL;
  char* memory = (char*)malloc(100);
  void* mapped = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memory = (char*)realloc(memory, 1 << 20);
  if (hooks) families_then = *(const int*)(const void*)(hooks + sizeof(size_t) + sizeof(int));
  if (pthread_create(&thread, NULL, early_thread, memory) == 0) pthread_join(thread, &result);
  early_calls_worked = result == memory && mapped != MAP_FAILED && munmap(mapped, 4096) == 0 &&
                       dlopen(NULL, RTLD_NOW) != NULL && sbrk(0) != NULL;
  free(memory);
}

int hydrant_spy_early_calls(int* families);
int hydrant_spy_early_calls(int* families) {
  *families = families_then;
  return early_calls_worked;
}
