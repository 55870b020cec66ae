// Places inputs directly before an inaccessible page, so that reads beyond their end fault.
#include "tests/fuzz/fuzz_target.hpp"

#include <sys/mman.h>

namespace hydrant::fuzz {
namespace {

#if !HYDRANT_FUZZ_ASAN
constexpr size_t kGuardBytes = 4096;

// A buffer before an inaccessible page, one per thread: mapping one for each input would dominate the run.
struct Room {
  static constexpr size_t kBytes = size_t{1} << 20;
  Room() {
    void* all = mmap(nullptr, kBytes + kGuardBytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED ||
        mprotect(static_cast<std::byte*>(all) + kBytes, kGuardBytes, PROT_NONE) != 0)
      violated(__FILE__, __LINE__, "cannot map memory for an input");
    end = static_cast<std::byte*>(all) + kBytes;
  }
  ~Room() { munmap(end - kBytes, kBytes + kGuardBytes); }
  std::byte* end;
  size_t used = 0;
};
thread_local Room this_threads_room;
#endif

}  // namespace

GuardedCopy::GuardedCopy(std::span<const uint8_t> bytes, size_t alignment) : size_(bytes.size()) {
#if HYDRANT_FUZZ_ASAN
  // malloc() aligns to 16, which suffices.
  (void)alignment;
  begin_ = static_cast<std::byte*>(std::malloc(size_ != 0 ? size_ : 1));
#else
  // Only the first live copy ends at the page; further ones lie before it.
  const size_t rounded = (size_ + alignment - 1) / alignment * alignment;
  if (this_threads_room.used + rounded + 64 > Room::kBytes)
    violated(__FILE__, __LINE__, "the input is too long");
  const size_t above = (this_threads_room.used + 63) / 64 * 64;
  begin_ = this_threads_room.end - above - rounded;
  begin_ -= reinterpret_cast<uintptr_t>(begin_) % alignment;
  this_threads_room.used = static_cast<size_t>(this_threads_room.end - begin_);
#endif
  if (size_ != 0) std::memcpy(begin_, bytes.data(), size_);
}

GuardedCopy::~GuardedCopy() {
#if HYDRANT_FUZZ_ASAN
  std::free(begin_);
#else
  this_threads_room.used = 0;
#endif
}

}  // namespace hydrant::fuzz
