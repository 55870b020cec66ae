// Local memory of every kind over any network: stacks, constants, read-only mappings, odd addresses.
#include "tests/integration/rma/client.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

namespace rma_client {
namespace {

constexpr size_t kMax = size_t{256} << 10;

struct Constants {
  uint8_t bytes[kMax];
};
constexpr Constants make_constants() {
  Constants made{};
  for (size_t i = 0; i < kMax; ++i) made.bytes[i] = static_cast<uint8_t>(i * 13 + (i >> 8));
  return made;
}
const Constants constants = make_constants();  // in .rodata
uint8_t constant_at(size_t i) { return static_cast<uint8_t>(i * 13 + (i >> 8)); }

gex_Rank_t peer_of_mine() { return (me + 1) % size; }

// Gets `bytes` bytes to `to`, from the part of the peer's memory that holds constant_at().
void get_to(std::byte* to, size_t bytes, size_t offset, const char* what) {
  gex_RMA_GetBlocking(team, to, peer_of_mine(), area(peer_of_mine(), kMapped) + offset, bytes, 0);
  for (size_t i = 0; i < bytes; ++i) {
    if (to[i] != static_cast<std::byte>(constant_at(offset + i)))
      wrong("%s: byte %zu of %zu differs", what, i, bytes);
  }
}

// Stack frames reuse the same addresses; memory beside the target must not change.
template <size_t kBytes>
[[gnu::noinline]] void get_to_stack(size_t offset) {
  struct Frame {
    std::byte before[64];
    std::byte target[kBytes];
    std::byte behind[64];
  } frame;
  std::memset(&frame, 0x3c, sizeof frame);
  get_to(frame.target, kBytes, offset, "a get to the stack");
  for (size_t i = 0; i < 64; ++i) {
    if (frame.before[i] != std::byte{0x3c} || frame.behind[i] != std::byte{0x3c})
      wrong("a get to the stack wrote beside %zu bytes", kBytes);
  }
}

[[gnu::noinline]] void deeper(size_t depth) {
  volatile std::byte filler[5000];
  filler[0] = std::byte{1};
  get_to_stack<1>(depth);
  get_to_stack<40>(depth);
  get_to_stack<5000>(depth);
  if (depth != 0) deeper(depth - 1);
  filler[1] = filler[0];
}

// Puts constant bytes and gets them back.
void put_from(const void* from, size_t bytes, size_t first, gex_Event_t* lc_opt, const char* what) {
  const gex_Rank_t peer = peer_of_mine();
  std::byte* const far = area(peer, kHeap) + 4095;
  const gex_Event_t event =
      gex_RMA_PutNB(team, peer, far, const_cast<void*>(from), bytes, lc_opt, 0);
  gex_Event_Wait(event);
  std::vector<std::byte> back(bytes + 2, std::byte{0x3c});
  gex_RMA_GetBlocking(team, back.data() + 1, peer, far, bytes, 0);
  for (size_t i = 0; i < bytes; ++i) {
    if (back[i + 1] != static_cast<std::byte>(constant_at(first + i)))
      wrong("%s: byte %zu of %zu differs", what, i, bytes);
  }
  if (back.front() != std::byte{0x3c} || back.back() != std::byte{0x3c})
    wrong("%s: a byte beside the target was written", what);
}

uint64_t operations_by(hydrant_path_t path) {
  hydrant_path_counts_t counts;
  if (hydrant_query_path(peer_of_mine(), path, &counts) != GASNET_OK) wrong("hydrant_query_path");
  return counts.put_ops + counts.get_ops;
}

std::byte* read_only_file() {
  const int file = memfd_create("rma_client", 0);
  if (file < 0 || write(file, constants.bytes, kMax) != static_cast<ssize_t>(kMax)) wrong("memfd");
  void* at = mmap(nullptr, kMax, PROT_READ, MAP_PRIVATE, file, 0);
  if (at == MAP_FAILED) wrong("mmap");
  close(file);
  return static_cast<std::byte*>(at);
}

}  // namespace

void odd_memory(const char* network) {
  std::memcpy(area(me, kMapped), constants.bytes, kMax);
  barrier();
  for (size_t offset : {size_t{0}, size_t{1}, size_t{4093}}) {
    get_to_stack<8>(offset);
    get_to_stack<1000>(offset);
    get_to_stack<4097>(offset);
    get_to_stack<(size_t{200} << 10)>(offset);
    get_to_stack<(size_t{256} << 10) - 4093>(offset);
  }
  deeper(20);
  std::byte* const file = read_only_file();
  auto* const made_so = static_cast<std::byte*>(
      mmap(nullptr, kMax, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  if (made_so == MAP_FAILED) wrong("mmap");
  std::memcpy(made_so, constants.bytes, kMax);
  if (mprotect(made_so, kMax, PROT_READ) != 0) wrong("mprotect");
  for (gex_Event_t* lc_opt : {GEX_EVENT_DEFER, GEX_EVENT_NOW}) {
    for (size_t bytes :
         {size_t{1}, size_t{63}, size_t{64}, size_t{65}, size_t{4096}, size_t{20001}, kMax - 3}) {
      put_from(constants.bytes + 3, bytes, 3, lc_opt, "a put of constants");
      put_from(file + 1, bytes, 1, lc_opt, "a put of a file's bytes");
      put_from(made_so + 2, bytes, 2, lc_opt, "a put of read-only memory");
    }
  }
  // Operations of 0 bytes.
  const gex_Rank_t peer = peer_of_mine();
  gex_RMA_PutBlocking(team, peer, nullptr, nullptr, 0, 0);
  gex_RMA_GetBlocking(team, nullptr, peer, area(peer, kHeap), 0, 0);
  gex_Event_Wait(gex_RMA_PutNB(team, peer, area(peer, kHeap), made_so, 0, GEX_EVENT_NOW, 0));
  if (std::string_view(network) == "pinned") {
    const uint64_t hits = operations_by(HYDRANT_PATH_FIREHOSE);
    if (hits < 50)
      wrong("%llu operations went by a firehose", static_cast<unsigned long long>(hits));
  }
  barrier();
  munmap(file, kMax);
  munmap(made_so, kMax);
}

}  // namespace rma_client
