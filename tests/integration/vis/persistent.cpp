// Persistent operations: random strided ones, and those that are refused.
#include <hydrant/persistent.h>

#include "tests/integration/vis/vis_job.hpp"
#include "tests/unit/extended/vis/random_shapes.hpp"

#include <cstring>
#include <random>
#include <vector>

using hydrant::testing::random_grid;
using hydrant::testing::RandomGrid;

namespace {

hydrant_operation_t make_persistent(gex_TM_t tm, gex_Rank_t rank, bool is_get,
                                    const RandomGrid& grid) {
  hydrant_operation_t made = nullptr;
  // Copies, which end before the first start.
  std::vector<ptrdiff_t> dest_strides = grid.dest_strides;
  std::vector<ptrdiff_t> source_strides = grid.source_strides;
  std::vector<size_t> counts = grid.counts;
  std::byte* const dest = bytes_at(grid.dest);
  std::byte* const source = bytes_at(grid.source);
  good(is_get ? hydrant_get_strided_init(tm, rank, source, source_strides.data(), dest,
                                         dest_strides.data(), grid.element, counts.data(),
                                         counts.size(), &made)
              : hydrant_put_strided_init(tm, rank, dest, dest_strides.data(), source,
                                         source_strides.data(), grid.element, counts.data(),
                                         counts.size(), &made),
       "init");
  return made;
}

void refuse_persistent(const char* text, void* remote, const ptrdiff_t* strides, void* local,
                       gex_Rank_t rank) {
  const size_t count[1] = {4};
  hydrant_operation_t made = nullptr;
  check(hydrant_put_strided_init(world, rank, remote, strides, local, strides, 8, count, 1,
                                 &made) == GASNET_ERR_BAD_ARG,
        text);
  check(made == nullptr && std::strstr(hydrant_last_error_text(), text) != nullptr,
        hydrant_last_error_text());
}

}  // namespace

void run_persistent(uint32_t seed, int rounds) {
  std::mt19937 random(seed * 100 + me);
  std::vector<std::byte> heap(kRoom);
  for (int round = 0; round < rounds; ++round) {
    const bool is_get = round % 2 == 1;
    const auto far = reinterpret_cast<uintptr_t>(peers);
    const auto near =
        reinterpret_cast<uintptr_t>(random() % 2 == 0 ? heap.data() : mine + kSegment / 2);
    const RandomGrid grid = random_grid(random, is_get ? near : far, is_get ? far : near, kRoom);
    const auto pairs = grid.pairs();
    hydrant_operation_t operation =
        random() % 3 == 0 ? make_persistent(turned, (peer + 1) % job_size, is_get, grid)
                          : make_persistent(world, peer, is_get, grid);
    std::vector<std::byte> area(kRoom);
    for (int repeat = 0; repeat < 3; ++repeat) {
      if (is_get) {
        for (std::byte& each : area) each = static_cast<std::byte>(random());
        gex_RMA_PutBlocking(world, peer, peers, area.data(), kRoom, 0);
        for (const auto& [to, from] : pairs) *bytes_at(to) = std::byte{0xee};
      } else {
        gex_RMA_GetBlocking(world, area.data(), peer, peers, kRoom, 0);
        for (const auto& [to, from] : pairs) *bytes_at(from) = static_cast<std::byte>(random());
        for (const auto& [to, from] : pairs) area[offset_of(to)] = *bytes_at(from);
      }
      good(hydrant_start(operation), "start");
      if (repeat == 1) {
        int code = hydrant_test(operation);
        while (code == GASNET_ERR_NOT_READY) code = hydrant_test(operation);
        good(code, "test");
      } else {
        good(hydrant_wait(operation), "wait");
      }
      if (is_get) {
        for (const auto& [to, from] : pairs)
          check(*bytes_at(to) == area[offset_of(from)], "what a persistent get got");
      } else {
        std::vector<std::byte> found(kRoom);
        gex_RMA_GetBlocking(world, found.data(), peer, peers, kRoom, 0);
        check(found == area, "what a persistent put has put");
      }
    }
    good(hydrant_operation_free(&operation), "free");
  }
}

void run_persistent_wrong() {
  uint64_t words[8] = {};
  const ptrdiff_t strides[1] = {16};
  const ptrdiff_t huge[1] = {PTRDIFF_MAX};
  refuse_persistent("the local memory is NULL", peers, strides, nullptr, peer);
  refuse_persistent("the remote memory is NULL", nullptr, strides, words, peer);
  refuse_persistent("wrap around the address space", peers, huge, words, peer);
  refuse_persistent("strides is NULL", peers, nullptr, words, peer);
  refuse_persistent("does not exist", peers, strides, words, job_size);
  check(hydrant_put_strided_init(world, peer, peers, strides, words, strides, 8, nullptr, 0,
                                 nullptr) == GASNET_ERR_BAD_ARG,
        "no place for the operation");
}
