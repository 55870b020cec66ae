// Calls libc with cancellation disabled. No other source of the libraries calls these functions.
#include "firehose/base/uncancelled.hpp"

#include <cstdarg>
#include <fcntl.h>
#include <ifaddrs.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

namespace hydrant::uncancelled {

int open(const char* path, int flags, mode_t mode) noexcept {
  const CancellationDisabled off;
  return ::open(path, flags, mode);
}

int close(int fd) noexcept {
  const CancellationDisabled off;
  return ::close(fd);
}

ssize_t read(int fd, void* to, size_t bytes) noexcept {
  const CancellationDisabled off;
  return ::read(fd, to, bytes);
}

ssize_t pread(int fd, void* to, size_t bytes, off_t at) noexcept {
  const CancellationDisabled off;
  return ::pread(fd, to, bytes, at);
}

ssize_t write(int fd, const void* from, size_t bytes) noexcept {
  const CancellationDisabled off;
  return ::write(fd, from, bytes);
}

ssize_t pwrite(int fd, const void* from, size_t bytes, off_t at) noexcept {
  const CancellationDisabled off;
  return ::pwrite(fd, from, bytes, at);
}

int fallocate(int fd, int mode, off_t at, off_t bytes) noexcept {
  const CancellationDisabled off;
  return ::fallocate(fd, mode, at, bytes);
}

int fsync(int fd) noexcept {
  const CancellationDisabled off;
  return ::fsync(fd);
}

int msync(void* addr, size_t bytes, int flags) noexcept {
  const CancellationDisabled off;
  return ::msync(addr, bytes, flags);
}

ssize_t getrandom(void* to, size_t bytes, unsigned flags) noexcept {
  const CancellationDisabled off;
  return ::getrandom(to, bytes, flags);
}

int accept4(int fd, sockaddr* from, socklen_t* bytes, int flags) noexcept {
  const CancellationDisabled off;
  return ::accept4(fd, from, bytes, flags);
}

int connect(int fd, const sockaddr* to, socklen_t bytes) noexcept {
  const CancellationDisabled off;
  return ::connect(fd, to, bytes);
}

ssize_t send(int fd, const void* from, size_t bytes, int flags) noexcept {
  const CancellationDisabled off;
  return ::send(fd, from, bytes, flags);
}

ssize_t sendto(int fd, const void* from, size_t bytes, int flags, const sockaddr* to,
               socklen_t to_bytes) noexcept {
  const CancellationDisabled off;
  return ::sendto(fd, from, bytes, flags, to, to_bytes);
}

ssize_t sendmsg(int fd, const msghdr* message, int flags) noexcept {
  const CancellationDisabled off;
  return ::sendmsg(fd, message, flags);
}

ssize_t recv(int fd, void* to, size_t bytes, int flags) noexcept {
  const CancellationDisabled off;
  return ::recv(fd, to, bytes, flags);
}

ssize_t recvmsg(int fd, msghdr* message, int flags) noexcept {
  const CancellationDisabled off;
  return ::recvmsg(fd, message, flags);
}

int getifaddrs(ifaddrs** all) noexcept {
  const CancellationDisabled off;
  return ::getifaddrs(all);
}

int poll(pollfd* polled, nfds_t count, int timeout_ms) noexcept {
  const CancellationDisabled off;
  return ::poll(polled, count, timeout_ms);
}

int ppoll(pollfd* polled, nfds_t count, const timespec* timeout, const sigset_t* mask) noexcept {
  const CancellationDisabled off;
  return ::ppoll(polled, count, timeout, mask);
}

int epoll_wait(int fd, epoll_event* events, int most, int timeout_ms) noexcept {
  const CancellationDisabled off;
  return ::epoll_wait(fd, events, most, timeout_ms);
}

void sleep_ns(uint64_t ns) noexcept {
  const CancellationDisabled off;
  constexpr uint64_t kSecond = 1'000'000'000;
  const timespec time{static_cast<time_t>(ns / kSecond), static_cast<long>(ns % kSecond)};
  (void)::nanosleep(&time, nullptr);
}

int pause() noexcept {
  const CancellationDisabled off;
  return ::pause();
}

int sigtimedwait(const sigset_t* signals, siginfo_t* info, const timespec* timeout) noexcept {
  const CancellationDisabled off;
  return ::sigtimedwait(signals, info, timeout);
}

int waitid(idtype_t type, id_t id, siginfo_t* info, int options) noexcept {
  const CancellationDisabled off;
  return ::waitid(type, id, info, options);
}

pid_t waitpid(pid_t pid, int* status, int options) noexcept {
  const CancellationDisabled off;
  return ::waitpid(pid, status, options);
}

int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const timespec* until) noexcept {
  const CancellationDisabled off;
  return ::pthread_cond_clockwait(condition, mutex, clock, until);
}

int pthread_join(pthread_t thread, void** result) noexcept {
  const CancellationDisabled off;
  return ::pthread_join(thread, result);
}

std::FILE* fopen(const char* path, const char* mode) noexcept {
  const CancellationDisabled off;
  return std::fopen(path, mode);
}

int fclose(std::FILE* stream) noexcept {
  const CancellationDisabled off;
  return std::fclose(stream);
}

int fflush(std::FILE* stream) noexcept {
  const CancellationDisabled off;
  return std::fflush(stream);
}

char* fgets(char* text, int room, std::FILE* stream) noexcept {
  const CancellationDisabled off;
  return std::fgets(text, room, stream);
}

int fprintf(std::FILE* stream, const char* format, ...) noexcept {
  const CancellationDisabled off;
  va_list arguments;
  va_start(arguments, format);
  const int written = std::vfprintf(stream, format, arguments);
  va_end(arguments);
  return written;
}

}  // namespace hydrant::uncancelled
