// Operations of more than 4 GiB in little memory: one block is mapped repeatedly, and the part beyond 4
// GiB is separate memory, so that a length truncated to 32 bits is detected.
#include "tests/integration/rma/client.hpp"

#include <cstdio>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

namespace rma_client {
namespace {

constexpr size_t kBlock = size_t{64} << 20;
constexpr size_t kRepeated = size_t{4} << 30;
constexpr size_t kTail = (size_t{1} << 20) + 13;
constexpr size_t kBytes = kRepeated + kTail;
constexpr size_t kReserved = kRepeated + 2 * (size_t{1} << 20);

std::byte* make_range() {
  const int file = memfd_create("range", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(kBlock)) != 0) wrong("memfd");
  void* all = mmap(nullptr, kReserved, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (all == MAP_FAILED) wrong("mmap of %zu bytes", kReserved);
  auto* const range = static_cast<std::byte*>(all);
  for (size_t at = 0; at < kRepeated; at += kBlock) {
    if (mmap(range + at, kBlock, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) ==
        MAP_FAILED)
      wrong("mmap at %zu", at);
  }
  close(file);
  return range;
}

// Visits all bytes that are different memory.
template <typename Visit>
void each_byte(std::byte* range, Visit visit) {
  for (size_t i = 0; i < kBlock; ++i) visit(range[i], i);
  for (size_t i = kRepeated; i < kReserved; ++i) visit(range[i], i);
}
void fill_range(std::byte* range, unsigned seed) {
  each_byte(range, [&](std::byte& byte, size_t i) {
    byte = static_cast<std::byte>((i * 2654435761u >> 9) + seed);
  });
}
void set_range(std::byte* range, int value) {
  std::memset(range, value, kBlock);
  std::memset(range + kRepeated, value, kReserved - kRepeated);
}
void expect_copy(const std::byte* range, const std::byte* source, const char* what) {
  if (std::memcmp(range, source, kBlock) != 0) wrong("%s: the first part differs", what);
  if (std::memcmp(range + kRepeated, source + kRepeated, kTail) != 0)
    wrong("%s: the part beyond 4 GiB differs", what);
  for (size_t i = kBytes; i < kReserved; ++i) {
    if (range[i] != std::byte{0}) wrong("%s: byte %zu behind it was written", what, i - kBytes);
  }
}

}  // namespace

void huge() {
  std::byte* const range = make_range();
  std::memcpy(area(me, kHeap), &range, sizeof range);
  barrier();
  const gex_Rank_t peer = (me + 1) % size;
  std::byte* far = nullptr;
  gasnet_get(&far, peer, area(peer, kHeap), sizeof far);
  barrier();
  if (me == 0) {
    std::byte* const source = make_range();
    std::byte* const back = make_range();
    fill_range(source, 1);
    gex_Event_Wait(gasnet_put_nb_bulk(peer, far, source, kBytes));
    gasnet_get(back, peer, far, kBytes);
    expect_copy(back, source, "put and get");
    gasnet_memset(peer, far, 0x42, kBytes);
    set_range(source, 0x42);
    set_range(back, 0);
    gasnet_get_nbi(back, peer, far, kBytes);
    gasnet_wait_syncnbi_gets();
    expect_copy(back, source, "memset and get");
  }
  barrier();
  if (size > 1 && me == 1) {
    for (size_t i = kBytes; i < kReserved; ++i) {
      if (range[i] != std::byte{0}) wrong("byte %zu behind the range was written", i - kBytes);
    }
  }
}

}  // namespace rma_client
