/* A malloc that the hooks take for libc's, because it has libc's private names. LAYOUT says how its blocks
 * that are mappings of their own look: as glibc's before 2.43 ("old"), as glibc's since then ("new"), or in a
 * way that no libc has: "long" (a page more than the words say), "early" (the words name an earlier begin),
 * or "sizes" (small blocks whose last word is not theirs). Small blocks are never reused. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE 4096u
#define MAPPED 2u
#define HEADER 16u
#define FROM_BYTES (64u << 10) /* larger blocks are mappings of their own */
#define BREAK_BYTES (256u << 20)

static int is_layout(const char* name) {
  const char* layout = getenv("LAYOUT");
  return layout != 0 && strcmp(layout, name) == 0;
}
static size_t tail(void) { return is_layout("new") ? HEADER : 0; }
static size_t extra(void) { return is_layout("long") ? PAGE : 0; }
static size_t too_early(void) { return is_layout("early") ? PAGE : 0; }
static size_t* words(void* memory) { return (size_t*)memory; }

static void* map_block(size_t alignment, size_t size) {
  const size_t bytes = (size + alignment + 2u * HEADER + PAGE - 1) / PAGE * PAGE;
  char* begin = (char*)syscall(SYS_mmap, 0, bytes + extra(), PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (begin == (char*)MAP_FAILED) return 0;
  const size_t to_memory = (size_t)(-(uintptr_t)(begin + HEADER) & (alignment - 1));
  char* memory = begin + HEADER + to_memory;
  words(memory)[-2] = (to_memory + too_early()) | (tail() != 0);
  words(memory)[-1] = (bytes - to_memory - tail()) | MAPPED;
  return memory;
}

static void* small_block(size_t alignment, size_t size) {
  static char* first;
  static size_t used;
  static int lock;
  while (__atomic_exchange_n(&lock, 1, __ATOMIC_ACQUIRE)) continue;
  if (first == 0) {
    first = (char*)syscall(SYS_brk, 0);
    if ((char*)syscall(SYS_brk, first + BREAK_BYTES) != first + BREAK_BYTES) abort();
  }
  char* memory = first + used + HEADER;
  memory += -(uintptr_t)memory & (alignment - 1);
  const size_t bytes = (size + sizeof(size_t) + HEADER - 1) / HEADER * HEADER;
  used = (size_t)(memory - HEADER - first) + bytes;
  if (used + HEADER > BREAK_BYTES) abort();
  words(memory)[-1] = (is_layout("sizes") ? 0 : bytes) | 1u;
  __atomic_store_n(&lock, 0, __ATOMIC_RELEASE);
  return memory;
}

/* The functions below call each other by private names, past the hooks. */
static void* take(size_t alignment, size_t size) {
  if (alignment < HEADER) alignment = HEADER;
  return size > FROM_BYTES ? map_block(alignment, size) : small_block(alignment, size);
}
static void give(void* memory) {
  if (memory == 0 || (words(memory)[-1] & MAPPED) == 0) return;
  const size_t distance = (words(memory)[-2] & ~7ul) - too_early();
  const size_t bytes = distance + (words(memory)[-1] & ~7ul) + tail() + extra();
  (void)syscall(SYS_munmap, (char*)memory - HEADER - distance, bytes);
}
static size_t usable(void* memory) {
  const size_t word = words(memory)[-1];
  const int is_whole = (word & MAPPED) != 0 ? tail() == 0 : is_layout("sizes");
  return (word & ~7ul) - (is_whole ? HEADER : sizeof(size_t));
}
static void* move(void* memory, size_t size) {
  void* moved = take(HEADER, size);
  if (moved == 0 || memory == 0) return moved;
  memcpy(moved, memory, usable(memory) < size ? usable(memory) : size);
  give(memory);
  return moved;
}

void* malloc(size_t size) { return take(HEADER, size); }
void free(void* memory) { give(memory); }
size_t malloc_usable_size(void* memory) { return memory != 0 ? usable(memory) : 0; }
void* calloc(size_t count, size_t size) {
  return take(HEADER, count * size);
} /* never used before */
void* realloc(void* memory, size_t size) { return move(memory, size); }
void* reallocarray(void* memory, size_t count, size_t size) { return move(memory, count * size); }
void* memalign(size_t alignment, size_t size) { return take(alignment, size); }
void* aligned_alloc(size_t alignment, size_t size) { return take(alignment, size); }
void* valloc(size_t size) { return take(PAGE, size); }
void* pvalloc(size_t size) { return take(PAGE, (size + PAGE - 1) / PAGE * PAGE); }
int posix_memalign(void** memory, size_t alignment, size_t size) {
  *memory = take(alignment, size);
  return *memory != 0 ? 0 : 12;
}

#define ALSO_AS_LIBCS(name) __asm__(".globl __libc_" #name "\n.set __libc_" #name ", " #name);
ALSO_AS_LIBCS(malloc)
ALSO_AS_LIBCS(calloc)
ALSO_AS_LIBCS(realloc)
ALSO_AS_LIBCS(free)
