// Environment variables of GASNet that have no effect here, with the reason, so that a job can report them.
#pragma once

#include "firehose/base/config/config.hpp"

#include <span>

namespace hydrant {

// By name, or by a prefix that ends in "_". Programs of one library alone do not report them.
std::span<const IgnoredName> ignored_gasnet_names() noexcept;

}  // namespace hydrant
