// The interface of the networks that carry messages between the ranks of a job, and hand out what else they
// can do. Messages suffice for the whole API: a network has to implement only name(), messages() with
// MessageChannel's pure functions, and poll(). The rest has defaults.
//
// Threads: any number in the multi-threaded mode, one at a time in the single-threaded one. No call waits: an
// operation that cannot proceed returns kNotReady, and the caller polls. No call allocates after first
// contact with a peer. Errors: kBroken, with a text, if the peer is disconnected.
#pragma once

#include "firehose/base/status.hpp"
#include "rdma/bootstrap/bootstrap.hpp"
#include "rdma/transport/memory_access.hpp"
#include "rdma/transport/message_channel.hpp"
#include "rdma/transport/pinned_operations.hpp"
#include "rdma/transport/sleeping.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace hydrant {

// A received message. `payload` points into the cell, null if there is none. The transport guarantees the
// room; the receiver checks the lengths that head and payload state against it.
struct Incoming {
  Rank from = 0;
  Lane lane = Lane::kRequest;
  uint32_t tag = 0;
  const std::byte* head = nullptr;
  std::byte* payload = nullptr;
  uint32_t head_room = 0;     // bytes from `head` on that belong to this message
  uint32_t payload_room = 0;  // bytes of the cell
};

// Receives the messages that poll() finds. deliver() runs in the polling thread, may send, and may poll the
// reply lane.
class Receiver {
 public:
  virtual void deliver(const Incoming& message) noexcept = 0;

 protected:
  ~Receiver() = default;
};

class Transport {
 public:
  virtual ~Transport() = default;
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  virtual const char* name() const noexcept = 0;

  // ---- parts: for the transport's life ----
  // The channel for messages to `peer`, a rank of the job or a process that has joined it.
  virtual MessageChannel& messages(Rank peer) noexcept = 0;
  // Memory of other ranks that this process accesses itself; MemoryAccess::none() if there is none.
  virtual MemoryAccess& memory() noexcept { return MemoryAccess::none(); }
  // How threads of this process sleep; Sleeping::naps() if the network cannot wake them.
  virtual Sleeping& sleeping() noexcept { return Sleeping::naps(); }
  // Operations between pinned memory; null: the network has none.
  virtual PinnedOperations* pinned() noexcept { return nullptr; }

  // ---- capabilities ----
  // Bits of capabilities(), constant for the transport's life.
  enum Capability : uint32_t {
    kOneSided = 1,               // memory() has put() and get()
    kCompletesAtOnce = 2,        // ... which are complete when they return
    kPutsBeforeMessages = 4,     // a put is visible before a message committed later is delivered
    kPinned = 8,                 // pinned() is meant for operations with the peer
    kMapped = 16,                // memory() may have mapped memory; without it, callers do not ask
    kAtomics = 32,               // PinnedOperations::start_atomic() exists
    kAtomicWithProcessors = 64,  // ... and is atomic with respect to processors, too
  };
  virtual uint32_t capabilities() const noexcept { return 0; }
  // Capabilities with one peer, and for this rank those with the ranks of its node. At most two values may
  // occur, near and far: choose_paths() refuses a third. In a composite transport capabilities() is the union
  // over all peers.
  virtual uint32_t peer_capabilities(Rank /*peer*/) const noexcept { return capabilities(); }
  // The most operations that one thread may have under way. The room for them belongs to the process: with
  // several threads it is used up earlier (kNotReady). 0: no limit, or operations complete at once.
  virtual uint32_t depth() const noexcept { return 0; }

  // Named counters (literals) of internal events, for diagnosis. Returns the number of counters; writes as
  // many as `rows` has room for.
  struct Count {
    const char* name = "";
    uint64_t value = 0;
  };
  virtual size_t list_counts(std::span<Count> /*rows*/) const noexcept { return 0; }

  // ---- progress ----
  // Delivers at most `budget` messages, of both lanes together, to `receiver`; replies first, and no requests
  // if `replies_only`. Also ends operations, and sends what is overdue in any lane. Returns the number of
  // events: messages and ended operations, perhaps more than `budget`.
  virtual uint32_t poll(Receiver& receiver, uint32_t budget, bool replies_only) noexcept = 0;
  // Called before this process ends: returns once all committed messages no longer depend on this process, or
  // at the deadline. Never waits for a lock beyond the deadline. Delivers no messages; operations may end.
  virtual void flush(uint64_t /*deadline_ns*/) noexcept {}
  // `callback` is called once for each peer that the network reports as failed, by the thread that detects
  // it, perhaps inside a call of this class. It may call only disconnect() and Sleeping::wake(). Set it
  // before any message is sent.
  using PeerFailedFn = void (*)(Rank peer, const char* why) noexcept;
  virtual void set_peer_failed_callback(PeerFailedFn /*callback*/) noexcept {}
  // Disconnects `peer`: its rings are no longer polled, and sends to it return kBroken, both after the next
  // poll at the latest. Any thread may call it, also in the single-threaded mode.
  virtual void disconnect(Rank /*peer*/) noexcept {}
};

}  // namespace hydrant
