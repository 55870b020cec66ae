// The processes of other, separately started groups that this process has joined as peers: docs/verbs.md,
// "Groups that meet". The application carries their group addresses, because a launcher knows its own group
// only.
//
// Invariant: the first count() places are constant. A process keeps its number for the life of the transport.
//
// Threads: count() by any; everything else under the contact lock.
#pragma once

#include "firehose/base/status.hpp"
#include "rdma/ibv/connection/own_endpoint.hpp"
#include "rdma/ibv/connection/peer_factory.hpp"
#include "rdma/ibv/wire/ibv_group_address.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace hydrant::ibv {

class JoinedGroups {
 public:
  JoinedGroups(const OwnEndpoint& own, const PeerFactory& factory) noexcept
      : own_(own), factory_(factory) {}
  // For `most` processes. Errors: kResource.
  Status open(uint32_t most) noexcept;

  uint32_t count() const noexcept { return count_.load(std::memory_order_acquire); }
  // The address of the joined process with this number, which is at least own_.ranks().
  const GroupAddress& at(Rank number) const noexcept { return joined_[number - own_.ranks()]; }

  // This process's group: the nonce of its rank 0, which all its ranks can read. 0: not known yet.
  uint64_t own_group() const noexcept { return own_group_; }
  void set_own_group(uint64_t group) noexcept { own_group_ = group; }

  // Joins the processes of `blobs`, their group addresses; numbers[i] is the number of the process of
  // blobs[i]. On failure no process is joined. Errors: those of IbvTransport::join().
  Status join(std::span<const std::span<const std::byte>> blobs, std::span<Rank> numbers) noexcept;
  // kNoRank: rank `rank` of that group is not joined.
  Rank number_of(uint64_t group, Rank rank) const noexcept {
    return number_of(group, rank, count_.load(std::memory_order_relaxed));
  }

 private:
  Status admit(std::span<const std::byte> blob, uint32_t* count, Rank* number) noexcept;
  Rank number_of(uint64_t group, Rank rank, uint32_t count) const noexcept;

  const OwnEndpoint& own_;
  const PeerFactory& factory_;
  uint64_t own_group_ = 0;
  uint32_t max_ = 0;
  std::unique_ptr<GroupAddress[]> joined_;
  std::atomic<uint32_t> count_{0};
};

}  // namespace hydrant::ibv
