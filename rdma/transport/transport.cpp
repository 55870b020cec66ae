// Supplies the default methods of Transport: one-sided operations are unsupported, and lists are posted one
// by one. A transport overrides what its network can do.
#include "rdma/transport/transport.hpp"

#include "firehose/base/thread.hpp"
#include "firehose/base/uncancelled.hpp"

#include <algorithm>

namespace hydrant {
namespace {

constexpr uint64_t kNapNs = 1'000'000;

}  // namespace

Status Transport::put(Rank, uintptr_t, const void*, size_t, Completion*) noexcept {
  return fail_literal(Status::kUnsupported, "this transport has no one-sided operations");
}

Status Transport::get(Rank, uintptr_t, void*, size_t, Completion*) noexcept {
  return fail_literal(Status::kUnsupported, "this transport has no one-sided operations");
}

Status Transport::put_pieces(Rank peer, std::span<const Piece> pieces) noexcept {
  for (const Piece& piece : pieces) {
    const Status status = put(peer, piece.remote, piece.local, piece.bytes, nullptr);
    if (status != Status::kOk) return status;
  }
  return Status::kOk;
}

Status Transport::get_pieces(Rank peer, std::span<const Piece> pieces) noexcept {
  for (const Piece& piece : pieces) {
    const Status status = get(peer, piece.remote, piece.local, piece.bytes, nullptr);
    if (status != Status::kOk) return status;
  }
  return Status::kOk;
}

bool Transport::announce_sleep(Announcement* announcement) noexcept {
  *announcement = {.deadline_ns = now_ns() + kNapNs};
  return true;
}

bool Transport::sleep_announced(const Announcement& announcement, uint64_t deadline_ns) noexcept {
  const uint64_t now = now_ns();
  const uint64_t until = std::min({deadline_ns, announcement.deadline_ns, now + kNapNs});
  uncancelled::sleep_ns(until - std::min(until, now));
  return false;
}

}  // namespace hydrant
