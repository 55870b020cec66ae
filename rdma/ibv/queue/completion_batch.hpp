// Collects operations that end while a lock is held. Their completions are called after the lock is released,
// because a completion may release pins, and so call a registrar.
//
// Invariant: at most kCapacity entries; notify() empties the batch before it calls the first completion.
#pragma once

#include "rdma/transport/transport.hpp"

#include <cstdint>
#include <utility>

namespace hydrant::ibv {

class CompletionBatch {
 public:
  static constexpr uint32_t kCapacity = 16;

  bool is_full() const noexcept { return count_ == kCapacity; }
  bool is_empty() const noexcept { return count_ == 0; }
  // `completion` may be null: the operation counts, but has no callback.
  void add(Completion* completion, Status status) noexcept {
    entries_[count_++] = {completion, status};
  }
  // Calls the completions; the caller holds no lock. Returns the number of operations.
  uint32_t notify() noexcept {
    const uint32_t count = std::exchange(count_, 0);
    for (uint32_t i = 0; i < count; ++i) {
      const auto& [completion, status] = entries_[i];
      if (completion != nullptr) completion->done(*completion, status);
    }
    return count;
  }

 private:
  struct Entry {
    Completion* completion;
    Status status;
  };
  Entry entries_[kCapacity];
  uint32_t count_ = 0;
};

}  // namespace hydrant::ibv
