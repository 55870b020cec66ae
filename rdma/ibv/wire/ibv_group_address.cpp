// Encodes and checks group addresses, which the application carries to another group. The layout is
// little-endian and fixed:
//
//     0  magic "HYIM"
//     4  version, 1
//     6  length of the group address
//     8  rank, number of ranks of the group
//    16  endpoint address of verbs (64, and 24 for each rail; ibv_wire.cpp)
//        checksum of all bytes before it (8)
#include "rdma/ibv/wire/ibv_group_address.hpp"

#include "firehose/base/little_endian.hpp"

namespace hydrant::ibv {
namespace {

constexpr uint32_t kGroupMagic = 0x4d495948;
constexpr uint16_t kGroupVersion = 1;
constexpr size_t kEndpointAt = 16;
constexpr size_t kSumBytes = 8;

using little_endian::get;
using little_endian::put;

// FNV-1a: detects damage, but not a forged address.
uint64_t sum_of(std::span<const std::byte> bytes) noexcept {
  uint64_t sum = 0xcbf29ce484222325;
  for (const std::byte byte : bytes) sum = (sum ^ std::to_integer<uint64_t>(byte)) * 0x100000001b3;
  return sum;
}

// Checks the magic number, the version, the length and the checksum.
Status check_frame(std::span<const std::byte> in) noexcept {
  if (in.size() < group_address_bytes(0))
    return fail(Status::kBadArg,
                "a group address has %zu to %zu bytes, this one %zu: pass all bytes that "
                "group_address() returned",
                group_address_bytes(0), kMaxGroupAddressBytes, in.size());
  if (get(in.data(), 4) != kGroupMagic)
    return fail(Status::kBadArg, "not a group address of verbs: wrong magic number %#x",
                static_cast<unsigned>(get(in.data(), 4)));
  const auto version = static_cast<unsigned>(get(in.data() + 4, 2));
  if (version != kGroupVersion)
    return fail(
        Status::kBadArg,
        "a group address of version %u; this side speaks version %u: both groups must run the "
        "same library",
        version, static_cast<unsigned>(kGroupVersion));
  const uint64_t bytes = get(in.data() + 6, 2);
  if (bytes != in.size())
    return fail(
        Status::kBadArg,
        "a group address of %zu bytes in %zu: pass all bytes that group_address() returned, and no "
        "more",
        static_cast<size_t>(bytes), in.size());
  const size_t summed = in.size() - kSumBytes;
  if (get(in.data() + summed, kSumBytes) != sum_of(in.first(summed)))
    return fail(Status::kBadArg,
                "a group address of %zu bytes with a wrong checksum: it was changed in transit",
                in.size());
  return Status::kOk;
}

}  // namespace

void encode_group_address(const GroupAddress& endpoint, std::byte* out) noexcept {
  const size_t bytes = group_address_bytes(endpoint.endpoint.rail_count);
  put(out, kGroupMagic, 4);
  put(out + 4, kGroupVersion, 2);
  put(out + 6, bytes, 2);
  put(out + 8, endpoint.rank, 4);
  put(out + 12, endpoint.ranks, 4);
  encode_endpoint(endpoint.endpoint, out + kEndpointAt);
  put(out + bytes - kSumBytes, sum_of({out, bytes - kSumBytes}), kSumBytes);
}

Status decode_group_address(std::span<const std::byte> in, GroupAddress* endpoint) noexcept {
  if (const Status status = check_frame(in); status != Status::kOk) return status;
  GroupAddress read;
  read.rank = static_cast<Rank>(get(in.data() + 8, 4));
  read.ranks = static_cast<Rank>(get(in.data() + 12, 4));
  if (read.rank >= read.ranks)
    return fail(Status::kBadArg, "a group address of rank %u of a group of %u", read.rank,
                read.ranks);
  const std::span<const std::byte> inner =
      in.subspan(kEndpointAt, in.size() - kEndpointAt - kSumBytes);
  if (const Status status = decode_endpoint(inner, &read.endpoint); status != Status::kOk)
    return status;
  // The name of a group is the nonce of its rank 0.
  const uint64_t nonce = read.endpoint.address.nonce;
  if (read.endpoint.group == 0 || nonce == 0 || (read.rank == 0) != (read.endpoint.group == nonce))
    return fail(Status::kBadArg,
                "a group address of rank %u that names no group (group %#llx, process %#llx)",
                read.rank, static_cast<unsigned long long>(read.endpoint.group),
                static_cast<unsigned long long>(nonce));
  *endpoint = read;
  return Status::kOk;
}

}  // namespace hydrant::ibv
