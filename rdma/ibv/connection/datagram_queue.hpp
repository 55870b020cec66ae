// Sends and receives handshakes as datagrams. A datagram may be lost; the sender repeats it.
//
// Invariant: each receive buffer is with the adapter, but while poll() looks at it. At most kDatagramSends
// sends are under way, and each has a buffer of its own.
//
// Threads: under the contact lock.
#pragma once

#include "rdma/ibv/device/ibv_port.hpp"
#include "rdma/ibv/device/verbs_objects.hpp"
#include "rdma/ibv/registrar/verbs_memory.hpp"
#include "rdma/ibv/settings/ibv_options.hpp"
#include "rdma/ibv/wire/ibv_wire.hpp"

#include <cstdint>

namespace hydrant::ibv {

class DatagramQueue {
 public:
  // In a process with so many rails. `port` outlives the queue. Errors: kResource.
  Status open(const Port& port, ibv_comp_channel* channel, uint32_t rails) noexcept;
  void close() noexcept;
  uint32_t number() const noexcept { return pair_->qp_num; }
  // False: it cannot be.
  bool request_notice() noexcept { return ibv_req_notify_cq(completions_.get(), 0) == 0; }

  // To the queue pair `number` of the process at `address`. False: there is no room now, or the adapter
  // refuses it; `name` of the peer is for the log.
  bool send(const Handshake& handshake, ibv_ah* address, uint32_t number,
            const char* name) noexcept;
  // Calls answer(handshake) for each handshake that has arrived, with null for any other datagram. Returns
  // the number of completions.
  template <typename Answer>
  uint32_t poll(Answer&& answer) noexcept {
    ibv_wc completions[kBatch];
    const int count = ibv_poll_cq(completions_.get(), kBatch, completions);
    for (int i = 0; i < count; ++i) {
      Handshake handshake;
      const Kind kind = take(completions[i], &handshake);
      if (kind != Kind::kSent) answer(kind == Kind::kHandshake ? &handshake : nullptr);
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
};

}  // namespace hydrant::ibv
