// Episodes of a worker: threads whose stacks are pinned, and children of a fork.
#include "tests/stale/hunt/stacks.hpp"
#include "tests/stale/hunt/worker.hpp"
#include "tests/support/patience.hpp"

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
// Less than a hunt may be without progress.
constexpr time_t kChildSeconds = 40;

// Waits for the child and writes its status. False if it was killed at the deadline, after its stacks were
// shown.
bool wait_for(pid_t child, int* status) {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const time_t deadline = now.tv_sec + static_cast<time_t>(kChildSeconds * testing::patience());
  timespec pause{0, 50'000};
  while (waitpid(child, status, WNOHANG) == 0) {
    nanosleep(&pause, nullptr);
    if (pause.tv_nsec < 2'000'000) pause.tv_nsec *= 2;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (now.tv_sec < deadline) continue;
    std::fprintf(stderr, "Child %d does not end:\n", static_cast<int>(child));
    show_stacks(child);
    kill(child, SIGKILL);
    waitpid(child, status, 0);
    return false;
  }
  return true;
}

// A placeholder supply for blocks of the episodes, which are never handed over.
class NoSupply final : public Supply {
 public:
  bool get(Worker&, Block*) override { return false; }
  void free_block(Worker&, Block&) override {}
};
NoSupply g_no_supply;

}  // namespace

// The new thread acts for the worker, which waits for it: never two at once.
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

// Pins the new thread's stack. libc keeps some stacks for later threads, emptied by MADV_DONTNEED, and unmaps
// others.
void Worker::on_stack() {
  const auto start = reinterpret_cast<uintptr_t>(alloca(kBufferBytes + kCellBytes));
  Block block;
  block.range = {(start + kCellBytes - 1) / kCellBytes * kCellBytes, kBufferBytes};
  block.source = Source::kStack;
  block.supply = &g_no_supply;
  block.life = begin(Source::kStack, block.range);
  const size_t checks = random_.between(1, 4);
  for (size_t i = 0; i < checks; ++i) check(block);
  // libc may reuse a stack with its contents.
  leaving(block.range, Fate::kUnknown);
}

// Pins memory that the signal handler may replace at any moment; checks it only if it did not.
bool Worker::handlers_memory() {
  doing("memory of a handler");
  constexpr How kWays[] = {How::kPin, How::kPin, How::kTry, How::kWait, How::kAsync};
  const uint64_t lives = handler_->lives();
  const size_t which = random_.below(Handler::kAreas);
  Block block;
  block.range = handler_->area(which);
  if (block.range.len == 0) return false;
  block.source = Source::kSignal;
  block.supply = &g_no_supply;
  const uintptr_t cell = choose_cell(block.range);
  const Range range = choose_range(block.range, cell);
  Hold hold;
  if (take_hold(kWays[random_.below(std::size(kWays))], block, range, &hold) != PinAnswer::kHeld) {
    return true;
  }
  const Handler::Away away;
  if (handler_->lives() != lives) return cache_.release(hold), true;
  if (lives != handlers_count_) handlers_lives_ = {};
  handlers_count_ = lives;
  if (handlers_lives_[which] == 0) handlers_lives_[which] = begin(Source::kSignal, block.range);
  block.life = handlers_lives_[which];
  note_pin(block, range, cell);
  if (compare(hold, block, cell, true)) cache_.release(hold);
  return true;
}

// The parent keeps its pinned memory; the child has an empty cache and pins its own.
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
  hydrant_test_alarm(2 * static_cast<unsigned>(kChildSeconds));  // for a child without its parent
  holds_.clear();
  // Closes the parent's pipe: parent and child must not read each other's tags.
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

// Pins memory inherited from the parent, and the same addresses repeatedly in the child's own lives.
void Worker::child_hunt() {
  for (const Block& block : blocks_) {
    const bool is_private = block.slot != Windows::kNone && block.file < 0 &&
                            block.source != Source::kShm && block.source != Source::kShared;
    // Some memory is missing in the child: MADV_DONTFORK.
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
