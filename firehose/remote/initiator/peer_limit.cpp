// Compares requests with the longest range that a peer grants. PeerCache asks before it sends a move, and
// after a reply.
#include "firehose/remote/initiator/peer_limit.hpp"

#include "firehose/remote/channel/remote_wire.hpp"

namespace hydrant {

bool PeerLimit::forbids(MemoryRange range, size_t granule_bytes) const noexcept {
  const uint64_t most = most_.load(std::memory_order_relaxed);
  if (most == UINT64_MAX || !range.valid() || range.last() > remote_wire::kHighestAddress)
    return false;
  return round_out(range, granule_bytes).len > most;
}

Status PeerLimit::fail(uint32_t peer, MemoryRange range) const noexcept {
  const auto most = static_cast<unsigned long long>(most_.load(std::memory_order_relaxed));
  const auto start = static_cast<size_t>(range.addr);
  if (is_region_.load(std::memory_order_relaxed)) {
    return hydrant::fail(
        Status::kResource,
        "rank %u cannot pin [%#zx, +%zu): its largest region has %llu bytes; pin "
        "the range in pieces, or raise max_region_bytes or FIREHOSE_MAX_REGION_SIZE there",
        peer, start, range.len, most);
  }
  return hydrant::fail(
      Status::kResource,
      "rank %u cannot pin [%#zx, +%zu): it never grants a peer more than %llu "
      "bytes; pin the range in pieces, raise budget_bytes or FIREHOSE_REMOTE_BUDGET there, "
      "or send messages",
      peer, start, range.len, most);
}

}  // namespace hydrant
