/* A page client and a region client in one process, each a shared library, over one libfirehose. */
#include <stddef.h>
#include <stdint.h>

#include "check.h"

void pages_start(void);
void pages_use(uintptr_t addr, size_t len);
void pages_end(void);
size_t pages_pinned(void);
void regions_start(void);
void regions_use(uintptr_t addr, size_t len);
void regions_end(void);
size_t regions_pinned(void);

int main(void) {
  static char memory[1 << 17];
  const uintptr_t addr = ((uintptr_t)memory + 65535) & ~(uintptr_t)65535;
  pages_start();
  regions_start();
  pages_use(addr, 8192);
  CHECK(pages_pinned() == 8192 && regions_pinned() == 0);
  regions_use(addr, 4096);
  regions_use(addr + 8192, 4096);
  CHECK(pages_pinned() == 8192 && regions_pinned() == 8192);
  pages_end();
  CHECK(pages_pinned() == 0 && regions_pinned() == 8192);
  regions_use(addr, 4096);
  regions_end();
  CHECK(regions_pinned() == 0);
  return 0;
}
