// A timer signal whose handler replaces memory, wherever it interrupts its thread.
#include "tests/stale/hunt/handler.hpp"

#include "tests/stale/hunt/book.hpp"

#include <cerrno>
#include <mutex>
#include <sys/mman.h>
#include <unistd.h>

namespace hydrant::stale {
namespace {

constexpr size_t kBytes = Handler::kPages * kPageBytes;
constexpr int kPrivatePages = MAP_PRIVATE | MAP_ANONYMOUS;
constexpr long kPeriodNs = 1'000'000;

int handler_signal() { return SIGRTMIN + 4; }
void* pointer(uintptr_t addr) { return reinterpret_cast<void*>(addr); }
uintptr_t map_at(uintptr_t addr, int flags) {
  void* got = mmap(pointer(addr), kBytes, PROT_READ | PROT_WRITE, kPrivatePages | flags, -1, 0);
  return got != MAP_FAILED ? reinterpret_cast<uintptr_t>(got) : 0;
}

thread_local Handler* volatile t_handler = nullptr;

}  // namespace

Handler::Handler(uint64_t seed) : random_(seed) {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action {};
    action.sa_handler = &Handler::run;
    action.sa_flags = SA_RESTART;
    sigaction(handler_signal(), &action, nullptr);
  });
  for (auto& area : areas_) area = map_at(0, 0);
  t_handler = this;
  sigevent event{};
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = handler_signal();
  event._sigev_un._tid = gettid();
  if (timer_create(CLOCK_MONOTONIC, &event, &timer_) != 0) return;
  started_ = true;
  // An odd period, so that it does not synchronise with other timers.
  const timespec period{0, kPeriodNs + 173};
  const itimerspec every{period, period};
  timer_settime(timer_, 0, &every, nullptr);
}

Handler::~Handler() {
  if (started_) timer_delete(timer_);
  t_handler = nullptr;
  for (auto& area : areas_) {
    if (area != 0) munmap(pointer(area), kBytes);
  }
}

Range Handler::area(size_t i) const { return {areas_[i], areas_[i] != 0 ? kBytes : 0}; }

void Handler::run(int) {
  const int error = errno;
  if (Handler* handler = t_handler) handler->change();
  errno = error;
}

// Moves the pages onto another area; the old mapping stays, empty. By way of a free place: there all of
// them are one mapping. Older kernels unmap the target before they refuse to move several mappings at once.
void Handler::move_onto(uintptr_t addr, std::atomic<uintptr_t>& target) {
  void* moved = mremap(pointer(addr), kBytes, kBytes, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, nullptr);
  if (moved == MAP_FAILED) return;
  if (mremap(moved, kBytes, kBytes, MREMAP_MAYMOVE | MREMAP_FIXED, pointer(target)) != MAP_FAILED)
    return;
  // The target may be unmapped, and other memory may have been mapped there since.
  target = reinterpret_cast<uintptr_t>(moved);
}

// Counts a change even if the kernel refuses it: unchanged memory is then checked as a new life.
void Handler::change() {
  std::atomic<uintptr_t>& area = areas_[random_.below(kAreas)];
  const uintptr_t addr = area;
  const size_t from = random_.below(kPages) * kPageBytes;
  const size_t len = random_.between(1, kPages - from / kPageBytes) * kPageBytes;
  switch (addr == 0 ? 4 : random_.below(5)) {
    case 0: madvise(pointer(addr + from), len, MADV_DONTNEED); break;
    case 1:
      mmap(pointer(addr + from), len, PROT_READ | PROT_WRITE, kPrivatePages | MAP_FIXED, -1, 0);
      break;
    case 2: {
      std::atomic<uintptr_t>& target = areas_[random_.below(kAreas)];
      if (target != 0 && target != addr) move_onto(addr, target);
      break;
    }
    case 3: {
      // Unmaps the area and maps it again, elsewhere if another thread has taken the addresses.
      munmap(pointer(addr), kBytes);
      uintptr_t again = map_at(addr, MAP_FIXED_NOREPLACE);
      if (again != addr) again = map_at(0, 0);
      area = again;
      break;
    }
    default:
      if (addr != 0) munmap(pointer(addr), kBytes);
      area = map_at(0, 0);
  }
  lives_.fetch_add(1, std::memory_order_relaxed);
}

Handler::Away::Away() {
  sigset_t ours;
  sigemptyset(&ours);
  sigaddset(&ours, handler_signal());
  pthread_sigmask(SIG_BLOCK, &ours, &before_);
}
Handler::Away::~Away() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

}  // namespace hydrant::stale
