// One peer: its queue pair, what is under way on it, and what has come from it. Made at first contact, kept
// for the transport's life.
#pragma once

#include "rdma/ibv/ibv_rails.hpp"
#include "rdma/ibv/ibv_wire.hpp"
#include "rdma/ibv/verbs_memory.hpp"
#include "rdma/ibv/verbs_objects.hpp"
#include "rdma/spin_flag.hpp"
#include "rdma/transport.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace hydrant::ibv {

struct Peer;

// What the end of a work request is to who waits for it.
inline Status status_of(ibv_wc_status status) noexcept {
  switch (status) {
    case IBV_WC_SUCCESS: return Status::kOk;
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_REM_INV_REQ_ERR:
    case IBV_WC_LOC_PROT_ERR: return Status::kRefused;
    default: return Status::kBroken;
  }
}

// A put or get between pinned memory that is longer than what the device takes in one message, or that waits.
// Under its peer's lock. One that is cut over rails (ibv_rails.hpp) has here what goes by the first port.
struct Operation {
  Transport::Completion* completion = nullptr;
  Peer* peer = nullptr;
  uintptr_t local = 0;
  uintptr_t remote = 0;
  size_t left = 0;  // bytes that are not posted yet
  uint32_t lkey = 0;
  uint32_t rkey = 0;
  uint32_t under_way = 0;  // pieces that are posted and not over, and shares that are not over
  bool is_put = false;
  bool is_posted = false;  // all of it
  Status status = Status::kOk;
  Operation* next = nullptr;
};

// What stands at one position of a send queue: given back when that position is over.
struct SendRecord {
  static constexpr uint16_t kNone = UINT16_MAX;
  enum class Holds : uint8_t {
    kNothing,
    kMessage,    // a slot, and maybe a cell
    kOperation,  // all of a put or get: `completion`, which may be null
    kPiece,      // a piece of one: `operation`
  };

  Peer* peer = nullptr;
  uint64_t position = 0;
  union {
    Transport::Completion* completion = nullptr;
    Operation* operation;
  };
  uint16_t slot = kNone;
  uint16_t cell = kNone;  // of the lane below
  uint8_t lane = 0;
  Holds holds = Holds::kNothing;
};
static_assert(sizeof(SendRecord) == 32);

// A buffer of the shared receive queue, with the message that is in it.
struct Received {
  // Prebuilt: what posts it again.
  ibv_recv_wr work = {};
  ibv_sge piece = {};
  std::byte* data = nullptr;
  Received* next = nullptr;
  Peer* peer =
      nullptr;  // whose message is in it, or was: it gets the credit back; null: nobody does
  uint32_t counter = 0;  // which of its credits
};

// A committed message whose payload has no landing cell yet: nothing of its lane leaves before it.
struct Stalled {
  bool is_there = false;
  uint16_t slot = 0;
  uint32_t word = 0;
  uint32_t head_bytes = 0;
  Cell cell;
  uint32_t payload_bytes = 0;
};

// Messages that have come in one lane. `first` to `last` and `is_claimed` under the transport's ready lock;
// whoever has claimed the lane delivers from `taken`, alone.
struct Arrivals {
  Received* first = nullptr;
  Received* last = nullptr;
  Received* taken = nullptr;
  bool is_claimed = false;  // by a deliverer, or by its place in the ready list
  Peer* next_ready = nullptr;
};

inline constexpr uint32_t kControlLane = 2;  // index of what tells of credits, behind the two lanes
inline constexpr uint32_t kCounters = 3;

// What people call a peer: "rank 1", or for one of another group "peer 5 (rank 1 of group 1f00...)".
struct PeerName {
  char text[64] = "";
};

struct Peer {
  enum class State : uint32_t { kConnecting, kOpen, kLost };

  Rank rank = 0;      // its number here
  Rank known_as = 0;  // our number there, in the header of each message; known once it is `heard`
  std::atomic<State> state{State::kConnecting};
  // Why it is lost: a literal, set before `state` says so.
  std::atomic<const char*> reason{nullptr};
  std::atomic<bool> is_shut{
      false};  // its queue pair takes nothing any more: to be lost by the next poll
  const char* shut_reason = "its queue pair takes nothing more";

  Card card;  // constant once the peer is published

  // ---- connection: under the transport's contact lock ----
  AddressHandle address;
  Rank their_rank = 0;          // in its own group
  uint32_t first_sequence = 0;  // of ours
  bool heard = false;           // its queue pair is known, ours can receive
  uint64_t next_greeting_ns = 0;
  uint64_t greeting_interval_ns = 0;
  uint64_t greeted_since_ns = 0;
  uint64_t gives_up_ns = 0;
  Peer* next_connecting = nullptr;

  // ---- memory, constant once the peer is published ----
  VerbsMemory buffers;   // send slots, then receive buffers
  VerbsMemory landings;  // what the peer writes into: cells for requests, then for replies
  std::unique_ptr<Received[]> received;
  uintptr_t their_landings = 0;  // theirs, known once `heard`
  uint32_t their_landing_key = 0;

  // ---- sending: under `lock` ----
  SpinFlag lock;
  uint64_t posted = 0;            // positions of the send queue, ever
  std::atomic<uint64_t> over{0};  // moved by whoever drains the completion queue
  bool has_failed = false;        // its queue pair has told of an error
  bool last_is_told = false;      // it is lost, and the end of its send queue will be told of
  Stillness stillness;
  uint64_t probed = 0;     // `posted` when the peer was last probed, or would have been
  uint64_t signalled = 0;  // the position behind the last one that will be told of
  std::unique_ptr<SendRecord[]> records;
  // Prebuilt: what is posted differs in little.
  struct Request {
    ibv_sge piece = {};
    ibv_send_wr work = {};
  };
  Request message;    // a SEND
  Request cell;       // the write of a payload, before it
  Request operation;  // a write or read between pinned memory
  std::unique_ptr<uint16_t[]> free_slots;
  uint32_t free_slot_count = 0;
  std::array<uint64_t, kCounters> sent = {};  // messages
  std::array<uint64_t, kLaneCount> landings_sent = {};
  // How many messages of the lane must be taken before landing cell i is free again; 0: it is.
  std::unique_ptr<uint64_t[]> landing_free_after;
  std::array<Stalled, kLaneCount> stalled;
  Operation* first_waiting = nullptr;  // operations that are not all posted
  Operation* last_waiting = nullptr;
  // Not 0: messages wait. kHeldByWaiting while an operation waits, and kHeldByShare for each share of a put.
  uint64_t held = 0;
  static constexpr uint64_t kHeldByWaiting = 1;
  static constexpr uint64_t kHeldByShare = 2;
  std::unique_ptr<PeerRails> rails;  // null: one port, or one of the two ranks has one

  // ---- credits ----
  // Messages that the peer is done with: raised by what it says. Read by senders.
  std::array<std::atomic<uint64_t>, kCounters> acknowledged = {};
  // Messages of the peer whose buffers are posted again; and what it has been told of them.
  std::array<std::atomic<uint64_t>, kCounters> taken = {};
  std::array<std::atomic<uint64_t>, kCounters> told = {};
  std::array<std::atomic<uint32_t>, kLaneCount> untold_landings = {};

  // ---- receiving: under the transport's ready lock ----
  std::array<Arrivals, kLaneCount> arrivals;

  std::atomic<bool> has_chore{false};  // is in the list of those that want to send something
  Peer* next_chore = nullptr;
  Peer* next = nullptr;  // all peers

  // Last: its end is the end of what the adapter does to the memory above.
  QueuePair queue;
};

}  // namespace hydrant::ibv
