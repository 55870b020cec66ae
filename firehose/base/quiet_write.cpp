// Takes back the signals that a write raises. Everything that writes messages, traces or statistics calls it;
// lint.writes finds what does not.
#include "firehose/base/quiet_write.hpp"

#include "firehose/base/thread.hpp"
#include "firehose/base/uncancelled.hpp"

#include <cerrno>
#include <csignal>
#include <ctime>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

namespace hydrant {
namespace {

constexpr int kRaised[] = {SIGPIPE, SIGXFSZ};

// Blocks the signals of writes for the calling thread, to which the kernel sends them.
class WriteSignalsBlocked {
 public:
  WriteSignalsBlocked() noexcept {
    sigemptyset(&new_ones_);
    for (const int number : kRaised) sigaddset(&new_ones_, number);
    pthread_sigmask(SIG_BLOCK, &new_ones_, &before_);
    sigset_t pending;
    sigemptyset(&pending);
    (void)sigpending(&pending);
    for (const int number : kRaised) {
      if (sigismember(&pending, number) == 1) sigdelset(&new_ones_, number);
    }
  }
  ~WriteSignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  WriteSignalsBlocked(const WriteSignalsBlocked&) = delete;
  WriteSignalsBlocked& operator=(const WriteSignalsBlocked&) = delete;

  // Takes back the signal of a write that has failed, unless one of its kind was pending before.
  void take_back() const noexcept {
    const timespec at_once = {};
    while (uncancelled::sigtimedwait(&new_ones_, nullptr, &at_once) < 0 && errno == EINTR) {
    }
  }

 private:
  sigset_t new_ones_;  // without those that were pending
  sigset_t before_;
};

// False: the deadline has passed, which the first call sets (0 before).
bool wait_for_room(int fd, uint64_t patience_ns, uint64_t* deadline_ns) noexcept {
  const uint64_t now = now_ns();
  if (*deadline_ns == 0) *deadline_ns = now + patience_ns;
  if (now >= *deadline_ns) return false;
  pollfd room = {.fd = fd, .events = POLLOUT, .revents = 0};
  (void)uncancelled::poll(&room, 1, static_cast<int>((*deadline_ns - now) / 1'000'000 + 1));
  return true;
}

}  // namespace

Written write_quietly(int fd, const void* data, size_t bytes, uint64_t patience_ns) noexcept {
  const int kept = errno;
  const WriteSignalsBlocked signals;
  const auto* from = static_cast<const char*>(data);
  uint64_t deadline_ns = 0;
  Written done;
  while (done.bytes < bytes && done.error == 0) {
    const ssize_t written = uncancelled::write(fd, from + done.bytes, bytes - done.bytes);
    if (written > 0)
      done.bytes += static_cast<size_t>(written);
    else if (written == 0)
      done.error = ENOSPC;
    else if (errno != EINTR && (errno != EAGAIN || !wait_for_room(fd, patience_ns, &deadline_ns)))
      done.error = errno;
  }
  if (done.error == EPIPE || done.error == EFBIG) signals.take_back();
  errno = kept;
  return done;
}

int open_quietly(const char* path, int flags) noexcept {
  const int kept = errno;
  int fd = uncancelled::open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK | flags, 0666);
  if (fd < 0) {
    fd = -errno;
  } else if (const int now = fcntl(fd, F_GETFL); now >= 0) {
    (void)fcntl(fd, F_SETFL, now & ~O_NONBLOCK);
  }
  errno = kept;
  return fd;
}

bool is_pipe(const char* path) noexcept {
  const int kept = errno;
  struct stat about = {};
  const bool is = stat(path, &about) == 0 && S_ISFIFO(about.st_mode);
  errno = kept;
  return is;
}

}  // namespace hydrant
