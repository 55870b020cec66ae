// Numbers the processes of other groups. They are connected like ranks of the job; only their names differ.
#include "rdma/ibv/connection/joined_groups.hpp"

#include <new>

namespace hydrant::ibv {

Status JoinedGroups::open(uint32_t most) noexcept {
  max_ = most;
  joined_.reset(new (std::nothrow) GroupAddress[most]);
  if (joined_ != nullptr) return Status::kOk;
  return fail(Status::kResource, "no memory for %u processes of other groups", most);
}

// Searches the first `count` joined processes.
Rank JoinedGroups::number_of(uint64_t group, Rank rank, uint32_t count) const noexcept {
  for (uint32_t i = 0; i < count; ++i) {
    if (joined_[i].endpoint.group == group && joined_[i].rank == rank) return own_.ranks() + i;
  }
  return kNoRank;
}

// Sets the process's number: the one that it has, or else the next, which *count counts.
Status JoinedGroups::admit(std::span<const std::byte> blob, uint32_t* count,
                           Rank* number) noexcept {
  GroupAddress address;
  if (const Status status = decode_group_address(blob, &address); status != Status::kOk)
    return status;
  const uint64_t group = address.endpoint.group;
  if (group == own_group_)
    return fail(
        Status::kBadArg,
        "the endpoint address of rank %u of this group: own ranks are peers already, leave it "
        "out",
        address.rank);
  *number = number_of(group, address.rank, *count);
  if (*number != kNoRank) {
    if (at(*number).endpoint.address.nonce == address.endpoint.address.nonce) return Status::kOk;
    return fail(
        Status::kBadArg,
        "rank %u of group %016llx was joined by another endpoint address: a group never has "
        "two processes of one rank",
        address.rank, static_cast<unsigned long long>(group));
  }
  const PeerName name = name_of(own_.ranks() + *count, address.rank, group);
  if (const Status status = factory_.check_settings(name, address.endpoint); status != Status::kOk)
    return status;
  if (*count == max_)
    return fail(Status::kResource,
                "no room for more than %u processes of other groups "
                "(IbvTransport::Options::max_joined): open the transport with more",
                max_);
  joined_[*count] = address;
  *number = own_.ranks() + (*count)++;
  return Status::kOk;
}

Status JoinedGroups::join(std::span<const std::span<const std::byte>> blobs,
                          std::span<Rank> numbers) noexcept {
  // Other threads read no place behind count_ until the store below.
  uint32_t count = count_.load(std::memory_order_relaxed);
  for (size_t i = 0; i < blobs.size(); ++i) {
    if (const Status status = admit(blobs[i], &count, &numbers[i]); status != Status::kOk)
      return add_context(status, "endpoint address %zu of %zu, no process is joined", i + 1,
                         blobs.size());
  }
  count_.store(count, std::memory_order_release);
  return Status::kOk;
}

}  // namespace hydrant::ibv
