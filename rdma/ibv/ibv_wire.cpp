// The layouts of card and greeting: little-endian, fixed.
//
//    card      0  magic "HYIC"   greeting   0  magic "HYIG"
//              4  version, 1                4  version, 1
//              6  zero                      6  flags
//              8  address (32)              8  from, to
//             40  geometry (12)            16  nonce of the receiver
//             52  zero                     24  queue pair, sequence, landing key, zero
//                                          40  landing
//                                          48  the sender's card (64)
#include "rdma/ibv/ibv_wire.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <cstdio>
#include <cstring>

namespace hydrant::ibv {
namespace {

constexpr uint32_t kCardMagic = 0x43495948;
constexpr uint32_t kGreetingMagic = 0x47495948;
constexpr uint16_t kVersion = 1;
constexpr uint16_t kHeard = 1;
constexpr uint16_t kOpen = 2;

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
  writer.put(0, 2);
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
  std::memset(writer.here(), 0, static_cast<size_t>(out + kCardBytes - writer.here()));
}

Status decode_card(std::span<const std::byte> in, Card* card) noexcept {
  if (in.size() != kCardBytes)
    return fail(Status::kBadArg, "a card of verbs has %zu bytes, this one %zu", kCardBytes,
                in.size());
  Reader reader(in.data());
  uint16_t zero = 0;
  if (const Status status = read_frame(reader, "a card", kCardMagic, &zero); status != Status::kOk)
    return status;
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
  uint64_t rest = 0;
  uint32_t last = 0;
  reader.get(&rest);
  reader.get(&last);
  if (zero != 0 || (rest | last) != 0 || address.is_ethernet > 1)
    return fail(Status::kBadArg, "a card of verbs with reserved bytes that are not zero");
  if (address.mtu < IBV_MTU_256 || address.mtu > IBV_MTU_4096)
    return fail(Status::kBadArg, "a card of verbs with a packet size that does not exist (%u)",
                address.mtu);
  if (address.datagram_queue > 0xff'ffff)
    return fail(Status::kBadArg, "a card of verbs with a queue pair that cannot be (%#x)",
                address.datagram_queue);
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
  writer.put(0, 4);
  writer.put(greeting.landing, 8);
  encode_card(greeting.card, writer.here());
}

Status decode_greeting(std::span<const std::byte> in, Greeting* greeting) noexcept {
  if (in.size() != kGreetingBytes)
    return fail(Status::kBadArg, "a greeting of verbs has %zu bytes, this one %zu", kGreetingBytes,
                in.size());
  Reader reader(in.data());
  uint16_t flags = 0;
  if (const Status status = read_frame(reader, "a greeting", kGreetingMagic, &flags);
      status != Status::kOk)
    return status;
  Greeting read;
  uint32_t zero = 0;
  reader.get(&read.from);
  reader.get(&read.to);
  reader.get(&read.to_nonce);
  reader.get(&read.queue_pair);
  reader.get(&read.sequence);
  reader.get(&read.landing_key);
  reader.get(&zero);
  reader.get(&read.landing);
  if (flags > (kHeard | kOpen) || zero != 0)
    return fail(Status::kBadArg, "a greeting of verbs with reserved bits that are not zero");
  if (read.queue_pair > 0xff'ffff || read.sequence > 0xff'ffff)
    return fail(Status::kBadArg, "a greeting of verbs for a queue pair that cannot be (%#x)",
                read.queue_pair);
  read.heard = (flags & kHeard) != 0;
  read.open = (flags & kOpen) != 0;
  const Status status = decode_card(in.subspan(kGreetingBytes - kCardBytes), &read.card);
  if (status == Status::kOk) *greeting = read;
  return status;
}

}  // namespace hydrant::ibv
