/* An outside program that checks how its memory is covered. usage: coverage_program COVERAGE: that of memory
 * of mmap() and of malloc(), and of a variable. Hits of "watched" memory must be free, and those of "checked"
 * memory counted. -DLIBRARY="PATH": coverage_library.c is at PATH, and is loaded by dlopen().
 * -DOWN_MMAP, -DOWN_MALLOC: the program defines these functions itself. Exit status 0 if all checks pass. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef OWN_MMAP
void* mmap(void* addr, size_t len, int protection, int flags, int fd, off_t offset) {
  return (void*)syscall(SYS_mmap, addr, len, protection, flags, fd, offset);
}
#endif

#ifdef OWN_MALLOC
/* Takes memory from the kernel by mmap(), and never returns it. */
void* malloc(size_t bytes) {
  const size_t page = 4096;
  const int anonymous = MAP_PRIVATE | MAP_ANONYMOUS;
  char* got = (char*)mmap(NULL, bytes + page, PROT_READ | PROT_WRITE, anonymous, -1, 0);
  if (got == (char*)MAP_FAILED) return NULL;
  *(size_t*)(void*)got = bytes;
  return got + page;
}
void free(void* memory) { (void)memory; }
void* calloc(size_t count, size_t bytes) { return malloc(count * bytes); }
void* realloc(void* memory, size_t bytes) {
  void* got = malloc(bytes);
  if (got != NULL && memory != NULL) {
    const size_t before = *(size_t*)(void*)((char*)memory - 4096);
    memcpy(got, memory, before < bytes ? before : bytes);
  }
  return got;
}
#endif

typedef const char* (*ask_t)(void* memory, size_t bytes, unsigned long long* checked_hits);
#ifndef LIBRARY
extern const char* ask_coverage(void* memory, size_t bytes, unsigned long long* checked_hits);
#endif

static ask_t find_ask(void) {
#ifdef LIBRARY
  void* library = dlopen(LIBRARY, RTLD_NOW);
  if (library == NULL) fprintf(stderr, "%s\n", dlerror());
  return library == NULL ? NULL : (ask_t)dlsym(library, "ask_coverage");
#else
  return ask_coverage;
#endif
}

static int is_covered(ask_t ask, const char* of, void* memory, size_t bytes, const char* wanted) {
  unsigned long long checked = 0;
  const char* found = ask(memory, bytes, &checked);
  const unsigned long long most = strcmp(wanted, "checked") == 0 ? 10 : 0;
  if (strcmp(found, wanted) == 0 && checked == most) return 1;
  fprintf(stderr, "memory of %s is %s, not %s; %llu of 10 hits asked the kernel\n", of, found,
          wanted, checked);
  return 0;
}

static char variable[5000] = "initialised";

int main(int argc, char** argv) {
  const size_t bytes = (size_t)1 << 20;
  const int anonymous = MAP_PRIVATE | MAP_ANONYMOUS;
  const char* wanted = argc > 1 ? argv[1] : "watched";
  const ask_t ask = find_ask();
  void* mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, anonymous, -1, 0);
  char* small = (char*)malloc(5000);
  char* large = (char*)malloc(bytes);
  int good;
  if (ask == NULL || mapped == MAP_FAILED || small == NULL || large == NULL) return 1;
  memset(small, 1, 5000);
  good = is_covered(ask, "mmap", mapped, bytes, wanted);
  good &= is_covered(ask, "malloc", small, 5000, wanted);
  good &= is_covered(ask, "malloc, large,", large, bytes, wanted);
  good &= is_covered(ask, "a variable", variable, sizeof variable, wanted);
  free(small);
  free(large);
  munmap(mapped, bytes);
  return !good;
}
