// The layouts of card and greeting: little-endian, fixed.
//
//    card      0  magic "HYIC"     greeting   0  magic "HYIG"
//              4  version, 2                  4  version, 2
//              6  how many rails              6  flags
//              8  address (32)                8  from, to
//             40  geometry (12)              16  nonce of the receiver
//             52  group, zero (4)            24  queue pair, sequence, landing key, known as
//             64  the rails (24 each):       40  landing
//                 GID (16), LID, MTU,        48  the sender's card (64, and 24 for each rail)
//                 link layer, zero               its rails (24 each): queue pair, sequence, fence key,
//                                                flags, fence
#include "rdma/ibv/ibv_wire.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <cstdio>
#include <cstring>

namespace hydrant::ibv {
namespace {

constexpr uint32_t kCardMagic = 0x43495948;
constexpr uint32_t kGreetingMagic = 0x47495948;
constexpr uint16_t kVersion = 2;
constexpr uint16_t kHeard = 1;
constexpr uint16_t kOpen = 2;
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

Status read_frame(Reader& reader, const char* what, uint32_t magic, uint16_t* last) noexcept {
  uint32_t found = 0;
  uint16_t version = 0;
  reader.get(&found);
  reader.get(&version);
  reader.get(last);
  if (found != magic)
    return fail(Status::kBadArg, "%s of verbs has the wrong magic number %#x", what, found);
  if (version == kVersion) return Status::kOk;
  return fail(
      Status::kBadArg,
      "%s of verbs has version %u; this side speaks version %u: all ranks must run the same "
      "library",
      what, version, kVersion);
}

}  // namespace

AddressText text_of(const Address& address) noexcept {
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

void encode_card(const Card& card, std::byte* out) noexcept {
  Writer writer(out);
  writer.put(kCardMagic, 4);
  writer.put(kVersion, 2);
  writer.put(card.rail_count, 2);
  const Address& address = card.address;
  writer.put(address.nonce, 8);
  writer.put(address.datagram_queue, 4);
  writer.put(address.lid, 2);
  writer.put(address.mtu, 1);
  writer.put(address.is_ethernet, 1);
  writer.put_bytes(address.gid.raw, sizeof address.gid.raw);
  writer.put(card.geometry.message_bytes, 4);
  writer.put(card.geometry.cell_bytes, 4);
  writer.put(card.geometry.credits, 2);
  writer.put(card.geometry.landings, 2);
  writer.put(card.group, 8);
  writer.put(0, 4);
  for (uint32_t i = 0; i < card.rail_count; ++i) {
    const RailAddress& rail = card.rails[i];
    writer.put_bytes(rail.gid.raw, sizeof rail.gid.raw);
    writer.put(rail.lid, 2);
    writer.put(rail.mtu, 1);
    writer.put(rail.is_ethernet, 1);
    writer.put(0, 4);
  }
}

namespace {

// The rails of a card whose length is right.
Status read_rails(Reader& reader, uint32_t count, Card* card) noexcept {
  card->rail_count = count;
  for (uint32_t i = 0; i < count; ++i) {
    RailAddress& rail = card->rails[i];
    uint32_t zero = 0;
    reader.get_bytes(rail.gid.raw, sizeof rail.gid.raw);
    reader.get(&rail.lid);
    reader.get(&rail.mtu);
    reader.get(&rail.is_ethernet);
    reader.get(&zero);
    if (zero != 0 || rail.is_ethernet > 1)
      return fail(Status::kBadArg,
                  "a card of verbs with reserved bytes of rail %u that are not zero", i + 1);
    if (rail.mtu < IBV_MTU_256 || rail.mtu > IBV_MTU_4096)
      return fail(Status::kBadArg,
                  "a card of verbs with a packet size of rail %u that does not exist (%u)", i + 1,
                  rail.mtu);
  }
  return Status::kOk;
}

}  // namespace

Status decode_card(std::span<const std::byte> in, Card* card) noexcept {
  if (in.size() < kCardBytes)
    return fail(Status::kBadArg, "a card of verbs has %zu bytes or more, this one %zu", kCardBytes,
                in.size());
  Reader reader(in.data());
  uint16_t rails = 0;
  if (const Status status = read_frame(reader, "a card", kCardMagic, &rails); status != Status::kOk)
    return status;
  if (rails >= kMostRails)
    return fail(Status::kBadArg, "a card of verbs with %u ports; %u are the most", rails + 1u,
                kMostRails);
  if (in.size() != card_bytes(rails))
    return fail(Status::kBadArg, "a card of verbs with %u ports has %zu bytes, this one %zu",
                rails + 1u, card_bytes(rails), in.size());
  Card read;
  Address& address = read.address;
  reader.get(&address.nonce);
  reader.get(&address.datagram_queue);
  reader.get(&address.lid);
  reader.get(&address.mtu);
  reader.get(&address.is_ethernet);
  reader.get_bytes(address.gid.raw, sizeof address.gid.raw);
  reader.get(&read.geometry.message_bytes);
  reader.get(&read.geometry.cell_bytes);
  reader.get(&read.geometry.credits);
  reader.get(&read.geometry.landings);
  uint32_t last = 0;
  reader.get(&read.group);
  reader.get(&last);
  if (last != 0 || address.is_ethernet > 1)
    return fail(Status::kBadArg, "a card of verbs with reserved bytes that are not zero");
  if (address.mtu < IBV_MTU_256 || address.mtu > IBV_MTU_4096)
    return fail(Status::kBadArg, "a card of verbs with a packet size that does not exist (%u)",
                address.mtu);
  if (address.datagram_queue > 0xff'ffff)
    return fail(Status::kBadArg, "a card of verbs with a queue pair that cannot be (%#x)",
                address.datagram_queue);
  if (const Status status = read_rails(reader, rails, &read); status != Status::kOk) return status;
  *card = read;
  return Status::kOk;
}

void encode_greeting(const Greeting& greeting, std::byte* out) noexcept {
  Writer writer(out);
  writer.put(kGreetingMagic, 4);
  writer.put(kVersion, 2);
  writer.put((greeting.heard ? kHeard : 0u) | (greeting.open ? kOpen : 0u), 2);
  writer.put(greeting.from, 4);
  writer.put(greeting.to, 4);
  writer.put(greeting.to_nonce, 8);
  writer.put(greeting.queue_pair, 4);
  writer.put(greeting.sequence, 4);
  writer.put(greeting.landing_key, 4);
  writer.put(greeting.known_as, 4);
  writer.put(greeting.landing, 8);
  encode_card(greeting.card, writer.here());
  Writer rails(writer.here() + card_bytes(greeting.card.rail_count));
  for (uint32_t i = 0; i < greeting.card.rail_count; ++i) {
    const Greeting::Rail& rail = greeting.rails[i];
    rails.put(rail.queue_pair, 4);
    rails.put(rail.sequence, 4);
    rails.put(rail.fence_key, 4);
    rails.put(rail.is_ready ? kRailReady : 0u, 4);
    rails.put(rail.fence, 8);
  }
}

namespace {

Status read_rails(Reader& reader, Greeting* greeting) noexcept {
  for (uint32_t i = 0; i < greeting->card.rail_count; ++i) {
    Greeting::Rail& rail = greeting->rails[i];
    uint32_t flags = 0;
    reader.get(&rail.queue_pair);
    reader.get(&rail.sequence);
    reader.get(&rail.fence_key);
    reader.get(&flags);
    reader.get(&rail.fence);
    if (flags > kRailReady)
      return fail(Status::kBadArg, "a greeting of verbs with reserved bits of rail %u", i + 1);
    if (rail.queue_pair > 0xff'ffff || rail.sequence > 0xff'ffff)
      return fail(Status::kBadArg,
                  "a greeting of verbs for a queue pair of rail %u that cannot be (%#x)", i + 1,
                  rail.queue_pair);
    rail.is_ready = flags != 0;
  }
  return Status::kOk;
}

}  // namespace

Status decode_greeting(std::span<const std::byte> in, Greeting* greeting) noexcept {
  // For each rail there is a part in the card and one behind it; the card says how many, and is checked.
  const size_t more = in.size() - kGreetingBytes;
  if (in.size() < kGreetingBytes || in.size() > greeting_bytes(kMostRails - 1) ||
      more % (kCardRailBytes + kGreetingRailBytes) != 0)
    return fail(Status::kBadArg,
                "a greeting of verbs has %zu bytes and %zu for each rail, this one %zu",
                kGreetingBytes, kCardRailBytes + kGreetingRailBytes, in.size());
  const auto rail_count = static_cast<uint32_t>(more / (kCardRailBytes + kGreetingRailBytes));
  Reader reader(in.data());
  uint16_t flags = 0;
  if (const Status status = read_frame(reader, "a greeting", kGreetingMagic, &flags);
      status != Status::kOk)
    return status;
  Greeting read;
  reader.get(&read.from);
  reader.get(&read.to);
  reader.get(&read.to_nonce);
  reader.get(&read.queue_pair);
  reader.get(&read.sequence);
  reader.get(&read.landing_key);
  reader.get(&read.known_as);
  reader.get(&read.landing);
  if (flags > (kHeard | kOpen))
    return fail(Status::kBadArg, "a greeting of verbs with reserved bits that are not zero");
  if (read.queue_pair > 0xff'ffff || read.sequence > 0xff'ffff)
    return fail(Status::kBadArg, "a greeting of verbs for a queue pair that cannot be (%#x)",
                read.queue_pair);
  read.heard = (flags & kHeard) != 0;
  read.open = (flags & kOpen) != 0;
  const std::span<const std::byte> card = in.subspan(kGreetingBytes - kCardBytes);
  Status status = decode_card(card.first(card_bytes(rail_count)), &read.card);
  if (status == Status::kOk) {
    Reader rails(card.data() + card_bytes(rail_count));
    status = read_rails(rails, &read);
  }
  if (status == Status::kOk) *greeting = read;
  return status;
}

}  // namespace hydrant::ibv
