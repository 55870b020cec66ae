// Encodes and checks endpoint addresses and handshakes (tour "first contact"). The layouts are little-endian
// and fixed.
//
//    endpoint address                   handshake
//      0  magic "HYIC"                    0  magic "HYIG"
//      4  version, 3                      4  version, 3
//      6  how many rails                  6  flags, the reason of a refusal (1 each)
//      8  address (32)                    8  from, to
//     40  parameters (12)                16  nonce of the receiver
//     52  group, port traits (4)         24  queue pair, sequence, slot key, index at peer
//     64  the rails (24 each):           40  receive slot
//         GID (16), LID, MTU,            48  the sender's endpoint address (64, and 24 for each rail)
//         link layer, port traits            its rails (24 each): queue pair, sequence, fence key,
//                                            flags, fence
//
// The frame, the first 6 bytes, is the same in all versions, so that ranks of different versions name both.
// Flags of a handshake that a receiver does not know are ignored.
#include "rdma/ibv/wire/ibv_wire.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <cstdio>
#include <cstring>

namespace hydrant::ibv {
namespace {

constexpr uint32_t kEndpointMagic = 0x43495948;
constexpr uint32_t kHandshakeMagic = 0x47495948;
constexpr uint16_t kWireVersion = 3;
constexpr size_t kFrameBytes = 8;
constexpr uint16_t kCanReceive = 1;
constexpr uint16_t kOpen = 2;
constexpr uint16_t kOneAdapter = 4;
constexpr uint32_t kRailReady = 1;

class Writer {
 public:
  explicit Writer(std::byte* out) noexcept : out_(out) {}
  void put(uint64_t value, size_t bytes) noexcept {
    for (size_t i = 0; i < bytes; ++i) *out_++ = static_cast<std::byte>(value >> (8 * i));
  }
  void put_bytes(const void* from, size_t bytes) noexcept {
    std::memcpy(out_, from, bytes);
    out_ += bytes;
  }
  std::byte* here() const noexcept { return out_; }

 private:
  std::byte* out_;
};

class Reader {
 public:
  explicit Reader(const std::byte* in) noexcept : in_(in) {}
  template <typename Number>
  void get(Number* number, size_t bytes = sizeof(Number)) noexcept {
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; ++i) value |= std::to_integer<uint64_t>(*in_++) << (8 * i);
    *number = static_cast<Number>(value);
  }
  void get_bytes(void* to, size_t bytes) noexcept {
    std::memcpy(to, in_, bytes);
    in_ += bytes;
  }

 private:
  const std::byte* in_;
};

// Port traits: whether packets need a global header and the version of the GID, the reads, the order of
// writes, zero.
void put_traits(Writer& writer, const PortAddress& address) noexcept {
  writer.put(address.needs_grh + 2u * address.gid_version, 1);
  writer.put(address.reads_in, 1);
  writer.put(address.order, 1);
  writer.put(0, 1);
}

// False: a reserved bit is set, there or in the link layer.
bool get_traits(Reader& reader, PortAddress* address) noexcept {
  uint8_t traits = 0;
  uint8_t zero = 0;
  reader.get(&traits);
  reader.get(&address->reads_in);
  reader.get(&address->order);
  reader.get(&zero);
  address->needs_grh = traits & 1;
  address->gid_version = static_cast<uint8_t>(traits >> 1);
  return zero == 0 && address->gid_version <= 2 && address->is_ethernet <= 1;
}

// Reads the magic number, the version, and the two bytes behind them.
Status read_frame(std::span<const std::byte> in, const char* what, uint32_t magic,
                  uint16_t* last) noexcept {
  if (in.size() < kFrameBytes)
    return fail(Status::kBadArg, "%s of verbs of %zu bytes: it is cut", what, in.size());
  Reader reader(in.data());
  uint32_t found = 0;
  uint16_t version = 0;
  reader.get(&found);
  reader.get(&version);
  reader.get(last);
  if (found != magic)
    return fail(Status::kBadArg, "%s of verbs has the wrong magic number %#x", what, found);
  if (version == kWireVersion) return Status::kOk;
  return fail(
      Status::kBadArg,
      "%s of verbs has version %u; this side speaks version %u: all ranks must run the same "
      "library",
      what, version, kWireVersion);
}

}  // namespace

AddressText text_of(const PortAddress& address) noexcept {
  constexpr uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  AddressText made;
  const uint8_t* gid = address.gid.raw;
  if (address.is_ethernet == 0) {
    std::snprintf(made.text, sizeof made.text, "LID %u", address.lid);
  } else if (std::equal(std::begin(kMapped), std::end(kMapped), gid)) {
    (void)inet_ntop(AF_INET, gid + sizeof kMapped, made.text, sizeof made.text);
  } else {
    (void)inet_ntop(AF_INET6, gid, made.text, sizeof made.text);
  }
  return made;
}

void encode_endpoint(const EndpointAddress& endpoint, std::byte* out) noexcept {
  Writer writer(out);
  writer.put(kEndpointMagic, 4);
  writer.put(kWireVersion, 2);
  writer.put(endpoint.rail_count, 2);
  const DatagramAddress& address = endpoint.address;
  writer.put(address.nonce, 8);
  writer.put(address.datagram_queue, 4);
  writer.put(address.lid, 2);
  writer.put(address.mtu, 1);
  writer.put(address.is_ethernet, 1);
  writer.put_bytes(address.gid.raw, sizeof address.gid.raw);
  writer.put(endpoint.connection_parameters.message_bytes, 4);
  writer.put(endpoint.connection_parameters.cell_bytes, 4);
  writer.put(endpoint.connection_parameters.credits, 2);
  writer.put(endpoint.connection_parameters.receive_slots, 2);
  writer.put(endpoint.group, 8);
  put_traits(writer, address);
  for (uint32_t i = 0; i < endpoint.rail_count; ++i) {
    const PortAddress& rail = endpoint.rails[i];
    writer.put_bytes(rail.gid.raw, sizeof rail.gid.raw);
    writer.put(rail.lid, 2);
    writer.put(rail.mtu, 1);
    writer.put(rail.is_ethernet, 1);
    put_traits(writer, rail);
  }
}

namespace {

// Reads the rails of an endpoint address, whose length has been checked.
Status read_rails(Reader& reader, uint32_t count, EndpointAddress* endpoint) noexcept {
  endpoint->rail_count = count;
  for (uint32_t i = 0; i < count; ++i) {
    PortAddress& rail = endpoint->rails[i];
    reader.get_bytes(rail.gid.raw, sizeof rail.gid.raw);
    reader.get(&rail.lid);
    reader.get(&rail.mtu);
    reader.get(&rail.is_ethernet);
    if (!get_traits(reader, &rail))
      return fail(Status::kBadArg,
                  "an endpoint address of verbs with reserved bytes of rail %u that are not zero",
                  i + 1);
    if (rail.mtu < IBV_MTU_256 || rail.mtu > IBV_MTU_4096)
      return fail(Status::kBadArg,
                  "an endpoint address of verbs with an invalid packet size of rail %u (%u)", i + 1,
                  rail.mtu);
  }
  return Status::kOk;
}

}  // namespace

Status decode_endpoint(std::span<const std::byte> in, EndpointAddress* endpoint) noexcept {
  uint16_t rails = 0;
  if (const Status status = read_frame(in, "an endpoint address", kEndpointMagic, &rails);
      status != Status::kOk)
    return status;
  if (rails >= kMaxRails)
    return fail(Status::kBadArg, "an endpoint address of verbs with %u ports; %u are the most",
                rails + 1u, kMaxRails);
  if (in.size() != endpoint_bytes(rails))
    return fail(Status::kBadArg,
                "an endpoint address of verbs with %u ports has %zu bytes, this one %zu",
                rails + 1u, endpoint_bytes(rails), in.size());
  Reader reader(in.data() + kFrameBytes);
  EndpointAddress read;
  DatagramAddress& address = read.address;
  reader.get(&address.nonce);
  reader.get(&address.datagram_queue);
  reader.get(&address.lid);
  reader.get(&address.mtu);
  reader.get(&address.is_ethernet);
  reader.get_bytes(address.gid.raw, sizeof address.gid.raw);
  reader.get(&read.connection_parameters.message_bytes);
  reader.get(&read.connection_parameters.cell_bytes);
  reader.get(&read.connection_parameters.credits);
  reader.get(&read.connection_parameters.receive_slots);
  reader.get(&read.group);
  if (!get_traits(reader, &address))
    return fail(Status::kBadArg,
                "an endpoint address of verbs with reserved bytes that are not zero");
  if (address.mtu < IBV_MTU_256 || address.mtu > IBV_MTU_4096)
    return fail(Status::kBadArg, "an endpoint address of verbs with an invalid packet size (%u)",
                address.mtu);
  if (address.datagram_queue > 0xff'ffff)
    return fail(Status::kBadArg,
                "an endpoint address of verbs with an invalid queue pair number (%#x)",
                address.datagram_queue);
  if (const Status status = read_rails(reader, rails, &read); status != Status::kOk) return status;
  *endpoint = read;
  return Status::kOk;
}

void encode_handshake(const Handshake& handshake, std::byte* out) noexcept {
  Writer writer(out);
  writer.put(kHandshakeMagic, 4);
  writer.put(kWireVersion, 2);
  writer.put((handshake.can_receive ? kCanReceive : 0u) | (handshake.open ? kOpen : 0u) |
                 (handshake.one_adapter ? kOneAdapter : 0u),
             1);
  writer.put(static_cast<uint8_t>(handshake.refusal), 1);
  writer.put(handshake.from, 4);
  writer.put(handshake.to, 4);
  writer.put(handshake.to_nonce, 8);
  writer.put(handshake.queue_pair, 4);
  writer.put(handshake.sequence, 4);
  writer.put(handshake.slot_key, 4);
  writer.put(handshake.index_at_peer, 4);
  writer.put(handshake.receive_slot, 8);
  encode_endpoint(handshake.endpoint, writer.here());
  Writer rails(writer.here() + endpoint_bytes(handshake.endpoint.rail_count));
  for (uint32_t i = 0; i < handshake.endpoint.rail_count; ++i) {
    const Handshake::Rail& rail = handshake.rails[i];
    rails.put(rail.queue_pair, 4);
    rails.put(rail.sequence, 4);
    rails.put(rail.fence_key, 4);
    rails.put(rail.is_ready ? kRailReady : 0u, 4);
    rails.put(rail.fence, 8);
  }
}

namespace {

Status read_rails(Reader& reader, Handshake* handshake) noexcept {
  for (uint32_t i = 0; i < handshake->endpoint.rail_count; ++i) {
    Handshake::Rail& rail = handshake->rails[i];
    uint32_t flags = 0;
    reader.get(&rail.queue_pair);
    reader.get(&rail.sequence);
    reader.get(&rail.fence_key);
    reader.get(&flags);
    reader.get(&rail.fence);
    if (flags > kRailReady)
      return fail(Status::kBadArg, "a handshake of verbs with reserved bits of rail %u", i + 1);
    if (rail.queue_pair > 0xff'ffff || rail.sequence > 0xff'ffff)
      return fail(Status::kBadArg,
                  "a handshake of verbs with an invalid queue pair number of rail %u (%#x)", i + 1,
                  rail.queue_pair);
    rail.is_ready = flags != 0;
  }
  return Status::kOk;
}

}  // namespace

Status decode_handshake(std::span<const std::byte> in, Handshake* handshake) noexcept {
  uint16_t flags = 0;
  if (const Status status = read_frame(in, "a handshake", kHandshakeMagic, &flags);
      status != Status::kOk)
    return status;
  // Each rail has an entry in the endpoint address and one behind it, so the length gives their number.
  // decode_endpoint() fails below if the count in the endpoint address differs.
  const size_t more = in.size() - kHandshakeBytes;
  if (in.size() < kHandshakeBytes || in.size() > handshake_bytes(kMaxRails - 1) ||
      more % (kEndpointRailBytes + kHandshakeRailBytes) != 0)
    return fail(Status::kBadArg,
                "a handshake of verbs has %zu bytes and %zu for each rail, this one %zu",
                kHandshakeBytes, kEndpointRailBytes + kHandshakeRailBytes, in.size());
  const auto rail_count = static_cast<uint32_t>(more / (kEndpointRailBytes + kHandshakeRailBytes));
  Reader reader(in.data() + kFrameBytes);
  Handshake read;
  reader.get(&read.from);
  reader.get(&read.to);
  reader.get(&read.to_nonce);
  reader.get(&read.queue_pair);
  reader.get(&read.sequence);
  reader.get(&read.slot_key);
  reader.get(&read.index_at_peer);
  reader.get(&read.receive_slot);
  if (read.queue_pair > 0xff'ffff || read.sequence > 0xff'ffff)
    return fail(Status::kBadArg, "a handshake of verbs with an invalid queue pair number (%#x)",
                read.queue_pair);
  read.can_receive = (flags & kCanReceive) != 0;
  read.open = (flags & kOpen) != 0;
  read.one_adapter = (flags & kOneAdapter) != 0;
  read.refusal = static_cast<Refusal>(flags >> 8);
  const std::span<const std::byte> endpoint = in.subspan(kHandshakeBytes - kEndpointBytes);
  Status status = decode_endpoint(endpoint.first(endpoint_bytes(rail_count)), &read.endpoint);
  if (status == Status::kOk) {
    Reader rails(endpoint.data() + endpoint_bytes(rail_count));
    status = read_rails(rails, &read);
  }
  if (status == Status::kOk) *handshake = read;
  return status;
}

}  // namespace hydrant::ibv
