// Collects the ids of released firehoses until a message takes them to their peer. PeerCache fills and sends
// it.
#include "firehose/remote/initiator/released_ids.hpp"

#include "firehose/remote/channel/remote_wire.hpp"

#include <algorithm>

namespace hydrant {

size_t ReleasedIds::take(uint64_t* ids, size_t room) noexcept {
  const size_t n = std::min(room, count_);
  count_ -= n;
  std::copy_n(ids_.data() + count_, n, ids);
  if (count_ == 0) urgent_ = reclaiming_;
  return n;
}

size_t ReleasedIds::take_and_end(uint64_t* ids, size_t room) noexcept {
  size_t n = take(ids, room - 1);
  if (reclaiming_ && count_ == 0) {
    reclaiming_ = urgent_ = false;
    ids[n++] = remote_wire::kReclaimed;
  }
  return n;
}

void ReleasedIds::put_back(const uint64_t* ids, size_t n) noexcept {
  if (n != 0 && ids[n - 1] == remote_wire::kReclaimed) {
    reclaiming_ = true;
    --n;
  }
  n = std::min(n, ids_.size() - count_);
  std::copy_n(ids, n, ids_.data() + count_);
  count_ += n;
  urgent_ = true;
}

void ReleasedIds::clear() noexcept {
  count_ = 0;
  urgent_ = reclaiming_ = false;
}

}  // namespace hydrant
