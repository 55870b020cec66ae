// The wire formats of verbs: the endpoint address that the launcher distributes, the handshake that connects
// a queue pair (a datagram), and the header of a message. docs/verbs.md explains the protocol.
//
// Endpoint address and handshake may come from any process, so decoding checks everything in them. A header
// comes from a queue pair whose other end is known; Receiving checks its lengths.
#pragma once

#include "firehose/base/status.hpp"
#include "rdma/bootstrap/bootstrap.hpp"
#include "rdma/ibv/device/ibv_port.hpp"

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace hydrant::ibv {

// Settings that both ends must share; connecting with a rank that has others fails, and the error lists them.
struct ConnectionParameters {
  uint32_t message_bytes = 0;  // of a receive buffer, header included
  uint32_t cell_bytes = 0;
  uint16_t credits = 0;        // messages of one lane under way to a peer
  uint16_t receive_slots = 0;  // cells of one lane under way to a peer

  bool operator==(const ConnectionParameters&) const = default;
};

// A port as its peers see it.
struct PortAddress {
  ibv_gid gid = {};
  uint16_t lid = 0;
  uint8_t mtu = 0;  // ibv_mtu
  uint8_t is_ethernet = 0;
  uint8_t needs_grh = 0;    // packets to it need a global header
  uint8_t gid_version = 0;  // of RoCE; 0: InfiniBand
  uint8_t reads_in = 0;     // RDMA reads and atomics that a queue pair accepts at once
  uint8_t order = 0;        // a PutOrder, or one that a later version knows

  // A class that is not known counts as relaxed.
  PutOrder put_order() const noexcept {
    return order < static_cast<uint8_t>(PutOrder::kRelaxed) ? PutOrder{order} : PutOrder::kRelaxed;
  }
};

// The destination of a rank's datagrams, at its first port.
struct DatagramAddress : PortAddress {
  // Random number of the process. A datagram with another nonce is of another job or a dead process.
  uint64_t nonce = 0;
  uint32_t datagram_queue = 0;
};

// An address for logs and errors: 10.78.0.2, another GID as an IPv6 address, or LID 5.
struct AddressText {
  char text[48] = "";
};
AddressText text_of(const PortAddress& address) noexcept;

struct EndpointAddress {
  DatagramAddress address;
  ConnectionParameters connection_parameters;
  // The name of the process's group, which is the nonce of its rank 0, for processes of other groups. 0:
  // sender and receiver are of one job, as in the endpoint addresses that the launcher distributes.
  uint64_t group = 0;
  uint32_t rail_count = 0;
  PortAddress rails[kMaxRails - 1];  // beside the first port (rdma/ibv/queue/rails.hpp)
};

inline constexpr size_t kEndpointBytes = 64;  // of a rank with one port
inline constexpr size_t kEndpointRailBytes = 24;
constexpr size_t endpoint_bytes(uint32_t rail_count) noexcept {
  return kEndpointBytes + rail_count * kEndpointRailBytes;
}
inline constexpr size_t kMaxEndpointBytes = endpoint_bytes(kMaxRails - 1);
// Writes endpoint_bytes().
void encode_endpoint(const EndpointAddress& endpoint, std::byte* out) noexcept;
// Errors: kBadArg, with the fault in the text. *endpoint is unchanged on failure.
Status decode_endpoint(std::span<const std::byte> in, EndpointAddress* endpoint) noexcept;

// Why a process refuses to be connected. A later version may have further reasons.
enum class Refusal : uint8_t {
  kNone = 0,      // it does not refuse
  kFull = 1,      // its queues have no room for another peer
  kNoMemory = 2,  // it could not create the memory or the queue pair of a peer
  kSettings = 3,  // it has other settings
  kClosed = 4,    // its program has closed the device
  kEnded = 5,     // it has ended this connection
  kMoved = 6,     // its port has lost the address that ranks know
};

// Names the queue pair that the sender has made for the receiver. The sender repeats it until a handshake of
// the receiver shows that it has arrived. `can_receive`: the sender knows the receiver's queue pair, and its
// own can receive. `open`: the sender also knows that the receiver's can receive, so it needs no reply.
// `refusal`: the sender has made no queue pair; it answers a handshake by the reason alone.
struct Handshake {
  // The queue pair of one rail.
  struct Rail {
    uint32_t queue_pair = 0;  // 0: there is none
    uint32_t sequence = 0;
    uint32_t fence_key = 0;
    uint64_t fence = 0;     // address that the receiver's fences read
    bool is_ready = false;  // with `can_receive`: it can receive
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
  // The ranks of the sender's node use one adapter. Not set: they may use several.
  bool one_adapter = false;
  Refusal refusal = Refusal::kNone;
  Rail rails[kMaxRails - 1];  // endpoint.rail_count of them
};

inline constexpr size_t kHandshakeBytes = 112;  // between ranks with one port
inline constexpr size_t kHandshakeRailBytes = 24;
constexpr size_t handshake_bytes(uint32_t rail_count) noexcept {
  return kHandshakeBytes + rail_count * (kEndpointRailBytes + kHandshakeRailBytes);
}
// A datagram of 256 bytes fits the smallest MTU.
static_assert(handshake_bytes(kMaxRails - 1) <= 256);
// Writes handshake_bytes().
void encode_handshake(const Handshake& handshake, std::byte* out) noexcept;
Status decode_handshake(std::span<const std::byte> in, Handshake* handshake) noexcept;

// The header at the start of every message, in the byte order of the machine, which all ranks of a job share.
struct Header {
  static constexpr uint32_t kReplyLane = 1;
  static constexpr uint32_t kControl = 2;  // reports credits, carries no message
  static constexpr uint32_t kHasCell = 4;

  uint32_t word = 0;  // tag, and the flags in the highest byte
  Rank from = 0;      // the number by which the sender is a peer of the receiver
  // How many messages of the receiver the sender has processed, modulo 2^16: requests, replies, control.
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

// The header of the message that begins at `data`, 8-byte aligned.
inline const Header& header_in(const std::byte* data) noexcept {
  return *static_cast<const Header*>(static_cast<const void*>(data));
}

}  // namespace hydrant::ibv
