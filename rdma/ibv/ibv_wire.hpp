// What two ranks tell each other over verbs: the card that the launcher hands out, the greeting that connects
// a queue pair (a datagram), and the header of a message. docs/verbs.md has the whole story.
//
// Card and greeting come from strangers until they are decoded; the header comes from a queue pair whose
// other end is known, and its lengths are checked where it is read.
#pragma once

#include "firehose/base/status.hpp"
#include "rdma/bootstrap.hpp"
#include "rdma/ibv/ibv_port.hpp"

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace hydrant::ibv {

// What both ends must agree on; a rank that was started with other settings is refused with a text.
struct Geometry {
  uint32_t message_bytes = 0;  // of a receive buffer, header included
  uint32_t cell_bytes = 0;
  uint16_t credits = 0;   // messages of one lane under way to a peer
  uint16_t landings = 0;  // cells of one lane under way to a peer

  bool operator==(const Geometry&) const = default;
};

// Where a rank's datagrams go.
struct Address {
  uint64_t nonce =
      0;  // drawn by the process: what bears another is of another job, or of a dead process
  uint32_t datagram_queue = 0;
  uint16_t lid = 0;
  uint8_t mtu = 0;  // ibv_mtu
  uint8_t is_ethernet = 0;
  ibv_gid gid = {};
};

// What people call it: 10.78.0.2, another GID as an IPv6 address, or LID 5.
struct AddressText {
  char text[48] = "";
};
AddressText text_of(const Address& address) noexcept;

// Where a port beside the first is reached (ibv_rails.hpp).
struct RailAddress {
  ibv_gid gid = {};
  uint16_t lid = 0;
  uint8_t mtu = 0;
  uint8_t is_ethernet = 0;
};

struct Card {
  Address address;
  Geometry geometry;
  // Of the process's group, to processes of another: what its rank 0 has drawn. 0: one job, as the launcher's
  // cards are.
  uint64_t group = 0;
  uint32_t rail_count = 0;  // beside the first port
  RailAddress rails[kMostRails - 1];
};

inline constexpr size_t kCardBytes = 64;  // of a rank with one port
inline constexpr size_t kCardRailBytes = 24;
constexpr size_t card_bytes(uint32_t rail_count) noexcept {
  return kCardBytes + rail_count * kCardRailBytes;
}
inline constexpr size_t kMostCardBytes = card_bytes(kMostRails - 1);
// Writes card_bytes().
void encode_card(const Card& card, std::byte* out) noexcept;
// Errors: kBadArg, with a text that says what is wrong. *card is unchanged on failure.
Status decode_card(std::span<const std::byte> in, Card* card) noexcept;

// "This is my queue pair for you": sent until the other end is known to have heard, which it says by a
// greeting of its own. `heard`: the sender knows the receiver's queue pair, and its own can receive.
// `open`: the sender knows that the receiver can, too, and asks no more.
struct Greeting {
  // The queue pair of one rail.
  struct Rail {
    uint32_t queue_pair = 0;  // 0: there is none
    uint32_t sequence = 0;
    uint32_t fence_key = 0;
    uint64_t fence = 0;     // address of what its fences read
    bool is_ready = false;  // with `heard`: it can receive
  };
  Card card;  // of the sender; with no more rails than the receiver has
  uint64_t to_nonce = 0;
  Rank from = 0;  // each in its own group
  Rank to = 0;
  uint32_t queue_pair = 0;
  uint32_t sequence = 0;  // of its first packet
  uint32_t landing_key = 0;
  Rank known_as = 0;     // the number by which the receiver is a peer of the sender
  uint64_t landing = 0;  // address of the landing cells, first those for requests
  bool heard = false;
  bool open = false;
  Rail rails[kMostRails - 1];  // card.rail_count of them
};

inline constexpr size_t kGreetingBytes = 112;  // between ranks with one port
inline constexpr size_t kGreetingRailBytes = 24;
constexpr size_t greeting_bytes(uint32_t rail_count) noexcept {
  return kGreetingBytes + rail_count * (kCardRailBytes + kGreetingRailBytes);
}
// A datagram holds that much on any port.
static_assert(greeting_bytes(kMostRails - 1) <= 256);
// Writes greeting_bytes().
void encode_greeting(const Greeting& greeting, std::byte* out) noexcept;
Status decode_greeting(std::span<const std::byte> in, Greeting* greeting) noexcept;

// Every message begins with it. Ranks of a job have one byte order: cards of another are refused.
struct Header {
  static constexpr uint32_t kReplyLane = 1;
  static constexpr uint32_t kControl = 2;  // tells of credits, nothing else
  static constexpr uint32_t kHasCell = 4;

  uint32_t word = 0;  // tag, and the flags in the highest byte
  Rank from = 0;      // the number by which the sender is a peer of the receiver
  // How many messages of the receiver the sender is done with, modulo 2^16: requests, replies, control.
  uint16_t taken[3] = {};
  uint16_t head_bytes = 0;
  uint32_t payload_bytes = 0;  // in the landing cell
  uint16_t landing = 0;        // which
  uint16_t zero = 0;

  uint32_t tag() const noexcept { return word & 0xff'ffff; }
  uint32_t flags() const noexcept { return word >> 24; }
};
inline constexpr uint32_t kHeaderBytes = 24;
static_assert(sizeof(Header) == kHeaderBytes);

// Of the message that begins at `data`, 8-byte aligned.
inline const Header& header_in(const std::byte* data) noexcept {
  return *static_cast<const Header*>(static_cast<const void*>(data));
}

}  // namespace hydrant::ibv
