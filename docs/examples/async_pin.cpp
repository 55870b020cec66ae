// An asynchronous pin: the budget is in use, so poll() completes the pin by a callback once other pins are
// released. A progress loop uses this instead of waiting.
#include <hydrant/pin_cache.hpp>

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <sys/mman.h>
#include <thread>
#include <utility>

namespace pins = hydrant::pin_cache;

namespace {

constexpr std::size_t kBytes = 64 * 1024;

// Maps two buffers of kBytes without huge pages: io_uring is charged for whole huge pages, which exceed the
// budget.
char* map_buffers() {
  void* memory =
      mmap(nullptr, 2 * kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  madvise(memory, 2 * kBytes, MADV_NOHUGEPAGE);
  return static_cast<char*>(memory);
}

int pin_and_poll(const pins::Domain& domain, const char* buffers) {
  pins::Pin first = domain.pin(buffers, kBytes, HYDRANT_LOCAL_WRITE);
  if (!first) {
    std::fprintf(stderr, "not pinned: %s\n", first.error());
    return 1;
  }
  const pins::Pin refused = domain.pin(buffers + kBytes, kBytes, HYDRANT_LOCAL_WRITE);
  std::printf("the second buffer, at once: %s\n", hydrant_status_name(refused.status()));

  pins::Pin second;
  const int status = domain.pin_async(buffers + kBytes, kBytes, HYDRANT_LOCAL_WRITE,
                                      [&second](pins::Pin pin) { second = std::move(pin); });
  if (status != GASNET_OK) {
    std::fprintf(stderr, "not requested: %s\n", hydrant_error_text());
    return 1;
  }
  std::printf("requested; poll ran %d callbacks\n", domain.poll());
  first.release();  // its operation is complete
  // Some kernels return the charge of an unpinned page with a delay.
  for (int i = 0; i < 5000 && !second; ++i) {
    if (i != 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const int ran = domain.poll();
    if (ran != 0) std::printf("released the first; poll ran %d callback\n", ran);
  }
  std::printf("the second buffer, in the end: %s\n", hydrant_status_name(second.status()));
  return second ? 0 : 1;
}

}  // namespace

int main() {
  char* const buffers = map_buffers();
  if (buffers == nullptr) return 1;
  pins::DomainOptions options;
  options.registrar_name = "auto";
  options.budget_bytes = kBytes;  // room for one of the two buffers
  int result = 1;
  {
    const pins::Domain domain(options);
    if (!domain) std::fprintf(stderr, "no domain: %s\n", domain.error());
    if (domain) result = pin_and_poll(domain, buffers);
  }
  munmap(buffers, 2 * kBytes);
  return result;
}
