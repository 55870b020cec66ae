// Sums the counters of operations by path, which RmaThread::count() writes, for hydrant_query_path().
#include <hydrant/rma.h>

#include "am/job/job.hpp"
#include "extended/rma/common/rma_thread.hpp"

using namespace hydrant;

namespace {

constexpr const char* kNames[] = {"self",       "mapped", "cma",    "firehose",  "in_move",
                                  "rendezvous", "direct", "bounce", "am_medium", "am_long"};
static_assert(sizeof kNames / sizeof *kNames == HYDRANT_PATH_COUNT);

// Atomic load, because other threads keep counting.
uint64_t look(const uint64_t& counter) noexcept {
  return __atomic_load_n(&counter, __ATOMIC_RELAXED);
}

void add_path(const PathCounts& counts, uint64_t* ops, uint64_t* bytes) noexcept {
  *ops += look(counts.ops);
  *bytes += look(counts.bytes);
}

void add(const KnownPeer& peer, hydrant_path_t path, hydrant_path_counts_t* sum) noexcept {
  add_path(peer.path_counts[0][path], &sum->put_ops, &sum->put_bytes);
  add_path(peer.path_counts[1][path], &sum->get_ops, &sum->get_bytes);
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
    for (Rank peer = first; peer < end; ++peer) add(thread.peer(peer), path, counts);
  });
  return GASNET_OK;
}

}  // extern "C"
