// Sends room notices (decision 0033). An initiator whose move was declined for now requests one; the target
// sends it when there may be room.
//
// The end of a hold sends nothing, so the target has to look for room: in its poll while it remembers
// waiting initiators, or at each request with kAtOnce. Clients whose poll runs only when a message has
// arrived need kAtOnce.
#include "firehose/remote/target/remote_target.hpp"
#include "firehose/watch/mutant.hpp"
#include "firehose/watch/rule_clock.hpp"

#include <utility>

namespace hydrant {

using namespace remote_wire;

namespace {

// Time between two searches for room: a search takes the domain's mutex and visits the held regions.
constexpr uint64_t kLookEveryNs = 20'000;

}  // namespace

bool RemoteTarget::may_have_room(uint32_t from, MemoryRange range, Access access) noexcept {
  {
    MutexLock lock(exports_mu_);
    if (exports_.counts().zombies() != 0 &&
        exports_.counts().zombie_bytes() >= config_.zombie_bytes)
      return false;
    // The peer may make room itself, by releases: only it knows which of its firehoses are idle.
    if (leases_.held(from) != 0) return true;
    if (!exports_.has_room() || !leases_.may_fit(from, range.len)) return false;
  }
  return domain_.exports().may_fit(range, access);
}

Status RemoteTarget::on_await(uint32_t from, const Await& await, void* reply_to) noexcept {
  const MemoryRange range{static_cast<uintptr_t>(await.addr), static_cast<size_t>(await.len)};
  if (await.access > bits(Access::kAll) || range.len == 0 || !range.valid() ||
      range.last() > kHighestAddress) {
    return fail(Status::kBadArg,
                "a room request of rank %u has no valid range, or unknown rights: hand over what "
                "its messenger was given",
                from);
  }
  const auto access = static_cast<Access>(await.access);
  const bool now = may_have_room(from, range, access);
  const bool at_once = (await.flags & kAtOnce) != 0;
  if (now || at_once) {
    if (!send_room(from, now, reply_to)) {
      MutexLock lock(exports_mu_);
      notices_[from].room = now ? PendingNotices::Room::kDue : PendingNotices::Room::kPending;
      channel_.mark_pending(from);
    }
    return Status::kOk;
  }
  if (is_mutant(Mutant::kForgetAwaiting)) return Status::kOk;
  MutexLock lock(exports_mu_);
  MemoryRange& awaited = notices_[from].awaited;
  if (notices_[from].gone) return Status::kOk;
  if (awaited.len == 0) awaiting_.fetch_add(1, std::memory_order_relaxed);
  // The notice is for the shortest range of this peer; its other pins send another request.
  if (awaited.len == 0 || range.len < awaited.len) {
    awaited = range;
    notices_[from].awaited_access = access;
  }
  channel_.mark_any_pending();
  return Status::kOk;
}

bool RemoteTarget::send_room(uint32_t peer, bool now, void* reply_to) noexcept {
  Message message;
  message.add(header(Type::kRoom));
  message.add(Room{now ? uint32_t{kDue} : 0, 0});
  const Status status = channel_.send(
      peer, reply_to != nullptr ? HYDRANT_LANE_REPLY : HYDRANT_LANE_REQUEST, reply_to, message);
  return status != Status::kNotReady;
}

void RemoteTarget::forget_awaiting_locked(uint32_t peer) noexcept {
  if (notices_[peer].awaited.len != 0) awaiting_.fetch_sub(1, std::memory_order_relaxed);
  notices_[peer].awaited = {};
}

// Part of poll(), in each call while initiators wait, since the end of a hold is no event.
void RemoteTarget::check_room() noexcept {
  if (awaiting_.load(std::memory_order_relaxed) == 0) return;
  const uint64_t now = rule_now_ns();
  if (now - room_looked_at_.load(std::memory_order_relaxed) < kLookEveryNs) return;
  room_looked_at_.store(now, std::memory_order_relaxed);
  uint32_t left = awaiting_.load(std::memory_order_relaxed);
  for (uint32_t peer = 0; peer < config_.ranks && left != 0; ++peer) {
    MemoryRange range;
    Access access{};
    {
      MutexLock lock(exports_mu_);
      range = notices_[peer].awaited;
      access = notices_[peer].awaited_access;
    }
    if (range.len == 0) continue;
    --left;
    if (!may_have_room(peer, range, access)) continue;
    MutexLock lock(exports_mu_);
    forget_awaiting_locked(peer);
    notices_[peer].room = PendingNotices::Room::kDue;
    channel_.mark_pending(peer);
  }
}

int RemoteTarget::send_room_notice(uint32_t peer) noexcept {
  auto room = PendingNotices::Room::kNone;
  {
    MutexLock lock(exports_mu_);
    room = std::exchange(notices_[peer].room, PendingNotices::Room::kNone);
  }
  if (room == PendingNotices::Room::kNone) return 0;
  if (send_room(peer, room == PendingNotices::Room::kDue, nullptr)) return 1;
  MutexLock lock(exports_mu_);
  if (notices_[peer].gone) return 0;
  if (notices_[peer].room == PendingNotices::Room::kNone) notices_[peer].room = room;
  channel_.mark_pending(peer);
  return 0;
}

}  // namespace hydrant
