// Options of the verbs transport, and how much memory and how many queue entries they need.
#pragma once

#include "firehose/base/status.hpp"
#include "firehose/base/thread.hpp"
#include "rdma/ibv/device/ibv_port.hpp"
#include "rdma/ibv/device/networks.hpp"
#include "rdma/transport/transport.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace hydrant::ibv {

struct HandshakeOptions {
  uint64_t first_ns = 20'000'000;       // until the first handshake is repeated
  uint64_t refused_ns = 5'000'000'000;  // until one that the peer has refused is repeated
  // After this time without a reply a warning is logged, and a peer of another group is disconnected. A rank
  // of the job may be computing or stopped: handshakes to it continue, unless Options::abandons_silent_ranks
  // is set.
  uint64_t connect_ns = 60'000'000'000;
  // A thread answers handshakes while the program does not poll. The transport is then one for several
  // threads.
  bool has_thread = false;
  // The time by which handshakes are sent and repeated. Tests simulate it.
  uint64_t (*clock)() noexcept = now_ns;
};

// Facts that the ranks of a node share.
struct NodeOptions {
  // If it is set, only ports on this network are chosen where no port is named.
  std::optional<NetworkId> network;
  // A word that the ranks of this node share, 0 at first, by which they learn whether they all use one
  // adapter (NodeAdapters). It must outlive the transport. Null: they share no memory.
  std::atomic<uint64_t>* adapter = nullptr;
};

struct Options {
  const char* ports = nullptr;  // instead of HYDRANT_IBV_PORTS
  NodeOptions node;
  bool single_threaded = false;
  // Adapters may write to memory of make_bulk_registrar() in any order.
  bool relaxed_ordering = false;
  uint32_t eager_bytes = 1000;  // head and inline payload of a message, at most
  uint32_t credits = 32;        // messages of one lane under way to one peer
  uint32_t cell_bytes = 16384;  // a multiple of 64
  uint32_t cells = 16;          // of one lane that are being filled or under way
  uint32_t receive_slots = 4;   // cells of one lane under way to one peer
  uint32_t send_depth = 64;     // entries of a peer's send queue
  uint32_t inline_bytes = 256;  // copied into the request, if the adapter can
  uint32_t operations = 256;    // puts and gets under way that wait, or are longer than one message
  bool abandons_silent_ranks = false;  // as other groups' peers, after HandshakeOptions::connect_ns
  uint64_t probe_ns = 10'000'000'000;  // between probes of an idle peer; 0: none
  // How long an adapter repeats a packet before it gives the peer up, about. 0: HYDRANT_IBV_PATIENCE.
  uint64_t patience_ns = 0;
  // An adapter that reports no completion for this time is taken to hang. 0: a minute, or six times the
  // patience if that is longer.
  uint64_t stall_timeout_ns = 0;
  HandshakeOptions handshakes;
  // Puts and gets of this length or longer are cut over the rails; at least 64 KiB. 0:
  // HYDRANT_IBV_STRIPE_MIN.
  size_t stripe_bytes = 0;
  bool has_channel = true;  // sleep() waits in the kernel; otherwise it naps
  // Processes of other groups that can be joined in the transport's life. Each has a place in tables, and
  // room in the shared receive queue.
  uint32_t max_joined = 0;

  // Messages that one peer can have under way to this process.
  uint32_t receives_per_peer() const noexcept;
  uint32_t completions_per_peer() const noexcept { return receives_per_peer() + send_depth; }
  uint32_t message_bytes() const noexcept;
  // Bytes of a message's buffer: whole cache lines.
  uint32_t slot_bytes() const noexcept;
  // Buffers that messages to one peer are built in: one for each entry of the send queue, one that is
  // reserved, and one of each lane that waits for a receive slot.
  uint32_t send_slots() const noexcept { return send_depth + kLaneCount + 1; }
};

// The defaults, with the knobs applied.
Options chosen_options() noexcept;
// How ports are chosen and address their packets, by the knobs.
PortSettings chosen_port_settings() noexcept;
// Errors: kBadArg, with the limits.
Status check_options(const Options& options) noexcept;

inline constexpr uint32_t kGrhBytes = 40;  // precede a datagram in its buffer
// Bytes of a datagram's buffer in a process with `rails` rails; a peer's handshake names no more of them.
uint32_t datagram_bytes(uint32_t rails) noexcept;

// Resources of a port that a process needs.
struct Needs {
  uint64_t bytes_at_start = 0;  // registered
  uint64_t bytes_per_peer = 0;  // registered, at first contact
  uint32_t max_peers = 0;       // limit of the port's queues

  // How many peers are possible if `limit` bytes may be registered. A part of `limit` (kPartForPins) is left
  // to the memory of puts and gets.
  uint64_t peers_within(uint64_t limit) const noexcept;
  // How much of `limit` the transport keeps for `peers` peers.
  uint64_t kept_of(uint64_t limit, uint32_t peers) const noexcept;
  static constexpr uint64_t kPartForPins = 8;  // an eighth
};
// Computes the needs of a process with `ports` ports in all, of which `port` is the first.
Needs needs_of(const Options& options, const Port& port, uint32_t ports = 1) noexcept;

}  // namespace hydrant::ibv
