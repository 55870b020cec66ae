// Translates the team and the rank of a call. Called by every call that names a peer.
#include "am/job/resolve.hpp"

#include "am/job/endpoints.hpp"
#include "am/job/job.hpp"

namespace hydrant {
namespace {

// The rank of a pair is a rank of the job.
[[gnu::cold, gnu::noinline]] Status resolve_pair(gex_TM_t tm, gex_Rank_t rank,
                                                 Rank* peer) noexcept {
  const EndpointPair endpoints = endpoints_of(tm);
  if (find_endpoint(endpoints.from) == nullptr)
    return fail(Status::kBadArg, "endpoint %u does not exist in this process", endpoints.from);
  if (endpoints.to >= GASNET_MAXEPS)
    return fail(Status::kBadArg, "no rank has an endpoint %u: the limit is %d (GASNET_MAXEPS)",
                endpoints.to, GASNET_MAXEPS);
  if (rank >= job().size())
    return fail(Status::kBadArg, "rank %u does not exist; the job has %u ranks", rank,
                job().size());
  *peer = rank;
  return Status::kOk;
}

template <typename Other>
[[gnu::always_inline]] inline Status resolve_or(gex_TM_t tm, gex_Rank_t rank, Rank* peer,
                                                Other other) noexcept {
  if (tm == GEX_TM_INVALID) [[unlikely]]
    return fail(Status::kBadArg, "the team is GEX_TM_INVALID");
  const auto bits = reinterpret_cast<uintptr_t>(tm);
  const bool is_pair = (bits & 1) != 0;
  if (is_pair && (bits >> 8) != 0) [[unlikely]]
    return other();
  const bool is_job = is_pair || tm == &hydrant_world;
  if (!is_job && is_destroyed_team(tm)) [[unlikely]]
    return fail(Status::kBadArg, "%p is not a team of this job, or was destroyed",
                static_cast<void*>(tm));
  const Rank size = is_job ? job().size() : tm->size;
  if (rank >= size) [[unlikely]]
    return fail(Status::kBadArg, "rank %u does not exist; the %s has %u ranks", rank,
                is_job ? "job" : "team", size);
  *peer = is_job ? rank : jobrank_of(*tm, rank);
  return Status::kOk;
}

}  // namespace

Status resolve(gex_TM_t tm, gex_Rank_t rank, Rank* peer) noexcept {
  return resolve_or(tm, rank, peer, [&]() noexcept { return resolve_pair(tm, rank, peer); });
}

Status resolve_primordial(gex_TM_t tm, gex_Rank_t rank, Rank* peer) noexcept {
  return resolve_or(tm, rank, peer, []() noexcept { return Status::kUnsupported; });
}

}  // namespace hydrant
