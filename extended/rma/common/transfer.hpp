// The description of a put or get, for all paths.
#pragma once

#include "rdma/bootstrap/bootstrap.hpp"

#include <cstddef>
#include <cstdint>

namespace hydrant {

enum class Direction : uint32_t { kPut = 0, kGet = 1 };

struct Transfer {
  Direction direction = Direction::kPut;
  Rank peer = 0;
  uintptr_t remote = 0;
  std::byte* local = nullptr;  // puts only read it
  size_t bytes = 0;
  // The caller may change the source before completion.
  bool source_may_change = false;
  bool immediate = false;

  bool is_put() const noexcept { return direction == Direction::kPut; }
};

}  // namespace hydrant
