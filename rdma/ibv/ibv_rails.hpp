// Rails: the ports of a process beside its first one, by which long puts and gets go as well; docs/verbs.md,
// "Rails". Messages and everything short keep to the first port.
//
// Rail i of a rank is joined with rail i of its peer by a queue pair of its own; the completions of a rail
// have a queue of their own. What is posted here, and counted, is under the lock of the peer.
#pragma once

#include "rdma/ibv/ibv_port.hpp"
#include "rdma/ibv/stillness.hpp"
#include "rdma/ibv/verbs_memory.hpp"
#include "rdma/ibv/verbs_objects.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace hydrant::ibv {

struct Operation;
struct Peer;

// A port beside the first.
struct Rail {
  Port port;
  uint32_t depth = 0;           // entries of a peer's send queue
  uint32_t mask = 0;            // of the position in one: which record
  CompletionQueue completions;  // null: it could not be opened
  uint32_t capacity = 0;        // of that queue
  uint32_t peers = 0;           // that have room in it
  // What fences read and write; see Share.
  VerbsMemory fence;
};

// What goes by one rail of a long put or get. It is over when the last thing posted for it is: of a put that
// is a read of eight bytes, the fence. Its answer has pushed what was written before it to memory, whichever
// adapter a message comes in by.
struct Share {
  Operation* operation = nullptr;
  uintptr_t local = 0;
  uintptr_t remote = 0;
  size_t left = 0;  // bytes that are not posted yet
  uint32_t lkey = 0;
  uint32_t rkey = 0;
  bool is_put = false;
};

// What stands at a position of a rail's send queue.
struct RailRecord {
  Peer* peer = nullptr;
  uint32_t rail = 0;
  uint64_t position = 0;
  Share* share = nullptr;  // that is over with it
};

struct PeerRail {
  // ---- connection: under the transport's contact lock ----
  uint32_t first_sequence = 0;
  bool is_ready = false;  // can receive
  uint64_t their_fence = 0;
  uint32_t their_fence_key = 0;
  // ---- sending ----
  uint64_t posted = 0;  // positions, ever
  uint64_t over = 0;
  uint64_t signalled = 0;  // the position behind the last one that will be told of
  bool has_failed = false;
  Stillness stillness;
  std::unique_ptr<RailRecord[]> records;
  Share* waiting = nullptr;  // not all posted yet
  // Why the peer is lost because of this rail. Written once, before it is.
  char failure[160] = "";
  char refusal[160] = "";
  // Last: its end is the end of what the adapter does.
  QueuePair queue;  // null: there is none
};

// Of one peer. Made with it, if both have rails.
struct PeerRails {
  // ---- connection: under the transport's contact lock ----
  bool is_known = false;  // the peer has said which of its ends can receive
  // Bit i: rail i can be used both ways. Written under the lock of the peer.
  std::atomic<uint32_t> usable{0};
  uint32_t shares = 0;  // under way
  // A message has been refused since then because of a put in shares: `messages` had been sent. So many long
  // puts and gets go by the first rail now, where messages may follow them at once.
  static constexpr uint32_t kUnstriped = 16;
  uint32_t unstriped = 0;
  uint64_t messages = 0;
  std::array<PeerRail, kMostRails - 1> rails;
};

}  // namespace hydrant::ibv
