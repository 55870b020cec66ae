// Decides whether the time-stamp counter is usable as a clock. Called by timers.cpp at the first tick.
#include "am/tools/clock.hpp"

#include "firehose/base/uncancelled.hpp"

#include <cstddef>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace hydrant {
namespace {

#if defined(__x86_64__)
constexpr unsigned kPowerLeaf = 0x80000007;
constexpr unsigned kInvariantBit = 1u << 8;  // in edx

bool processor_says_invariant() noexcept {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(kPowerLeaf, &eax, &ebx, &ecx, &edx) != 0 && (edx & kInvariantBit) != 0;
}

// True if `word` is one of the blank-separated words of a file; `otherwise` if the file cannot be read.
bool file_has_word(const char* path, const char* word, bool otherwise) noexcept {
  const int fd = uncancelled::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return otherwise;
  char text[256];
  const ssize_t len = uncancelled::read(fd, text, sizeof text - 1);
  uncancelled::close(fd);
  if (len < 0) return otherwise;
  text[len] = '\0';
  const size_t word_len = std::strlen(word);
  for (const char* p = text; *p != '\0';) {
    p += std::strspn(p, " \n");
    const size_t this_len = std::strcspn(p, " \n");
    if (this_len == word_len && std::memcmp(p, word, word_len) == 0) return true;
    p += this_len;
  }
  return false;
}
#endif

}  // namespace

bool tsc_is_steady() noexcept {
#if defined(__x86_64__)
  // Virtual machines often hide the processor's bit, although the guest kernel uses the counter as its
  // clock.
#define HYDRANT_CLOCKSOURCE "/sys/devices/system/clocksource/clocksource0/"
  if (file_has_word(HYDRANT_CLOCKSOURCE "current_clocksource", "tsc", false)) return true;
  return processor_says_invariant() &&
         file_has_word(HYDRANT_CLOCKSOURCE "available_clocksource", "tsc", true);
#undef HYDRANT_CLOCKSOURCE
#else
  return false;
#endif
}

}  // namespace hydrant
