// Threads whose stacks are pinned, and children of a fork.
#include "tests/stale/hunt/worker.hpp"

#include <alloca.h>
#include <cinttypes>
#include <cstdio>
#include <ctime>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace hydrant::stale {
namespace {

constexpr size_t kStackBytes[] = {size_t{128} << 10, size_t{1} << 20, size_t{12} << 20};
constexpr size_t kBufferBytes = size_t{48} << 10;
constexpr int kChildRounds = 24;
constexpr int kCleanExit = 0;
constexpr int kStaleExit = 70;
constexpr int kUselessExit = 71;
constexpr time_t kChildSeconds = 60;

// The child has ended: its status; or it was killed at the deadline.
bool wait_for(pid_t child, int* status) {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const time_t deadline = now.tv_sec + kChildSeconds;
  timespec pause{0, 50'000};
  while (waitpid(child, status, WNOHANG) == 0) {
    nanosleep(&pause, nullptr);
    if (pause.tv_nsec < 2'000'000) pause.tv_nsec *= 2;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (now.tv_sec < deadline) continue;
    kill(child, SIGKILL);
    waitpid(child, status, 0);
    return false;
  }
  return true;
}

// A supply for what the episodes own: nobody else ever sees these blocks.
class NoSupply final : public Supply {
 public:
  bool get(Worker&, Block*) override { return false; }
  void give_back(Worker&, Block&) override {}
};
NoSupply g_no_supply;

}  // namespace

// The thread stands in for the worker, which waits for it: never two at once.
bool Worker::thread_episode() {
  doing("thread");
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes[random_.below(std::size(kStackBytes))]);
  pthread_t thread{};
  const int error = pthread_create(&thread, &attributes, &Worker::stack_main, this);
  pthread_attr_destroy(&attributes);
  if (error == 0) pthread_join(thread, nullptr);
  return error == 0;
}

void* Worker::stack_main(void* worker) {
  static_cast<Worker*>(worker)->on_stack();
  return nullptr;
}

// What this thread pins is its stack. libc keeps some stacks for the next thread, emptied by
// MADV_DONTNEED, and unmaps others.
void Worker::on_stack() {
  const auto start = reinterpret_cast<uintptr_t>(alloca(kBufferBytes + kCellBytes));
  Block block;
  block.range = {(start + kCellBytes - 1) / kCellBytes * kCellBytes, kBufferBytes};
  block.source = Source::kStack;
  block.supply = &g_no_supply;
  block.life = begin(Source::kStack, block.range);
  const size_t checks = random_.between(1, 4);
  for (size_t i = 0; i < checks; ++i) check(block);
  // A stack that libc keeps may be used again as it is.
  leaving(block.range, Fate::kUnknown);
}

// The parent goes on with its pinned memory while the child, whose cache is empty, pins its own.
bool Worker::fork_episode() {
  doing("fork");
  const pid_t pid = fork();
  if (pid < 0) return false;
  if (pid == 0) child();
  for (size_t i = 0; i < 4 && !blocks_.empty(); ++i) {
    check(blocks_[random_.below(blocks_.size())]);
  }
  doing("wait for the child");
  int status = 0;
  const bool ended = wait_for(pid, &status);
  add(kChildren);
  if (ended && WIFEXITED(status) && WEXITSTATUS(status) == kCleanExit) return true;
  char text[96];
  std::snprintf(text, sizeof text, "child %d %s (wait status %#x)", static_cast<int>(pid),
                ended ? "failed" : "did not end", static_cast<unsigned>(status));
  const bool stale = ended && WIFEXITED(status) && WEXITSTATUS(status) == kStaleExit;
  report(stale ? kStale : kBroken, text);
  return true;
}

void Worker::child() {
  in_child_ = " (child)";
  alarm(static_cast<unsigned>(kChildSeconds));
  holds_.clear();
  // The parent's ends of the pipe: a tag of one must not be read by the other.
  close(pipe_[0]);
  close(pipe_[1]);
  if (pipe2(pipe_, O_NONBLOCK | O_CLOEXEC) != 0) _exit(kUselessExit);
  const uint64_t stale = count(kStale);
  const uint64_t broken = count(kBroken) + count(kUnwatchedKept);
  const uint64_t checks = count(kChecks);
  child_hunt();
  if (count(kStale) != stale) _exit(kStaleExit);
  _exit(count(kBroken) + count(kUnwatchedKept) != broken || count(kChecks) == checks ? kUselessExit
                                                                                     : kCleanExit);
}

// The same addresses again and again, in lives of the child's own, and memory that it has from its parent.
void Worker::child_hunt() {
  for (const Block& block : blocks_) {
    const bool is_private = block.slot != Windows::kNone && block.file < 0 &&
                            block.source != Source::kShm && block.source != Source::kShared;
    // Some of it is not here: MADV_DONTFORK.
    void* memory = reinterpret_cast<void*>(block.range.addr);
    if (is_private && msync(memory, block.range.len, MS_ASYNC) == 0) check(block);
  }
  for (int i = 0; i < kChildRounds; ++i) {
    const size_t len = random_.between(1, 8) * kPageBytes;
    void* memory = mmap(nullptr, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) continue;
    Block block;
    block.range = {reinterpret_cast<uintptr_t>(memory), len};
    block.source = Source::kFork;
    block.supply = &g_no_supply;
    block.life = begin(Source::kFork, block.range);
    check(block);
    if (random_.one_in(2)) {
      leaving(block.range, Fate::kPagesGo);
      madvise(memory, len, MADV_DONTNEED);
      block.life = begin(Source::kFork, block.range);
      check(block);
    }
    leaving(block.range, Fate::kPagesGo);
    munmap(memory, len);
  }
}

}  // namespace hydrant::stale
