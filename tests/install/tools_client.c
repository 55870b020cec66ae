/* An outside client of the GASNet tools alone, in C99 and C++. Exit status 0 if all checks pass. */
#include <gasnet_tools.h>

int main(void) {
  gasnett_atomic_t count = gasnett_atomic_init(41);
  gasnett_atomic_increment(&count, 0);
  return gasnett_atomic_read(&count, 0) == 42 && gasnett_cpu_count() > 0 ? 0 : 1;
}
