// Supplies the defaults of PinnedOperations: lists are posted one by one, and there are no atomic operations.
#include "rdma/transport/pinned_operations.hpp"

namespace hydrant {

size_t PinnedOperations::put_list(Rank peer, std::span<const Operation> list) noexcept {
  size_t count = 0;
  for (const Operation& one : list) {
    if (put(peer, one.remote, one.local, one.bytes, one.completion) != Status::kOk) break;
    ++count;
  }
  return count;
}

size_t PinnedOperations::get_list(Rank peer, std::span<const Operation> list) noexcept {
  size_t count = 0;
  for (const Operation& one : list) {
    if (get(peer, one.remote, one.local, one.bytes, one.completion) != Status::kOk) break;
    ++count;
  }
  return count;
}

Status PinnedOperations::start_atomic(Rank, const Pinned&, const Pinned&, const Atomic&,
                                      Completion*) noexcept {
  return fail_literal(Status::kUnsupported, "this transport has no remote atomic operations");
}

}  // namespace hydrant
