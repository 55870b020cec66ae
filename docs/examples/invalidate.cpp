// Releasing memory: call hydrant_invalidate() before munmap(). Memory that is mapped at the same address
// later is then registered again; otherwise the device would keep using the old pages.
#include <hydrant/pin_cache.hpp>

#include <cstddef>
#include <cstdio>
#include <sys/mman.h>

namespace pins = hydrant::pin_cache;

namespace {

constexpr std::size_t kBytes = 64 * 1024;

// Maps anonymous memory, at `wanted` if that is free; null on failure.
void* map(void* wanted) {
  void* memory = mmap(wanted, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

// Pins and releases; false if the pin was refused.
bool use(const pins::Domain& domain, const char* when, const void* memory) {
  const std::uint64_t before = domain.stats().misses;
  const pins::Pin pin = domain.pin(memory, kBytes, HYDRANT_LOCAL_WRITE);
  if (!pin) {
    std::fprintf(stderr, "%s: not pinned: %s\n", when, pin.error());
    return false;
  }
  std::printf("%-28s %s\n", when, domain.stats().misses > before ? "registered" : "a hit");
  return true;
}

}  // namespace

int main() {
  pins::DomainOptions options;
  options.registrar_name = "auto";
  options.watch = HYDRANT_WATCH_CLIENT;  // this program itself announces releases
  const pins::Domain domain(options);
  if (!domain) {
    std::fprintf(stderr, "no domain: %s\n", domain.error());
    return 1;
  }
  void* const first = map(nullptr);
  if (first == nullptr) return 1;
  bool fine = use(domain, "first use:", first) && use(domain, "second use:", first);

  // No pin of the range may start between these two calls.
  domain.invalidate(first, kBytes);
  munmap(first, kBytes);

  void* const second = map(first);
  if (second == nullptr) return 1;
  std::printf("new memory at %s address\n", second == first ? "the same" : "another");
  fine = fine && use(domain, "first use of the new memory:", second) &&
         use(domain, "second use of it:", second);

  const hydrant_stats_t stats = domain.stats();
  std::printf("%llu registrations, %llu invalidation\n",
              static_cast<unsigned long long>(stats.pins),
              static_cast<unsigned long long>(stats.invalidations));
  domain.invalidate(second, kBytes);
  munmap(second, kBytes);
  return fine ? 0 : 1;
}
