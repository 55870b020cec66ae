// The cancellation points of libc that the libraries call, with cancellation of the thread disabled. A thread
// that is cancelled in one of them would keep what the library has locked or begun (cancellation.hpp).
//
// Each does what the function of its name in libc does, sets errno as that does, and takes 20 ns more.
// lint.cancellation fails for an object that calls a cancellation point of libc itself.
#pragma once

#include "firehose/base/cancellation.hpp"

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/wait.h>

struct epoll_event;
struct ifaddrs;

namespace hydrant::uncancelled {

// Calls a function of another library, which may contain cancellation points.
template <typename Function, typename... Arguments>
auto call(Function function, Arguments... arguments) noexcept {
  const CancellationDisabled off;
  return function(arguments...);
}

// ---- descriptors ----
int open(const char* path, int flags, mode_t mode = 0) noexcept;
int close(int fd) noexcept;
ssize_t read(int fd, void* to, size_t bytes) noexcept;
ssize_t pread(int fd, void* to, size_t bytes, off_t at) noexcept;
ssize_t write(int fd, const void* from, size_t bytes) noexcept;
ssize_t pwrite(int fd, const void* from, size_t bytes, off_t at) noexcept;
int fallocate(int fd, int mode, off_t at, off_t bytes) noexcept;
int fsync(int fd) noexcept;
int msync(void* addr, size_t bytes, int flags) noexcept;
ssize_t getrandom(void* to, size_t bytes, unsigned flags) noexcept;

// ---- sockets ----
int accept4(int fd, sockaddr* from, socklen_t* bytes, int flags) noexcept;
int connect(int fd, const sockaddr* to, socklen_t bytes) noexcept;
ssize_t send(int fd, const void* from, size_t bytes, int flags) noexcept;
ssize_t sendto(int fd, const void* from, size_t bytes, int flags, const sockaddr* to,
               socklen_t to_bytes) noexcept;
ssize_t sendmsg(int fd, const msghdr* message, int flags) noexcept;
ssize_t recv(int fd, void* to, size_t bytes, int flags) noexcept;
ssize_t recvmsg(int fd, msghdr* message, int flags) noexcept;
int getifaddrs(ifaddrs** all) noexcept;

// ---- waits ----
int poll(pollfd* polled, nfds_t count, int timeout_ms) noexcept;
int ppoll(pollfd* polled, nfds_t count, const timespec* timeout, const sigset_t* mask) noexcept;
int epoll_wait(int fd, epoll_event* events, int most, int timeout_ms) noexcept;
void sleep_ns(uint64_t ns) noexcept;  // or until a signal
int pause() noexcept;
int sigtimedwait(const sigset_t* signals, siginfo_t* info, const timespec* timeout) noexcept;
int waitid(idtype_t type, id_t id, siginfo_t* info, int options) noexcept;
pid_t waitpid(pid_t pid, int* status, int options) noexcept;
int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const timespec* until) noexcept;
int pthread_join(pthread_t thread, void** result) noexcept;

// ---- streams ----
std::FILE* fopen(const char* path, const char* mode) noexcept;
int fclose(std::FILE* stream) noexcept;
int fflush(std::FILE* stream) noexcept;
char* fgets(char* text, int room, std::FILE* stream) noexcept;
[[gnu::format(printf, 2, 3)]] int fprintf(std::FILE* stream, const char* format, ...) noexcept;

}  // namespace hydrant::uncancelled
