// Sends and receives handshakes as datagrams. A datagram may be lost; the sender repeats it.
//
// Invariant: each receive buffer is posted to the adapter except while poll() decodes it. At most
// kDatagramSends sends are under way, and each has a buffer of its own.
//
// Threads: under the contact lock.
#pragma once

#include "firehose/base/uncancelled.hpp"
#include "rdma/ibv/device/ibv_port.hpp"
#include "rdma/ibv/device/verbs_objects.hpp"
#include "rdma/ibv/registrar/verbs_memory.hpp"
#include "rdma/ibv/settings/ibv_options.hpp"
#include "rdma/ibv/wire/ibv_wire.hpp"

#include <cstdint>

namespace hydrant::ibv {

class DatagramQueue {
 public:
  // `rails`: the rails of this process, which set the size of a buffer. `port` outlives the queue. Errors:
  // kResource.
  Status open(const Port& port, ibv_comp_channel* channel, uint32_t rails) noexcept;
  void close() noexcept;
  uint32_t number() const noexcept { return pair_->qp_num; }
  // Requests an event on the channel for the next completion. False: the adapter refuses.
  bool request_notice() noexcept {
    return uncancelled::call(ibv_req_notify_cq, completions_.get(), 0) == 0;
  }

  // Whether another datagram can be sent now.
  bool has_room() const noexcept { return sends_ < kDatagramSends; }
  // Sends to the queue pair `number` of the process at `address`; `name` of the peer is for the log. False:
  // there is no room now, or the adapter refuses the request.
  bool send(const Handshake& handshake, ibv_ah* address, uint32_t number,
            const char* name) noexcept;
  // The same to a process that is no peer: the queue keeps `address` until the datagram has left.
  bool send(const Handshake& handshake, AddressHandle address, uint32_t number,
            const char* name) noexcept;
  // Calls receive(handshake) for each handshake that has arrived, and receive(null) for any other datagram.
  // Returns the number of completions.
  template <typename Receive>
  uint32_t poll(Receive&& receive) noexcept {
    ibv_wc completions[kBatch];
    const int count = ibv_poll_cq(completions_.get(), kBatch, completions);
    for (int i = 0; i < count; ++i) {
      Handshake handshake;
      const Kind kind = take(completions[i], &handshake);
      if (kind != Kind::kSent) receive(kind == Kind::kHandshake ? &handshake : nullptr);
    }
    return count > 0 ? static_cast<uint32_t>(count) : 0;
  }

 private:
  static constexpr int kBatch = 16;
  static constexpr uint32_t kKey = 0x48594452;  // Q_Key of the datagrams
  enum class Kind { kSent, kHandshake, kUnknown };

  Status start() noexcept;
  Status post_receive(uint32_t index) noexcept;
  Kind take(const ibv_wc& completion, Handshake* handshake) noexcept;

  const Port* port_ = nullptr;
  uint32_t bytes_ = 0;  // of a buffer
  uint32_t sends_ = 0;  // under way
  uint32_t next_send_ = 0;
  VerbsMemory memory_;  // receive buffers, then send buffers
  CompletionQueue completions_;
  QueuePair pair_;
  AddressHandle
      addresses_[kDatagramSends];  // by send buffer; destroyed when the next one takes their place
};

}  // namespace hydrant::ibv
