// The memory that the ranks of a node share while they start, in the start_block() of the first of them.
#pragma once

#include "rdma/ibv/device/networks.hpp"
#include "rdma/transport/memory_access.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hydrant::ibv {

struct StartBoard {
  // `board`: a start_block(), zero at first.
  static StartBoard& at(std::byte* board) noexcept {
    return *static_cast<StartBoard*>(static_cast<void*>(board));
  }

  // The first rank tells the others by this. `network` is valid in the state kOneNetwork.
  enum State : uint32_t { kUndecided, kAnyPort, kOneNetwork, kFailed };
  std::atomic<uint32_t> state;
  NetworkId network;
  std::atomic<uint64_t> adapter;  // of NodeAdapters
};
static_assert(sizeof(StartBoard) <= MemoryAccess::kStartBytes);

}  // namespace hydrant::ibv
