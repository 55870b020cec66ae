// The interface that sends messages. am/ formats messages and defines their meaning; a channel owns the
// buffers that they are written into, their order, and the credits.
//
// A message is a tag (24 bits, defined by am), a head of at most kMaxHeadBytes, and a payload. The payload is
// either written behind the head (if both fit inline_bytes()) or in a cell that was taken before. The
// receiver reads all of it in place, and only until the function that received it returns.
//
// Order: messages to one peer in one lane are delivered in the order of their commits, and one at a time.
// Requests and replies are two lanes. A receiver that polls only replies frees room for more replies, so a
// rank that replies is never blocked for ever.
//
// Threads, waiting and allocation: as Transport.
#pragma once

#include "firehose/base/status.hpp"
#include "rdma/bootstrap/bootstrap.hpp"

#include <cstddef>
#include <cstdint>

namespace hydrant {

enum class Lane : uint32_t { kRequest = 0, kReply = 1 };
inline constexpr uint32_t kLaneCount = 2;

// Room for one message. Between reserve() and commit() the caller only writes head and payload, and without
// delay: other threads that send to this peer wait.
struct Outgoing {
  std::byte* head = nullptr;  // at 8 modulo 16, at the receiver too: am/ aligns payloads by it
  uint64_t state[3] = {};     // private to the channel
};

// Room for a payload outside the ring.
struct Cell {
  std::byte* data = nullptr;  // 64-byte aligned
  uint32_t bytes = 0;         // room
  uint32_t index = 0;         // private to the channel
};

class MessageChannel {
 public:
  static constexpr uint32_t kTagBits = 24;
  static constexpr uint32_t kMaxHeadBytes = 120;
  static constexpr uint32_t kMinPayloadBytes =
      512;  // of the longest payload, as messages for pins need

  // ---- limits: constant for the transport's life; Job::use() checks them ----
  // The most bytes of head and payload together that reserve() has room for: at least kMaxHeadBytes, and
  // kMinPayloadBytes more without cells.
  virtual uint32_t inline_bytes() const noexcept = 0;
  // Size of the largest cell, at least kMinPayloadBytes; 0: there are none, and all payloads are sent inline.
  virtual uint32_t cell_bytes() const noexcept { return 0; }
  // The longest payload of a message.
  uint32_t payload_bytes() const noexcept {
    const uint32_t bytes = cell_bytes();
    return bytes != 0 ? bytes : inline_bytes() - kMaxHeadBytes;
  }

  // ---- sending: to peers that Transport::messages() has this channel for ----
  // Room for `bytes` (head and inline payload) to `peer`. After kOk a commit must follow.
  // Errors: kNotReady: no credit; poll, then try again. kResource: first contact; this rank or the peer has
  // no memory or no room for the connection now.
  // kBroken: the peer is disconnected. kBadArg: more than inline_bytes(), or no peer of this channel.
  virtual Status reserve(Rank peer, Lane lane, uint32_t bytes, Outgoing* room) noexcept = 0;
  // Sends the message, and cannot fail: a message to a disconnected peer is dropped. With a cell, its first
  // `bytes` bytes are the payload, and the cell returns to the channel.
  virtual void commit(Outgoing& room, uint32_t tag) noexcept = 0;
  virtual void commit_with_cell(Outgoing& room, uint32_t tag, const Cell& cell,
                                uint32_t bytes) noexcept;
  // Sends a message that is only a head of `bytes` bytes, a multiple of 4: reserve(), a copy and commit() in
  // one call, for the most frequent messages. Errors: as reserve().
  virtual Status post(Rank peer, Lane lane, uint32_t tag, const void* head,
                      uint32_t bytes) noexcept;
  // Takes a cell of at least `bytes`, at most cell_bytes(), for a message to `peer` in `lane`. Its holder may
  // poll and send before it commits or drops the cell. Errors: kNotReady; kUnsupported: there are no cells.
  virtual Status take_cell(Rank peer, Lane lane, uint32_t bytes, Cell* cell) noexcept;
  virtual void drop_cell(Rank peer, Lane lane, const Cell& cell) noexcept;

 protected:
  ~MessageChannel() = default;
};

}  // namespace hydrant
