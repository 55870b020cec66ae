// Runs the thread that reads the kernel's reports, and ends watching when the program closes the userfaultfd,
// or they cannot be read. Monitor::start() starts it.
#include "firehose/watch/reader_thread.hpp"

#include "firehose/base/errno_text.hpp"
#include "firehose/base/log.hpp"
#include "firehose/base/machine/time_slice.hpp"
#include "firehose/base/start_gate.hpp"
#include "firehose/base/thread.hpp"
#include "firehose/base/uncancelled.hpp"

#include <cerrno>
#include <csignal>
#include <poll.h>
#include <pthread.h>
#include <sched.h>

namespace hydrant {
namespace {

constexpr size_t kReaderStack = 256 << 10;
constexpr uint64_t kReaderSliceNs = 100'000;
constexpr uint64_t kBeginDeadlineNs = 5'000'000'000;
// A release waits at most this long after the program closed the descriptor and opened an idle file under its
// number: the reader checks the number only when poll() returns.
constexpr int kMaxPollMs = 200;
// The same while deferred changes wait to be entered.
constexpr int kBehindPollMs = 1;
// A call that fails for now is tried again so often before watching ends, for about a second in all: callers
// of munmap() sleep meanwhile.
constexpr int kMaxTries = 1000;
constexpr uint64_t kAfterFailureNs = 1'000'000;

constexpr char kClosed[] =
    "the program closed the userfaultfd, perhaps with all its descriptors: create domains after "
    "that";
constexpr char kRefusedPoll[] =
    "poll() of the userfaultfd fails in the reader thread (a seccomp filter?): allow poll";
constexpr char kRefusedRead[] =
    "read() of the userfaultfd fails in the reader thread (a seccomp filter?): allow read";
constexpr char kRefusedChecks[] =
    "ioctl(), fstat() or fcntl() of the userfaultfd is refused (a seccomp filter?): allow ioctl, "
    "fstat, newfstatat and fcntl";

}  // namespace

int ReaderThread::start() noexcept {
  begun_.store(false, std::memory_order_relaxed);
  pthread_attr_t attributes;
  int error = pthread_attr_init(&attributes);
  if (error != 0) return error;
  (void)pthread_attr_setstacksize(&attributes, kReaderStack);
  (void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  // The program's signal handlers must run in its own threads.
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  error = pthread_create(&thread, &attributes, &main, this);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
  if (error != 0) return error;
  (void)pthread_setname_np(thread, "hydrant-watch");
  // The hook of pthread_create() makes each new thread sync first. Memory must not be watched before that is
  // over: the sync would wait for this reader.
  const uint64_t deadline = now_ns() + kBeginDeadlineNs;
  while (!begun_.load(std::memory_order_acquire)) {
    if (now_ns() > deadline) return ETIMEDOUT;
    sched_yield();
  }
  return 0;
}

void* ReaderThread::main(void* self) {
  auto* reader = static_cast<ReaderThread*>(self);
  // Callers of munmap() sleep until the reader has read. A short time slice lets it run before other threads'
  // slices end.
  shorten_time_slice(kReaderSliceNs);
  reader->begun_.store(true, std::memory_order_release);
  reader->read_forever();
  return nullptr;
}

void ReaderThread::read_forever() noexcept {
  for (int failures = 0;;) {
    pollfd reports{userfault_.descriptor(), POLLIN, 0};
    const int ready = uncancelled::poll(&reports, 1, deferred_.any() ? kBehindPollMs : kMaxPollMs);
    int error = ready < 0 ? errno : 0;
    // Checked before the reading: the number may be another file's by now.
    if (!userfault_.usable()) return stop(kRefusedChecks);
    if (deferred_.any()) (void)changes_.enter_deferred(false);
    if (ready > 0) {
      (void)state_.is_running();  // shows the hooks that the start has found
      error = changes_.read();
    }
    failures = error == 0 ? 0 : failures + 1;
    if (error == 0) continue;
    if (!may_pass(error) || failures == kMaxTries)
      return stop(ready < 0 ? kRefusedPoll : kRefusedRead, error);
    uncancelled::sleep_ns(kAfterFailureNs);
  }
}

// The kernel's reports have ended, or cannot be read: then `refused` tells why, and their callers sleep until
// the userfaultfd is closed. The sequence is odd until every cache has forgotten everything, so that settle()
// waits for that.
void ReaderThread::stop(const char* refused, int error) noexcept {
  const bool is_refused = userfault_.is_open();
  const char* reason = is_refused ? refused : kClosed;
  sequence_.begin();
  state_.end(userfault_, reason);
  watched_.note_lost();
  clients_.forget(MonitorClients::kAllMemory);
  sequence_.end();
  static RateLimit once(RateLimit::kOnce);
  if (is_refused && error != 0)
    return log_warning(once, "memory is no longer watched (%s): %s", errno_text(error), reason);
  log_warning(once, "memory is no longer watched: %s", reason);
}

}  // namespace hydrant
