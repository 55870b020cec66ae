// Who is near: the ranks of this host, and those of them that map each other's segments (a neighbourhood:
// the host's, or parts of it of GASNET_SUPERNODE_MAXSIZE ranks). Fixed once the job is wired.
#pragma once

#include <hydrant/gasnet/system.h>

#include "rdma/bootstrap.hpp"

#include <cstdint>
#include <vector>

namespace hydrant {

struct Neighbourhood {
  using Info = hydrant_rank_info;
  std::vector<Info> host;        // ascending
  std::vector<Info> neighbours;  // ascending, this rank included
  uint32_t my_index = 0;         // in neighbours
  uint32_t set_size = 1;         // neighbourhoods in the job, if all hosts are cut alike
  uint32_t set_rank = 0;

  bool contains(Rank rank) const noexcept;
};

const Neighbourhood& neighbourhood() noexcept;
// Of any rank of the job: the lowest rank of its host, and the index of its neighbourhood. Ranks of other
// hosts are asked for in the job's store.
Rank host_of(Rank rank) noexcept;
uint32_t supernode_of(Rank rank) noexcept;
// `most`: of GASNET_SUPERNODE_MAXSIZE; 0 is no limit. Tells the job's store where this rank is.
Status find_neighbourhood(Bootstrap& bootstrap, uint32_t most) noexcept;

}  // namespace hydrant
