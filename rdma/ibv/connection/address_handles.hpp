// Address handles of the datagrams that carry handshakes, one for each destination: a port, which ranks of a
// node may share.
//
// Handles are objects of the adapter, and some adapters have few. So a handle lives only as long as a
// handshake with a peer at its destination; a later answer makes it again. Where the adapter has no more, one
// that no send uses is given up for another.
//
// Over Ethernet, making one asks the node of the port for its MAC address (ARP), and so does connecting a
// queue pair. A node that has not answered is silent: it is asked again after HandshakeOptions::refused_ns or
// later, and by neither before, because the call may take seconds. A turn, which is a poll or the start of a
// first contact, waits for one silent node at most. Silent nodes are asked again one after another, with
// pauses as long as the calls: half of the time is left, however many are silent.
//
// Invariant: a destination is in the list of its port's address while it has users or sends, and stays there
// while its node is silent. No handle is destroyed while a send uses it.
//
// Cost: each peer whose handshake is under way may have a destination of its own, thousands in all. A look-up
// compares one in 256 of them.
//
// Threads: under the contact lock.
#pragma once

#include "firehose/base/status.hpp"
#include "rdma/ibv/connection/address_vector.hpp"
#include "rdma/ibv/device/ibv_port.hpp"
#include "rdma/ibv/device/verbs_objects.hpp"
#include "rdma/ibv/settings/ibv_options.hpp"
#include "rdma/ibv/wire/ibv_wire.hpp"

#include <cstdint>

namespace hydrant::ibv {

struct Destination {
  PortAddress port;
  uint32_t users = 0;    // peers whose handshake is under way
  uint32_t sends = 0;    // under way
  AddressHandle handle;  // null: not made yet, or given up
  int silence = 0;       // the error if its node has not answered; 0: it was not asked, or has
  uint64_t silent_until_ns = 0;  // a silent node is not asked before
  Destination* next = nullptr;
};

class AddressHandles {
 public:
  // `port` outlives the handles, and is open when the first is made.
  AddressHandles(const HandshakeOptions& options, const Port& port) noexcept
      : options_(options), port_(port) {}
  ~AddressHandles() { close(); }
  AddressHandles(const AddressHandles&) = delete;
  AddressHandles& operator=(const AddressHandles&) = delete;
  // Destroys all. The queue pair that sends to them must be destroyed before.
  void close() noexcept;

  // The destination at this port, which has one user more. Null, with an error text: no memory.
  Destination* add_user(const PortAddress& port) noexcept;
  void remove_user(Destination& destination) noexcept;
  // Makes the handle if it is not there. Errors: kNotReady: the adapter has no more now, its node is silent,
  // or has_waited(); kResource: for example no route.
  Status make(Destination& destination, const char* peer_name) noexcept;
  // Makes the handle, and notes a send that uses it. Errors: those of make().
  Status begin_send(Destination& destination, const char* peer_name) noexcept;
  void end_send(Destination& destination) noexcept;

  void begin_turn() noexcept { has_waited_ = false; }
  // Whether a node that was asked in this turn was silent: no other is asked in it.
  bool has_waited() const noexcept { return has_waited_; }
  // Whether the node of the destination must not be asked now.
  bool is_silent(const Destination& destination) const noexcept {
    return has_waited_ ||
           (destination.silence != 0 && options_.clock() < destination.silent_until_ns);
  }
  // When the handle can be made; 0: at once.
  static uint64_t next_ask_ns(const Destination& destination) noexcept {
    const bool waits = destination.silence != 0 && destination.handle == nullptr;
    return waits ? destination.silent_until_ns : 0;
  }
  // The node was asked since `since_ns`. `silence`: an error for which is_silence() holds; 0: it has
  // answered.
  void note_asked(Destination& destination, int silence, uint64_t since_ns) noexcept;

 private:
  Destination*& list_of(const PortAddress& port) noexcept;
  int create(Destination& destination) noexcept;
  void destroy_handle(Destination& destination) noexcept;
  bool give_up_one() noexcept;
  void remove_if_unused(Destination& destination) noexcept;

  const HandshakeOptions& options_;
  const Port& port_;
  Destination* lists_[256] = {};
  bool has_waited_ = false;
  uint64_t last_ask_ns_ = 0;  // the latest silent_until_ns so far
};

}  // namespace hydrant::ibv
