/* hydrant/gasnet/locks.h - mutex, condition variable and reader/writer lock, checked with GASNET_DEBUG.
 *
 * gasnett_mutex_t   init destroy destroy_ignoreerr lock trylock unlock assertlocked assertunlocked
 * gasnett_cond_t    init destroy wait signal broadcast
 * gasnett_rwlock_t  init destroy rdlock wrlock tryrdlock trywrlock unlock, assert{,rd,wr}locked,
 *                   assertunlocked
 * Static initialisers GASNETT_{MUTEX,COND,RWLOCK}_INITIALIZER. Locks are never recursive and must not
 * lie in memory shared between processes. Signal and broadcast while holding the waiters' mutex; waits
 * may end spuriously.
 *
 * Errors   trylock and the like return 0, or EBUSY (readers also EAGAIN). Misuse ends a GASNET_DEBUG
 *          program with gasnett_fatalerror (relock, unlock by another thread, destroying a held lock,
 *          failed assertion) and is undefined without it. All users of one lock must agree on
 *          GASNET_DEBUG.
 * Threads  any; not in signal handlers.
 * Cost     with threads: pthread's (uncontended and alone, lock and unlock of a mutex about 5 ns, of a
 *          rwlock about 17 ns); debug doubles that. Without threads and GASNETT_USE_TRUE_MUTEXES:
 *          nothing, or the check with GASNET_DEBUG.
 * Source   GASNet tools specification 1.20, "Error-checking System Mutexes", "Reader/Writer locks".
 */
#ifndef HYDRANT_GASNET_LOCKS_H
#define HYDRANT_GASNET_LOCKS_H

#include <hydrant/gasnet/annotations.h>

#include <pthread.h>
#include <stdint.h>

HYDRANT_TOOLS_BEGIN

typedef struct {
  pthread_mutex_t mutex;
  uintptr_t owner; /* checked use only: the holder's pthread_self(), or 0 */
} hydrant_tools_mutex_t;

typedef struct {
  pthread_cond_t cond;
} hydrant_tools_cond_t;

/* A pthread_rwlock_t, which strict C99 does not declare: the library asserts size and alignment. */
typedef struct {
  uint64_t rwlock[7];
} hydrant_tools_rwlock_t;

void hydrant_tools_mutex_init(hydrant_tools_mutex_t* mutex);
int hydrant_tools_mutex_destroy(hydrant_tools_mutex_t* mutex);
void hydrant_tools_cond_init(hydrant_tools_cond_t* cond);
void hydrant_tools_cond_destroy(hydrant_tools_cond_t* cond);
GASNETT_NORETURN
void hydrant_tools_cond_wait_alone(hydrant_tools_cond_t* cond, hydrant_tools_mutex_t* mutex);
void hydrant_tools_rwlock_init(hydrant_tools_rwlock_t* rwlock);
void hydrant_tools_rwlock_destroy(hydrant_tools_rwlock_t* rwlock);
void hydrant_tools_rwlock_rdlock(hydrant_tools_rwlock_t* rwlock);
void hydrant_tools_rwlock_wrlock(hydrant_tools_rwlock_t* rwlock);
int hydrant_tools_rwlock_tryrdlock(hydrant_tools_rwlock_t* rwlock);
int hydrant_tools_rwlock_trywrlock(hydrant_tools_rwlock_t* rwlock);
void hydrant_tools_rwlock_unlock(hydrant_tools_rwlock_t* rwlock);

/* The same with checks; `where` is the caller's "file:line". */
void hydrant_tools_mutex_destroy_checked(hydrant_tools_mutex_t* mutex, const char* where);
void hydrant_tools_mutex_lock_checked(hydrant_tools_mutex_t* mutex, const char* where);
int hydrant_tools_mutex_trylock_checked(hydrant_tools_mutex_t* mutex, const char* where);
void hydrant_tools_mutex_unlock_checked(hydrant_tools_mutex_t* mutex, const char* where);
void hydrant_tools_mutex_assert(const hydrant_tools_mutex_t* mutex, int locked, const char* where);
void hydrant_tools_cond_wait_checked(hydrant_tools_cond_t* cond, hydrant_tools_mutex_t* mutex,
                                     const char* where);
void hydrant_tools_rwlock_destroy_checked(hydrant_tools_rwlock_t* rwlock, const char* where);
void hydrant_tools_rwlock_rdlock_checked(hydrant_tools_rwlock_t* rwlock, const char* where);
void hydrant_tools_rwlock_wrlock_checked(hydrant_tools_rwlock_t* rwlock, const char* where);
int hydrant_tools_rwlock_tryrdlock_checked(hydrant_tools_rwlock_t* rwlock, const char* where);
int hydrant_tools_rwlock_trywrlock_checked(hydrant_tools_rwlock_t* rwlock, const char* where);
void hydrant_tools_rwlock_unlock_checked(hydrant_tools_rwlock_t* rwlock, const char* where);
/* `held`: 0 not held, 1 for reading, 2 for writing, 3 for either. */
void hydrant_tools_rwlock_assert(const hydrant_tools_rwlock_t* rwlock, int held, const char* where);

HYDRANT_TOOLS_END

#define gasnett_mutex_t hydrant_tools_mutex_t
#define gasnett_cond_t hydrant_tools_cond_t
#define gasnett_rwlock_t hydrant_tools_rwlock_t
#define GASNETT_MUTEX_INITIALIZER \
  { PTHREAD_MUTEX_INITIALIZER, 0 }
#define GASNETT_COND_INITIALIZER \
  { PTHREAD_COND_INITIALIZER }
#define GASNETT_RWLOCK_INITIALIZER \
  {                                \
    { 0, 0, 0, 0, 0, 0, 0 }        \
  }

#define gasnett_mutex_init(pl) hydrant_tools_mutex_init(pl)
/* Returns pthread's error number, for example for a locked mutex, without checks. */
#define gasnett_mutex_destroy_ignoreerr(pl) hydrant_tools_mutex_destroy(pl)
#define gasnett_cond_init(pc) hydrant_tools_cond_init(pc)
#define gasnett_cond_destroy(pc) hydrant_tools_cond_destroy(pc)
#define gasnett_rwlock_init(pl) hydrant_tools_rwlock_init(pl)

#if HYDRANT_TOOLS_THREADS || (defined(GASNETT_USE_TRUE_MUTEXES) && GASNETT_USE_TRUE_MUTEXES)
#define HYDRANT_TOOLS_TRUE_LOCKS 1
#define gasnett_cond_signal(pc) ((void)pthread_cond_signal(&(pc)->cond))
#define gasnett_cond_broadcast(pc) ((void)pthread_cond_broadcast(&(pc)->cond))
#else
#define HYDRANT_TOOLS_TRUE_LOCKS 0
#define gasnett_cond_signal(pc) ((void)(pc))
#define gasnett_cond_broadcast(pc) ((void)(pc))
#endif

#if HYDRANT_TOOLS_DEBUG
#define HYDRANT_TOOLS_WHERE __FILE__ ":" _STRINGIFY(__LINE__)
#define gasnett_mutex_destroy(pl) hydrant_tools_mutex_destroy_checked(pl, HYDRANT_TOOLS_WHERE)
#define gasnett_mutex_lock(pl) hydrant_tools_mutex_lock_checked(pl, HYDRANT_TOOLS_WHERE)
#define gasnett_mutex_trylock(pl) hydrant_tools_mutex_trylock_checked(pl, HYDRANT_TOOLS_WHERE)
#define gasnett_mutex_unlock(pl) hydrant_tools_mutex_unlock_checked(pl, HYDRANT_TOOLS_WHERE)
#define gasnett_mutex_assertlocked(pl) hydrant_tools_mutex_assert(pl, 1, HYDRANT_TOOLS_WHERE)
#define gasnett_mutex_assertunlocked(pl) hydrant_tools_mutex_assert(pl, 0, HYDRANT_TOOLS_WHERE)
#define gasnett_rwlock_destroy(pl) hydrant_tools_rwlock_destroy_checked(pl, HYDRANT_TOOLS_WHERE)
#define gasnett_rwlock_rdlock(pl) hydrant_tools_rwlock_rdlock_checked(pl, HYDRANT_TOOLS_WHERE)
#define gasnett_rwlock_wrlock(pl) hydrant_tools_rwlock_wrlock_checked(pl, HYDRANT_TOOLS_WHERE)
#define gasnett_rwlock_tryrdlock(pl) hydrant_tools_rwlock_tryrdlock_checked(pl, HYDRANT_TOOLS_WHERE)
#define gasnett_rwlock_trywrlock(pl) hydrant_tools_rwlock_trywrlock_checked(pl, HYDRANT_TOOLS_WHERE)
#define gasnett_rwlock_unlock(pl) hydrant_tools_rwlock_unlock_checked(pl, HYDRANT_TOOLS_WHERE)
#define gasnett_rwlock_assertunlocked(pl) hydrant_tools_rwlock_assert(pl, 0, HYDRANT_TOOLS_WHERE)
#define gasnett_rwlock_assertrdlocked(pl) hydrant_tools_rwlock_assert(pl, 1, HYDRANT_TOOLS_WHERE)
#define gasnett_rwlock_assertwrlocked(pl) hydrant_tools_rwlock_assert(pl, 2, HYDRANT_TOOLS_WHERE)
#define gasnett_rwlock_assertlocked(pl) hydrant_tools_rwlock_assert(pl, 3, HYDRANT_TOOLS_WHERE)
#else
#define gasnett_mutex_assertlocked(pl) ((void)0)
#define gasnett_mutex_assertunlocked(pl) ((void)0)
#define gasnett_rwlock_assertunlocked(pl) ((void)0)
#define gasnett_rwlock_assertrdlocked(pl) ((void)0)
#define gasnett_rwlock_assertwrlocked(pl) ((void)0)
#define gasnett_rwlock_assertlocked(pl) ((void)0)
#define gasnett_mutex_destroy(pl) ((void)hydrant_tools_mutex_destroy(pl))
#define gasnett_rwlock_destroy(pl) hydrant_tools_rwlock_destroy(pl)
#if HYDRANT_TOOLS_TRUE_LOCKS
#define gasnett_mutex_lock(pl) ((void)pthread_mutex_lock(&(pl)->mutex))
#define gasnett_mutex_trylock(pl) (pthread_mutex_trylock(&(pl)->mutex))
#define gasnett_mutex_unlock(pl) ((void)pthread_mutex_unlock(&(pl)->mutex))
#define gasnett_rwlock_rdlock(pl) hydrant_tools_rwlock_rdlock(pl)
#define gasnett_rwlock_wrlock(pl) hydrant_tools_rwlock_wrlock(pl)
#define gasnett_rwlock_tryrdlock(pl) hydrant_tools_rwlock_tryrdlock(pl)
#define gasnett_rwlock_trywrlock(pl) hydrant_tools_rwlock_trywrlock(pl)
#define gasnett_rwlock_unlock(pl) hydrant_tools_rwlock_unlock(pl)
#else
#define gasnett_mutex_lock(pl) ((void)(pl))
#define gasnett_mutex_trylock(pl) ((void)(pl), 0)
#define gasnett_mutex_unlock(pl) ((void)(pl))
#define gasnett_rwlock_rdlock(pl) ((void)(pl))
#define gasnett_rwlock_wrlock(pl) ((void)(pl))
#define gasnett_rwlock_tryrdlock(pl) ((void)(pl), 0)
#define gasnett_rwlock_trywrlock(pl) ((void)(pl), 0)
#define gasnett_rwlock_unlock(pl) ((void)(pl))
#endif
#endif

/* Without threads no other thread can signal, so a wait prints an error and ends the program. */
#if !HYDRANT_TOOLS_TRUE_LOCKS
#define gasnett_cond_wait(pc, pl) hydrant_tools_cond_wait_alone(pc, pl)
#elif HYDRANT_TOOLS_DEBUG
#define gasnett_cond_wait(pc, pl) hydrant_tools_cond_wait_checked(pc, pl, HYDRANT_TOOLS_WHERE)
#else
#define gasnett_cond_wait(pc, pl) ((void)pthread_cond_wait(&(pc)->cond, &(pl)->mutex))
#endif

#endif
