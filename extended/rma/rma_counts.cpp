// Sums the per-thread counters of operations by path for hydrant_query_path(). RmaThread::count() and inline
// functions of rma.h write the counters.
#include <hydrant/rma.h>

#include "am/job/job.hpp"
#include "extended/rma/rma_thread.hpp"

using namespace hydrant;

namespace {

constexpr const char* kNames[] = {"self",     "inlined",   "mapped",     "cma",
                                  "firehose", "in_move",   "rendezvous", "direct",
                                  "bounce",   "am_medium", "am_long"};
static_assert(sizeof kNames / sizeof *kNames == HYDRANT_PATH_COUNT);
constexpr size_t kPowers = sizeof hydrant_small_counts{}.of_size / sizeof(uint64_t);
static_assert(size_t{1} << (kPowers - 1) == HYDRANT_RMA_INLINE,
              "each inlined power of two has a counter");

// Atomic load, because other threads keep counting.
uint64_t look(const uint64_t& counter) noexcept {
  return __atomic_load_n(&counter, __ATOMIC_RELAXED);
}

void add_small(const hydrant_small_counts& counts, uint64_t* ops, uint64_t* bytes) noexcept {
  for (size_t i = 0; i < kPowers; ++i) {
    const uint64_t count = look(counts.of_size[i]);
    *ops += count;
    *bytes += count << i;
  }
  *ops += look(counts.others);
  *bytes += look(counts.other_bytes);
}

void add_path(const hydrant_path_counts& counts, uint64_t* ops, uint64_t* bytes) noexcept {
  *ops += look(counts.ops);
  *bytes += look(counts.bytes);
}

// For the inline functions this process is one more rank with mapped memory, so its "mapped" counts
// belong to "self".
void add(const hydrant_peer& peer, hydrant_path_t path, bool is_self,
         hydrant_path_counts_t* sum) noexcept {
  if (is_self && path == HYDRANT_PATH_MAPPED) return;
  if (is_self && path == HYDRANT_PATH_SELF) add(peer, HYDRANT_PATH_MAPPED, false, sum);
  if (path == HYDRANT_PATH_INLINED) {
    add_small(peer.small_counts[0], &sum->put_ops, &sum->put_bytes);
    add_small(peer.small_counts[1], &sum->get_ops, &sum->get_bytes);
  } else {
    add_path(peer.path_counts[0][path], &sum->put_ops, &sum->put_bytes);
    add_path(peer.path_counts[1][path], &sum->get_ops, &sum->get_bytes);
  }
}

}  // namespace

extern "C" {

const char* hydrant_path_name(hydrant_path_t path) {
  return static_cast<uint32_t>(path) < HYDRANT_PATH_COUNT ? kNames[path] : nullptr;
}

int hydrant_query_path(gex_Rank_t rank, hydrant_path_t path, hydrant_path_counts_t* counts) {
  if (!is_wired())
    return report(fail(Status::kNotInit, "no client is initialised"), "hydrant_query_path");
  const Rank size = job().size();
  if (counts == nullptr)
    return report(fail(Status::kBadArg, "the pointer to the counts is NULL"), "hydrant_query_path");
  if ((rank >= size && rank != GEX_RANK_INVALID) || hydrant_path_name(path) == nullptr) {
    return report(fail(Status::kBadArg, "invalid rank %u of %u, or invalid path %d of %d", rank,
                       size, static_cast<int>(path), static_cast<int>(HYDRANT_PATH_COUNT)),
                  "hydrant_query_path");
  }
  *counts = {};
  const Rank first = rank == GEX_RANK_INVALID ? 0 : rank;
  const Rank end = rank == GEX_RANK_INVALID ? size : rank + 1;
  ThreadLocalPool<RmaThread>::for_each([&](const RmaThread& thread) {
    if (!thread.has_peers()) return;
    for (Rank peer = first; peer < end; ++peer)
      add(thread.peer(peer), path, peer == job().rank(), counts);
  });
  return GASNET_OK;
}

}  // extern "C"
