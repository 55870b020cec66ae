/* A client of gasnet_tools.h in every language and mode that it serves: compiled as C99 without
 * extensions and as C++11 to C++20, thread-safe, single and debug, with all warnings. Prints nothing
 * and returns 0 if all is well. */
#include <errno.h>
#include <gasnet_tools.h>

#if !defined(GASNET_DEBUG) == !defined(GASNET_NDEBUG)
#error one of GASNET_DEBUG and GASNET_NDEBUG is to be defined
#endif
#if GASNETT_PAGESIZE < 4096 || GASNETT_PAGESIZE != 1 << GASNETT_PAGESHIFT
#error the page size is to be usable in #if
#endif
#if PLATFORM_COMPILER_VERSION_LT(4, 0, 0) || !PLATFORM_OS_LINUX || GASNETT_MAX_THREADS < 1
#error the platform is to be usable in #if
#endif

GASNETT_IDENT(client_ident,
              "$HydrantToolsClient: " GASNETT_SYSTEM_TUPLE " " GASNETT_CONFIG_STRING " $");

GASNETT_THREADKEY_DEFINE(client_key);

GASNETT_BEGIN_EXTERNC
GASNETT_NORETURN static void give_up(int line);
GASNETT_NORETURNP(give_up)
GASNETT_COLD static void give_up(int line) { gasnett_fatalerror("line %d of the client", line); }
GASNETT_FORMAT_PRINTF(formatted, 3, 4,
                      static void formatted(char* text, size_t size, const char* format, ...));
static void formatted(char* text, size_t size, const char* format, ...) {
  va_list args;
  va_start(args, format);
  (void)vsnprintf(text, size, format, args);
  va_end(args);
}
GASNETT_INLINE(twice) GASNETT_CONST int twice(int x) { return 2 * x; }
GASNETT_NEVER_INLINE(thrice, static int thrice(int x)) { return 3 * x; }
GASNETT_END_EXTERNC

#define CHECK(condition)                   \
  do {                                     \
    if_pf(!(condition)) give_up(__LINE__); \
  } while (0)

static int steps(int from) {
  int done = 0;
  switch (from) {
    case 1: ++done; GASNETT_FALLTHROUGH
    case 2: ++done; break;
    default: gasnett_unreachable();
  }
  return done;
}

static void check_locks(void) {
  static gasnett_mutex_t mutex = GASNETT_MUTEX_INITIALIZER;
  static gasnett_rwlock_t rwlock = GASNETT_RWLOCK_INITIALIZER;
  static struct {
    gasnett_cond_t cond;
    gasnett_mutex_t mutex;
  } pair = {GASNETT_COND_INITIALIZER, GASNETT_MUTEX_INITIALIZER};
  gasnett_mutex_lock(&mutex);
  gasnett_mutex_assertlocked(&mutex);
  gasnett_mutex_unlock(&mutex);
  CHECK(gasnett_mutex_trylock(&mutex) == 0);
  gasnett_mutex_unlock(&mutex);
  gasnett_mutex_destroy(&mutex);
  gasnett_rwlock_rdlock(&rwlock);
  gasnett_rwlock_unlock(&rwlock);
  CHECK(gasnett_rwlock_trywrlock(&rwlock) == 0);
  gasnett_rwlock_assertlocked(&rwlock);
  gasnett_rwlock_unlock(&rwlock);
  gasnett_rwlock_destroy(&rwlock);
  gasnett_mutex_lock(&pair.mutex);
  gasnett_cond_signal(&pair.cond);
  gasnett_cond_broadcast(&pair.cond);
  gasnett_mutex_unlock(&pair.mutex);
}

static void check_atomics(void) {
  static gasnett_atomic_t a = gasnett_atomic_init(1);
  static struct {
    char c;
    gasnett_atomic64_t wide;
  } s = {0, gasnett_atomic64_init(2)};
  gasnett_strongatomic32_t strong = gasnett_strongatomic32_init(3);
  CHECK(gasnett_atomic_add(&a, 2, GASNETT_ATOMIC_NONE) == 3);
  CHECK(gasnett_atomic_compare_and_swap(&a, 3, 4, GASNETT_ATOMIC_ACQ_IF_TRUE));
  CHECK(gasnett_atomic64_swap(&s.wide, 5, GASNETT_ATOMIC_MB_PRE) == 2);
  CHECK(gasnett_strongatomic32_subtract(&strong, 3, GASNETT_ATOMIC_REL) == 0);
  CHECK(gasnett_atomic_signed(gasnett_atomic_subtract(&a, 5, 0)) == -1);
}

int main(void) {
  char text[64];
  const gasnett_tick_t begin = gasnett_ticks_now();
  CHECK(twice(1) + thrice(1) == 5 && steps(1) == 2 && steps(2) == 1);
  formatted(text, sizeof text, "%" PRIu64, gasnett_release_version());
  CHECK(gasnett_parse_int(text, 0) > 2025000000);
  CHECK(strcmp(gasnett_format_number(4096, text, sizeof text, 1), "4 KB") == 0);
  CHECK(gasnett_threadkey_get(client_key) == NULL);
  gasnett_threadkey_set(client_key, text);
  CHECK(gasnett_threadkey_get(client_key) == text);
  gasnett_assume(text[0] == '4');
  gasnett_local_mb();
  gasnett_weak_wmb();
  gasnett_spinloop_hint();
  gasnett_sched_yield();
  check_locks();
  check_atomics();
  GASNETT_TRACE_PRINTF("%d", 1);
  CHECK(gasnett_getenv_withdefault("HYDRANT_NO_SUCH_VARIABLE", NULL) == NULL);
  CHECK(gasnett_ticks_to_us(gasnett_ticks_now() - begin) < GASNETT_TICK_MAX);
  CHECK(MIN(1, 2) + MAX(1, 2) == 3);
  return 0;
}
