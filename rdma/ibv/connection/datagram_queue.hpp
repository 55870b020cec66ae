// Sends and receives handshakes as datagrams. A datagram may be lost; the sender repeats it.
//
// Errors do not end the queue. A failed send stops the sending half of the queue pair; poll() starts it
// again. A queue pair that has failed as a whole is reset, and keeps the number that peers know: at most once
// a second, and more rarely if it goes on failing. So is one whose reset has failed; after kMostFailedResets
// in a row the queue has failed for good.
//
// Invariant: while the queue runs, each receive buffer is posted to the adapter except while poll() decodes
// it. At most kDatagramSends sends are under way, and each has a buffer of its own; its destination keeps the
// address handle meanwhile.
//
// Threads: under the contact lock.
#pragma once

#include "firehose/base/uncancelled.hpp"
#include "rdma/ibv/connection/address_handles.hpp"
#include "rdma/ibv/device/datagram_pair.hpp"
#include "rdma/ibv/device/ibv_port.hpp"
#include "rdma/ibv/device/verbs_objects.hpp"
#include "rdma/ibv/queue/counters.hpp"
#include "rdma/ibv/registrar/verbs_memory.hpp"
#include "rdma/ibv/settings/ibv_options.hpp"
#include "rdma/ibv/wire/ibv_wire.hpp"

#include <atomic>
#include <cstdint>

namespace hydrant::ibv {

class DatagramQueue {
 public:
  // The most completions that poll() takes.
  static constexpr uint32_t kBatch = 16;

  // `errors` counts failed sends, and failures of the queue pair.
  DatagramQueue(const HandshakeOptions& options, AddressHandles& addresses,
                Counter& errors) noexcept
      : options_(options), addresses_(addresses), errors_(errors) {}
  // `rails`: the rails of this process, which set the size of a buffer. `port` outlives the queue. Errors:
  // kResource.
  Status open(const Port& port, ibv_comp_channel* channel, uint32_t rails) noexcept;
  void close() noexcept;
  uint32_t number() const noexcept { return pair_->qp_num; }
  // Requests an event on the channel for the next completion. False: the adapter refuses. A queue that has
  // failed for good reports nothing.
  bool request_notice() noexcept {
    return has_failed() || uncancelled::call(ibv_req_notify_cq, completions_.get(), 0) == 0;
  }
  // True: for good. No handshake is sent or received any more.
  bool has_failed() const noexcept { return resets_ns_.load(std::memory_order_relaxed) == kNever; }
  // The device has failed: so has the queue, for good. Any thread.
  void give_up() noexcept { resets_ns_.store(kNever, std::memory_order_relaxed); }
  // When poll() resets the queue pair; UINT64_MAX: it runs, or has failed for good. A hint, read without the
  // lock.
  uint64_t next_reset_ns() const noexcept {
    const uint64_t due = resets_ns_.load(std::memory_order_relaxed);
    return due != kRuns ? due : UINT64_MAX;
  }

  // Sends to the queue pair `number` at `destination`, which has a user during the call; `name` of the peer
  // is for the log. Errors: kNotReady: there is no room or no address handle now, or the queue pair has
  // failed, so that others would fare no better, or the node of the destination is silent; kResource: the
  // adapter refuses the address or the request.
  Status send(const Handshake& handshake, Destination& destination, uint32_t number,
              const char* name) noexcept;
  // An event of the device says that the queue pair has failed: the next poll() looks whether that is so. Any
  // thread, without the lock.
  void note_event() noexcept { has_event_.store(true, std::memory_order_relaxed); }
  // Calls receive(handshake) for each handshake that has arrived, and receive(null) for any other datagram.
  // Returns the number of completions; 0 while the queue pair has failed.
  template <typename Receive>
  uint32_t poll(Receive&& receive) noexcept {
    if (!is_running() && !restart()) [[unlikely]]
      return 0;
    ibv_wc completions[kBatch];
    const int count = ibv_poll_cq(completions_.get(), kBatch, completions);
    for (int i = 0; i < count; ++i) {
      Handshake handshake;
      const Kind kind = take(completions[i], &handshake);
      if (kind != Kind::kNothing) receive(kind == Kind::kHandshake ? &handshake : nullptr);
    }
    if (error_ != IBV_WC_SUCCESS || has_event_.load(std::memory_order_relaxed)) [[unlikely]]
      mend();
    return count > 0 ? static_cast<uint32_t>(count) : 0;
  }

 private:
  static constexpr uint32_t kKey = 0x48594452;  // Q_Key of the datagrams
  enum class Kind { kNothing, kHandshake, kUnknown };
  static constexpr uint32_t kMostFailedResets = 5;
  // Values of resets_ns_ that are no time.
  static constexpr uint64_t kRuns = 0;
  static constexpr uint64_t kNever = UINT64_MAX;

  bool is_running() const noexcept { return resets_ns_.load(std::memory_order_relaxed) == kRuns; }
  Status start() noexcept;
  Status post_receive(uint32_t index) noexcept;
  uint64_t request_id(uint32_t buffer) const noexcept { return uint64_t{life_} << 32 | buffer; }
  Kind take(const ibv_wc& completion, Handshake* handshake) noexcept;
  void note_failed_send(ibv_wc_status status) noexcept;
  [[gnu::cold]] void mend() noexcept;
  ibv_qp_state read_state() const noexcept;
  bool resume() noexcept;
  uint64_t schedule_reset(uint64_t now) noexcept;
  [[gnu::cold]] bool restart() noexcept;
  Status reset() noexcept;

  const HandshakeOptions& options_;
  AddressHandles& addresses_;
  Counter& errors_;
  const Port* port_ = nullptr;
  uint32_t bytes_ = 0;  // of a buffer
  uint32_t sends_ = 0;  // under way
  uint32_t next_send_ = 0;
  Destination* sent_to_[kDatagramSends] = {};  // by buffer; null: no send is under way from it
  // Resets so far. It is in the id of each request, so that completions from before a reset are recognised.
  uint32_t life_ = 0;
  ibv_wc_status error_ = IBV_WC_SUCCESS;  // of the first failed request since mend()
  bool is_flushed_ = false;               // a receive buffer was flushed: nothing works any more
  std::atomic<bool> has_event_{false};
  std::atomic<uint64_t> resets_ns_{kRuns};
  uint64_t last_reset_ns_ = 0;
  uint64_t pause_ns_ = 0;       // between the last reset and the next
  uint32_t failed_resets_ = 0;  // in a row
  VerbsMemory memory_;          // receive buffers, then send buffers
  CompletionQueue completions_;
  QueuePair pair_;
};

}  // namespace hydrant::ibv
