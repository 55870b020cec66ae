// A region many times larger than the machine's memory, of which little is accessed: pins for peers are
// recalled to make room for the next ones.
#include "extended/binding/firehose_binding.hpp"
#include "tests/integration/rma/client.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <map>
#include <random>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

namespace rma_client {
namespace {

size_t memory_bytes() {
  return static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}
uint64_t word_of(size_t place, uint64_t seed, size_t i) {
  return (place + i) * 0x9e3779b97f4a7c15u + seed + me;
}

}  // namespace

// Every rank writes to its own places in its neighbour's region, and reads them back later.
void sparse(double seconds, uint64_t seed) {
  const size_t bytes = (2 * memory_bytes() + (size_t{1} << 30)) & ~size_t{4095};
  void* const mine = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mine == MAP_FAILED) wrong("%zu bytes of addresses cannot be reserved", bytes);
  std::memcpy(area(me, kHeap), &mine, sizeof mine);
  barrier();
  const gex_Rank_t peer = (me + 1) % size;
  std::byte* far = nullptr;
  gasnet_get(&far, peer, area(peer, kHeap), sizeof far);
  barrier();

  std::mt19937_64 chance(seed * 16 + me);
  std::map<size_t, size_t> written;  // offset in words, of 8192 each: number of words
  constexpr size_t kPlaceWords = 8192;
  constexpr size_t kMaxPlaces = 1000;  // at most 64 MiB are accessed
  constexpr size_t kSizes[] = {1, 16, 200, 1500, 8192};
  std::vector<uint64_t> buffer(kPlaceWords);
  const double end = now_s() + seconds;
  uint64_t operations = 0;
  uint64_t max_exported = 0;
  while (now_s() < end) {
    for (int i = 0; i < 20; ++i, ++operations) {
      if (written.size() < kMaxPlaces && chance() % 2 == 0) {
        const size_t place = chance() % (bytes / 8 / kPlaceWords) * kPlaceWords;
        const size_t words = kSizes[chance() % std::size(kSizes)];
        for (size_t at = 0; at < words; ++at) buffer[at] = word_of(place, seed, at);
        gex_RMA_PutBlocking(team, peer, far + 8 * place, buffer.data(), 8 * words, 0);
        size_t& known = written[place];
        known = std::max(known, words);
      } else if (!written.empty()) {
        auto found = written.lower_bound(chance() % (bytes / 8));
        if (found == written.end()) found = written.begin();
        const auto [place, words] = *found;
        gex_RMA_GetBlocking(team, buffer.data(), peer, far + 8 * place, 8 * words, 0);
        for (size_t at = 0; at < words; ++at) {
          if (buffer[at] != word_of(place, seed, at))
            wrong("word %zu at %zu of %zu bytes differs", at, 8 * place, bytes);
        }
      }
    }
    hydrant_remote_stats_t stats{};
    stats.size = sizeof stats;
    if (hydrant_remote_get_stats(hydrant::firehose().end, &stats) != GASNET_OK)
      wrong("this job has no firehoses");
    max_exported = std::max(max_exported, stats.exported_bytes);
  }
  barrier();
  hydrant_remote_stats_t stats{};
  stats.size = sizeof stats;
  (void)hydrant_remote_get_stats(hydrant::firehose().end, &stats);
  std::printf("rank %u: %zu MiB of addresses, %zu places, %" PRIu64 " operations, %" PRIu64
              " moves, %" PRIu64 " evictions, %" PRIu64 " bytes exported at most\n",
              me, bytes >> 20, written.size(), operations, stats.moves, stats.evictions,
              max_exported);
  std::fflush(stdout);
  if (written.size() > 100 && stats.evictions == 0) wrong("nothing was given up for others");
  barrier();
}

}  // namespace rma_client
