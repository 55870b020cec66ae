// Replaces the functions of libc by which a library learns the time, waits, and draws numbers.
#include "tests/simulation/virtual_time.hpp"

#include "tests/fakes/fake_ibverbs.hpp"

#include <ctime>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace hydrant::simulation {
namespace {

constexpr uint64_t kStart = 1000 * VirtualTime::kSecond;

bool g_is_simulating = false;
uint64_t g_now_ns = 0;
Random g_random{0};

}  // namespace

VirtualTime::VirtualTime(uint64_t seed) {
  g_is_simulating = true;
  g_now_ns = kStart;
  g_random = Random(seed);
}
VirtualTime::~VirtualTime() { g_is_simulating = false; }

uint64_t VirtualTime::elapsed_ns() { return g_now_ns - kStart; }

void VirtualTime::elapse(uint64_t ns) {
  const uint64_t before = g_now_ns / kMillisecond;
  g_now_ns += ns;
  if (const uint64_t passed = g_now_ns / kMillisecond - before; passed != 0)
    fake_verbs::elapse(passed);
}

}  // namespace hydrant::simulation

using namespace hydrant::simulation;

extern "C" int clock_gettime(clockid_t clock, timespec* now) noexcept {
  if (!g_is_simulating) return static_cast<int>(syscall(SYS_clock_gettime, clock, now));
  *now = {static_cast<time_t>(g_now_ns / VirtualTime::kSecond),
          static_cast<long>(g_now_ns % VirtualTime::kSecond)};
  return 0;
}

extern "C" int nanosleep(const timespec* time, timespec* left) {
  if (!g_is_simulating) return static_cast<int>(syscall(SYS_nanosleep, time, left));
  VirtualTime::elapse(static_cast<uint64_t>(time->tv_sec) * VirtualTime::kSecond +
                      static_cast<uint64_t>(time->tv_nsec));
  return 0;
}

extern "C" ssize_t getrandom(void* to, size_t bytes, unsigned flags) {
  if (!g_is_simulating) return syscall(SYS_getrandom, to, bytes, flags);
  for (size_t i = 0; i < bytes; ++i) static_cast<uint8_t*>(to)[i] = g_random.next() & 0xff;
  return static_cast<ssize_t>(bytes);
}
