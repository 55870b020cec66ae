// Access to the calling thread's error text.
#pragma once

#include "firehose/base/status.hpp"

#include <string_view>

namespace hydrant::testing {

inline bool says(std::string_view word) {
  return std::string_view(last_error_text()).find(word) != std::string_view::npos;
}

}  // namespace hydrant::testing
