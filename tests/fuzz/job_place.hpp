// Properties of every place in a job, whichever launcher told it.
#pragma once

#include "rdma/bootstrap/bootstrap.hpp"
#include "tests/fuzz/fuzz_target.hpp"

#include <functional>

namespace hydrant::fuzz {

inline void check_place(const JobTopology& place) {
  HYDRANT_FUZZ_CHECK(place.rank < place.size);
  HYDRANT_FUZZ_CHECK(place.node_rank < place.node_ranks.size());
  HYDRANT_FUZZ_CHECK(place.node_ranks[place.node_rank] == place.rank);
  // Ascending, and none twice.
  HYDRANT_FUZZ_CHECK(std::adjacent_find(place.node_ranks.begin(), place.node_ranks.end(),
                                        std::greater_equal<>()) == place.node_ranks.end());
  HYDRANT_FUZZ_CHECK(place.node_ranks.back() < place.size);
  // All ranks share a node, or there are several nodes.
  HYDRANT_FUZZ_CHECK((place.node_ranks.size() == place.size) == (place.node_count == 1));
  HYDRANT_FUZZ_CHECK(place.node_count >= 1 && place.node < place.node_count);
  // Each other node has a rank at least.
  HYDRANT_FUZZ_CHECK(place.node_count - 1 <= place.size - place.node_ranks.size());
}

// The same, and of a launcher that tells the first rank of each node.
inline void check_place_with_leaders(const JobTopology& place) {
  check_place(place);
  HYDRANT_FUZZ_CHECK(place.leaders.size() == place.node_count && place.leaders[0] == 0);
  HYDRANT_FUZZ_CHECK(place.leaders[place.node] == place.node_ranks[0]);
}

}  // namespace hydrant::fuzz
