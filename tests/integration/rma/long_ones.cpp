// Operations larger than one message between segments; and operations of known sizes for the statistics
// file.
#include "tests/integration/rma/client.hpp"

#include <cstring>
#include <thread>

namespace rma_client {
namespace {

constexpr size_t kLong = (size_t{9} << 20) + 5;
constexpr size_t kFrom = (size_t{4} << 20) + 3;  // offset in the segment of 16 MiB
static_assert(kFrom + kLong + 64 < kAreaBytes[kSegment] + kOwnSegmentBytes);

uint8_t byte_at(size_t i, unsigned seed) {
  return static_cast<uint8_t>((i * 2654435761u >> 13) + seed);
}
void fill_bytes(std::byte* at, unsigned seed) {
  for (size_t i = 0; i < kLong; ++i) at[i] = static_cast<std::byte>(byte_at(i, seed));
}
void expect_bytes(const std::byte* at, unsigned seed, const char* what) {
  for (size_t i = 0; i < kLong; ++i) {
    if (at[i] != static_cast<std::byte>(byte_at(i, seed))) wrong("%s: byte %zu differs", what, i);
  }
  for (size_t i = 1; i < 64; ++i) {
    if (at[-static_cast<ptrdiff_t>(i)] != std::byte{0x5a} || at[kLong + i - 1] != std::byte{0x5a})
      wrong("%s: a byte beside it was written", what);
  }
}
void clear(std::byte* at) { std::memset(at - 64, 0x5a, kLong + 128); }

hydrant_path_counts_t counts_with(gex_Rank_t peer, const char* path) {
  hydrant_path_counts_t sum = {};
  for (uint32_t i = 0; i < HYDRANT_PATH_COUNT; ++i) {
    const auto one = static_cast<hydrant_path_t>(i);
    if (path != nullptr && std::strcmp(path, hydrant_path_name(one)) != 0) continue;
    hydrant_path_counts_t counts;
    if (hydrant_query_path(peer, one, &counts) != GASNET_OK) wrong("hydrant_query_path");
    sum.put_ops += counts.put_ops;
    sum.put_bytes += counts.put_bytes;
    sum.get_ops += counts.get_ops;
    sum.get_bytes += counts.get_bytes;
  }
  return sum;
}
// Expects exactly one more operation, of kLong bytes, on `path`.
void expect_one_more(bool is_put, gex_Rank_t peer, const char* path, hydrant_path_counts_t wanted,
                     const hydrant_path_counts_t& all) {
  (is_put ? wanted.put_ops : wanted.get_ops) += 1;
  (is_put ? wanted.put_bytes : wanted.get_bytes) += kLong;
  const hydrant_path_counts_t now = counts_with(peer, path);
  if (std::memcmp(&now, &wanted, sizeof now) != 0)
    wrong("%s: %llu puts (%llu bytes), %llu gets (%llu bytes) are counted", path,
          static_cast<unsigned long long>(now.put_ops),
          static_cast<unsigned long long>(now.put_bytes),
          static_cast<unsigned long long>(now.get_ops),
          static_cast<unsigned long long>(now.get_bytes));
  const hydrant_path_counts_t others = counts_with(peer, nullptr);
  if (others.put_ops + others.get_ops != all.put_ops + all.get_ops + 1)
    wrong("one operation is counted as several");
}

template <typename Act>
void one(bool is_put, gex_Rank_t peer, const char* path, Act&& act) {
  const hydrant_path_counts_t before = counts_with(peer, path);
  const hydrant_path_counts_t all = counts_with(peer, nullptr);
  act();
  expect_one_more(is_put, peer, path, before, all);
}

}  // namespace

void long_ones(const char* put_path, const char* get_path) {
  const gex_Rank_t peer = (me + 1) % size;
  std::byte* const near = area(me, kSegment) + kFrom;
  std::byte* const far = area(peer, kSegment) + kFrom;
  // In turns, because every rank writes into the segments of two ranks.
  for (gex_Rank_t turn = 0; turn < size; ++turn) {
    for (unsigned form = 0; form < 3; ++form) {
      clear(near);
      barrier();
      if (me == turn) {
        fill_bytes(near, form + turn);
        one(true, peer, put_path, [&] {
          if (form == 0) gasnet_put_bulk(peer, far, near, kLong);
          if (form == 1) gasnet_put_nbi_bulk(peer, far, near, kLong);
          if (form == 2) gex_Event_Wait(gasnet_put_nb(peer, far, near, kLong));
          gasnet_wait_syncnbi_puts();
        });
      }
      barrier();
      if (me == (turn + 1) % size) expect_bytes(near, form + turn, "a put");
      barrier();
      if (me == turn) {
        clear(near);
        one(false, peer, get_path, [&] {
          if (form == 0) gasnet_get(near, peer, far, kLong);
          if (form == 1) gasnet_get_nbi_bulk(near, peer, far, kLong);
          if (form == 2) gex_Event_Wait(gasnet_get_nb(near, peer, far, kLong));
          gasnet_wait_syncnbi_gets();
        });
        expect_bytes(near, form + turn, "a get");
      }
      barrier();
    }
  }
}

// rma_jobs_test.py expects exactly these operations.
void statistics() {
  const gex_Rank_t peer = (me + 1) % size;
  const volatile size_t bytes = 1000 + me;
  char local[1100] = {};
  for (gex_Rank_t i = 0; i < 3 + me; ++i) gasnet_put(peer, area(peer, kSegment), local, bytes);
  std::thread([&] { gasnet_get(local, peer, area(peer, kSegment), bytes); }).join();
  uint64_t word = 0;
  for (int i = 0; i < 5; ++i) gasnet_put(peer, area(peer, kSegment), &word, sizeof word);
  gasnet_get(local, me, area(me, kHeap), bytes);
}

}  // namespace rma_client
