// What two ranks tell each other over verbs: the endpoint address that the launcher hands out, the handshake
// that connects a queue pair (a datagram), and the header of a message. docs/verbs.md has the whole story.
//
// Endpoint address and handshake come from strangers until they are decoded; the header comes from a queue
// pair whose other end is known, and its lengths are checked where it is read.
#pragma once

#include "firehose/base/status.hpp"
#include "rdma/bootstrap/bootstrap.hpp"
#include "rdma/ibv/device/ibv_port.hpp"

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace hydrant::ibv {

// What both ends must agree on; a rank that was started with other settings is refused with a text.
struct ConnectionParameters {
  uint32_t message_bytes = 0;  // of a receive buffer, header included
  uint32_t cell_bytes = 0;
  uint16_t credits = 0;        // messages of one lane under way to a peer
  uint16_t receive_slots = 0;  // cells of one lane under way to a peer

  bool operator==(const ConnectionParameters&) const = default;
};

// Where a rank's datagrams go.
struct DatagramAddress {
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
AddressText text_of(const DatagramAddress& address) noexcept;

// Where a port beside the first is reached (ibv_rails.hpp).
struct RailAddress {
  ibv_gid gid = {};
  uint16_t lid = 0;
  uint8_t mtu = 0;
  uint8_t is_ethernet = 0;
};

struct EndpointAddress {
  DatagramAddress address;
  ConnectionParameters connection_parameters;
  // Of the process's group, to processes of another: what its rank 0 has drawn. 0: one job, as the launcher's
  // endpoint addresses are.
  uint64_t group = 0;
  uint32_t rail_count = 0;  // beside the first port
  RailAddress rails[kMaxRails - 1];
};

inline constexpr size_t kEndpointBytes = 64;  // of a rank with one port
inline constexpr size_t kEndpointRailBytes = 24;
constexpr size_t endpoint_bytes(uint32_t rail_count) noexcept {
  return kEndpointBytes + rail_count * kEndpointRailBytes;
}
inline constexpr size_t kMaxEndpointBytes = endpoint_bytes(kMaxRails - 1);
// Writes endpoint_bytes().
void encode_endpoint(const EndpointAddress& endpoint, std::byte* out) noexcept;
// Errors: kBadArg, with a text that says what is wrong. *endpoint address is unchanged on failure.
Status decode_endpoint(std::span<const std::byte> in, EndpointAddress* endpoint) noexcept;

// "This is my queue pair for you": sent until the other end is known to have heard, which it says by a
// handshake of its own. `heard`: the sender knows the receiver's queue pair, and its own can receive.
// `open`: the sender knows that the receiver can, too, and asks no more.
struct Handshake {
  // The queue pair of one rail.
  struct Rail {
    uint32_t queue_pair = 0;  // 0: there is none
    uint32_t sequence = 0;
    uint32_t fence_key = 0;
    uint64_t fence = 0;     // address of what its fences read
    bool is_ready = false;  // with `heard`: it can receive
  };
  EndpointAddress endpoint;  // of the sender; with no more rails than the receiver has
  uint64_t to_nonce = 0;
  Rank from = 0;  // each in its own group
  Rank to = 0;
  uint32_t queue_pair = 0;
  uint32_t sequence = 0;  // of its first packet
  uint32_t slot_key = 0;
  Rank index_at_peer = 0;     // the number by which the receiver is a peer of the sender
  uint64_t receive_slot = 0;  // address of the receive slots, first those for requests
  bool can_receive = false;
  bool open = false;
  Rail rails[kMaxRails - 1];  // endpoint address.rail_count of them
};

inline constexpr size_t kHandshakeBytes = 112;  // between ranks with one port
inline constexpr size_t kHandshakeRailBytes = 24;
constexpr size_t handshake_bytes(uint32_t rail_count) noexcept {
  return kHandshakeBytes + rail_count * (kEndpointRailBytes + kHandshakeRailBytes);
}
// A datagram holds that much on any port.
static_assert(handshake_bytes(kMaxRails - 1) <= 256);
// Writes handshake_bytes().
void encode_handshake(const Handshake& handshake, std::byte* out) noexcept;
Status decode_handshake(std::span<const std::byte> in, Handshake* handshake) noexcept;

// Every message begins with it. Ranks of a job have one byte order: endpoint addresses of another are
// refused.
struct Header {
  static constexpr uint32_t kReplyLane = 1;
  static constexpr uint32_t kControl = 2;  // tells of credits, nothing else
  static constexpr uint32_t kHasCell = 4;

  uint32_t word = 0;  // tag, and the flags in the highest byte
  Rank from = 0;      // the number by which the sender is a peer of the receiver
  // How many messages of the receiver the sender is done with, modulo 2^16: requests, replies, control.
  uint16_t taken[3] = {};
  uint16_t head_bytes = 0;
  uint32_t payload_bytes = 0;  // in the receive slot
  uint16_t receive_slot = 0;   // which
  uint16_t zero = 0;

  uint32_t tag() const noexcept { return word & 0xff'ffff; }
  uint32_t flags() const noexcept { return word >> 24; }
};
// Messages under way to one peer that only report credits. docs/verbs.md says why that is enough.
inline constexpr uint32_t kControlCredits = 8;
inline constexpr uint32_t kHeaderBytes = 24;
static_assert(sizeof(Header) == kHeaderBytes);

// Of the message that begins at `data`, 8-byte aligned.
inline const Header& header_in(const std::byte* data) noexcept {
  return *static_cast<const Header*>(static_cast<const void*>(data));
}

}  // namespace hydrant::ibv
