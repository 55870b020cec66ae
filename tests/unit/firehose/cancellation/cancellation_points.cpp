// Makes cancellation points of the calls in which the library could keep something when a thread ends. The
// program is linked with --wrap for each of them.
#include <cstdarg>
#include <cstddef>
#include <ctime>
#include <pthread.h>
#include <sys/types.h>

namespace {

// Cancellation points before and after the call: with the caller's locks held, and with the result just
// taken.
template <typename Call>
auto with_points(Call call) {
  pthread_testcancel();
  const auto result = call();
  pthread_testcancel();
  return result;
}

}  // namespace

extern "C" {

int __real_pthread_mutex_lock(pthread_mutex_t* mutex);
int __wrap_pthread_mutex_lock(pthread_mutex_t* mutex);
int __wrap_pthread_mutex_lock(pthread_mutex_t* mutex) {
  return with_points([&] { return __real_pthread_mutex_lock(mutex); });
}

int __real_pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t id,
                                  const timespec* until);
int __wrap_pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t id,
                                  const timespec* until);
int __wrap_pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t id,
                                  const timespec* until) {
  return with_points([&] { return __real_pthread_cond_clockwait(condition, mutex, id, until); });
}

int __real_sched_yield();
int __wrap_sched_yield();
int __wrap_sched_yield() { return with_points(__real_sched_yield); }

// Six words, as the kernel takes them: arguments that the caller did not pass are ignored.
long __real_syscall(long number, long a, long b, long c, long d, long e, long f);
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f);
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f) {
  return with_points([&] { return __real_syscall(number, a, b, c, d, e, f); });
}

int __real_ioctl(int fd, unsigned long request, void* argument);
int __wrap_ioctl(int fd, unsigned long request, void* argument);
int __wrap_ioctl(int fd, unsigned long request, void* argument) {
  return with_points([&] { return __real_ioctl(fd, request, argument); });
}

void* __real_mmap(void* addr, size_t len, int protection, int flags, int fd, off_t offset);
void* __wrap_mmap(void* addr, size_t len, int protection, int flags, int fd, off_t offset);
void* __wrap_mmap(void* addr, size_t len, int protection, int flags, int fd, off_t offset) {
  return with_points([&] { return __real_mmap(addr, len, protection, flags, fd, offset); });
}

int __real_munmap(void* addr, size_t len);
int __wrap_munmap(void* addr, size_t len);
int __wrap_munmap(void* addr, size_t len) {
  return with_points([&] { return __real_munmap(addr, len); });
}

int __real_madvise(void* addr, size_t len, int advice);
int __wrap_madvise(void* addr, size_t len, int advice);
int __wrap_madvise(void* addr, size_t len, int advice) {
  return with_points([&] { return __real_madvise(addr, len, advice); });
}

}  // extern "C"
