// The mappings of a process as a test sets them: fake_mappings.cpp replaces the functions of MappingQuery.
#pragma once

#include "firehose/watch/mapping_query.hpp"

#include <functional>
#include <vector>

namespace hydrant::testing {

struct FakeMappings {
  std::vector<Mapping> all;  // in the order of their addresses
  std::function<void()> looked_up;
};

// The fake of the process. Tests set it to {} before they use it.
FakeMappings& fake_mappings();

}  // namespace hydrant::testing
