// The ranks of this host, and the neighbourhood: those of them that map each other's segments (all, or
// groups of GASNET_SUPERNODE_MAXSIZE ranks). Constant once the job is wired.
#pragma once

#include <hydrant/gasnet/system.h>

#include "rdma/bootstrap/bootstrap.hpp"

#include <cstdint>
#include <vector>

namespace hydrant {

struct Neighbourhood {
  using Info = hydrant_rank_info;
  std::vector<Info> host;        // ascending
  std::vector<Info> neighbours;  // ascending, this rank included
  uint32_t my_index = 0;         // in neighbours
  uint32_t set_size = 1;         // neighbourhoods in the job, if all hosts are divided alike
  uint32_t set_rank = 0;

  bool contains(Rank rank) const noexcept;
};

const Neighbourhood& neighbourhood() noexcept;
// The location of a rank: the lowest rank of its host, the index of its neighbourhood, and the number of
// ranks on its host.
struct RankLocation {
  Rank host = 0;
  uint32_t supernode = 0;
  uint32_t host_ranks = 0;
};
// Queries the job's store. Errors: those of Bootstrap::get(); kBroken: the entry is no position in this job.
Status find_location(Rank rank, RankLocation* found) noexcept;
// The first rank of each host, ascending, if each host has consecutive ranks; else empty. After the job's
// fence. Cost: an entry of the job's store for each host. Errors: as find_location().
Status find_consecutive_hosts(std::vector<Rank>* first_ranks) noexcept;
// `most` is GASNET_SUPERNODE_MAXSIZE; 0 is no limit. Publishes this rank's position in the job's store.
Status find_neighbourhood(Bootstrap& bootstrap, uint32_t most) noexcept;

}  // namespace hydrant
