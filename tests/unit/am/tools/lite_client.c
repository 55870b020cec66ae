/* A client of the lite mode, in C and in C++. */
#define GASNETT_LITE_MODE 1
#include <gasnet_tools.h>

#ifdef gasnett_mutex_lock
#error lite mode has no locks
#endif

GASNETT_IDENT(lite_ident,
              "$HydrantLiteClient: " GASNETT_CONFIG_STRING "," PLATFORM_COMPILER_IDSTR " $");

int main(void) {
  const gasnett_tick_t begin = gasnett_ticks_now();
  gasnett_local_wmb();
  gasnett_weak_mb();
  return gasnett_ticks_to_ns(gasnett_ticks_now() - begin) < GASNETT_TICK_MAX ? 0 : 1;
}
