// Computes this rank's host and neighbourhood from the bootstrap's placement, and publishes them in the
// job's store. Called during start-up by wire_up() (am/start_job.cpp) and by queries (system.cpp,
// calls_segment.cpp).
#include "am/segment/neighbourhood.hpp"

#include "am/job/job.hpp"
#include "am/segment/segments.hpp"
#include "firehose/base/thread.hpp"

#include <algorithm>
#include <span>

namespace hydrant {
namespace {

constexpr const char* kKey = "whereabouts";
constexpr uint64_t kWaitNs = 10'000'000'000;

Neighbourhood& the_neighbourhood() noexcept {
  static Neighbourhood here;
  return here;
}

}  // namespace

bool Neighbourhood::contains(Rank rank) const noexcept {
  return std::any_of(neighbours.begin(), neighbours.end(),
                     [rank](const Info& info) { return info.gex_jobrank == rank; });
}

Status find_location(Rank rank, RankLocation* found) noexcept {
  if (is_store_busy())
    return fail(Status::kNotReady,
                "the host of rank %u cannot be looked up by a handler that runs inside "
                "gex_Segment_Attach(): ask before or after it",
                rank);
  RankLocation location;
  size_t bytes = 0;
  const MutexLock lock(job().bootstrap_mu);
  const Status status = job().bootstrap->get(
      rank, kKey, std::as_writable_bytes(std::span(&location, 1)), &bytes, now_ns() + kWaitNs);
  if (status != Status::kOk) return status;
  if (bytes != sizeof location) {
    return fail(Status::kBroken,
                "the entry '%s' of rank %u in the job's store has an unexpected size of %zu bytes",
                kKey, rank, bytes);
  }
  // A host is named by the lowest of its ranks.
  if (location.host > rank) {
    return fail(Status::kBroken,
                "the entry '%s' of rank %u in the job's store names rank %u as the first of its "
                "host, which is above it",
                kKey, rank, location.host);
  }
  *found = location;
  return Status::kOk;
}

Status find_consecutive_hosts(std::vector<Rank>* first_ranks) noexcept {
  const JobTopology& topology = job().topology();
  first_ranks->clear();
  if (topology.leaders.empty()) return Status::kOk;
  // The leaders are the lowest ranks of their hosts. So the first host has all ranks up to the second leader
  // if it has so many; and so on.
  for (size_t i = 0; i < topology.leaders.size(); ++i) {
    const Rank first = topology.leaders[i];
    const Rank next = i + 1 < topology.leaders.size() ? topology.leaders[i + 1] : topology.size;
    RankLocation location;
    if (const Status status = find_location(first, &location); status != Status::kOk) return status;
    if (location.host != first || location.host_ranks != next - first) return Status::kOk;
  }
  *first_ranks = topology.leaders;
  return Status::kOk;
}

const Neighbourhood& neighbourhood() noexcept { return the_neighbourhood(); }

Status find_neighbourhood(Bootstrap& bootstrap, uint32_t most) noexcept {
  const JobTopology& topology = bootstrap.topology();
  Neighbourhood& here = the_neighbourhood();
  here = {};
  const auto ranks_here = static_cast<uint32_t>(topology.node_ranks.size());
  const uint32_t part = most == 0 || most > ranks_here ? ranks_here : most;
  const uint32_t first = topology.node_rank / part * part;
  const uint32_t parts = (ranks_here + part - 1) / part;
  for (uint32_t i = 0; i < ranks_here; ++i) {
    here.host.push_back({topology.node_ranks[i]});
    if (i >= first && i < first + part) here.neighbours.push_back({topology.node_ranks[i]});
  }
  here.my_index = topology.node_rank - first;
  here.set_size = topology.node_count * parts;
  here.set_rank = topology.node * parts + topology.node_rank / part;
  const RankLocation mine = {
      .host = topology.node_ranks.front(), .supernode = here.set_rank, .host_ranks = ranks_here};
  return bootstrap.put(kKey, std::as_bytes(std::span(&mine, 1)));
}

}  // namespace hydrant
