// Requests a room notice from the target after it has declined a move for now, and passes the notice on to
// the client (decision 0033). The target's side is target/remote_room.cpp.
#include "firehose/pin/failure_texts.hpp"
#include "firehose/remote/initiator/peer_cache.hpp"
#include "firehose/watch/mutant.hpp"

namespace hydrant {

using namespace remote_wire;

Status PeerCache::await_room(MemoryRange range, Access access, bool at_once) noexcept {
  {
    MutexLock lock(mu_);
    if (is_gone_) return fail_rank_exited(peer_);
    // A notice is under way already; without at_once it comes for the shortest of the ranges.
    if (awaited_bytes_ != 0 && (at_once || range.len >= awaited_bytes_)) return Status::kOk;
    awaited_bytes_ = range.len;
  }
  Message message;
  message.add(header(Type::kAwait));
  message.add(Await{range.addr, range.len, bits(access), at_once ? uint32_t{kAtOnce} : 0});
  const Status status = channel_.send(peer_, HYDRANT_LANE_REQUEST, nullptr, message);
  if (status == Status::kOk) return status;
  MutexLock lock(mu_);
  awaited_bytes_ = 0;
  return status;
}

void PeerCache::on_room(const Room& room) noexcept {
  {
    MutexLock lock(mu_);
    awaited_bytes_ = 0;
  }
  const RemoteConfig& config = channel_.config();
  if ((room.flags & kDue) == 0 || config.room == nullptr || is_mutant(Mutant::kIgnoreRoom)) return;
  config.room(config.user, peer_);
}

}  // namespace hydrant
