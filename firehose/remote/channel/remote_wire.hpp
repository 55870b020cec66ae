// The messages of the remote-pin protocol. docs/remote_pins.md, "Wire format", explains each.
//
// All ranks of a job run on machines of one byte order: numbers are sent as they lie in memory, and the magic
// number would be wrong otherwise. Every received field is checked before use.
#pragma once

#include "firehose/base/status.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace hydrant::remote_wire {

inline constexpr uint16_t kMagic = 0x4846;  // "FH"
inline constexpr uint8_t kVersion = 2;

enum class Type : uint8_t {
  kMove = 1,          // initiator to target: requests a firehose, releases others
  kReply = 2,         // the reply, in either lane
  kRelease = 3,       // initiator to target: releases firehoses
  kRecall = 4,        // target to initiator: firehoses whose memory was released
  kLease = 5,         // target to initiator: the bytes of its lease
  kLeaseRequest = 6,  // initiator to target: requests a larger lease
  kReclaim = 7,       // target to initiator: requests idle firehoses worth so much
  kAwait = 8,         // initiator to target: requests a room notice
  kRoom = 9,          // target to initiator: there may be room, or there is none yet
};

// The highest address of a range in a message: gates hold the end of a region, and ranges are rounded out to
// granules.
inline constexpr uintptr_t kHighestAddress = UINTPTR_MAX / 2;

struct Header {
  uint16_t magic;
  uint8_t version;
  Type type;
  uint32_t count;  // of the entries behind the body, by type
};

// An id in a release, behind the others: all firehoses evicted for the last RECLAIM are released. No id is 0.
inline constexpr uint64_t kReclaimed = 0;

// Behind it: `count` released ids, then args_len bytes.
struct Move {
  uint64_t number;                   // the initiator's, for the reply
  uint64_t asked_addr, asked_len;    // for the target's function
  uint64_t min_addr, min_len;        // required
  uint64_t wanted_addr, wanted_len;  // requested if possible; contains the required range
  uint32_t access;
  uint32_t args_len;
  uint32_t flags;
  uint32_t reserved;
};
enum MoveFlag : uint32_t {
  kCall = 1,        // run the target's function
  kCallAnyway = 2,  // ... also if the memory cannot be pinned
  kShort = 4,       // other firehoses were evicted for this
};

// Behind it: blob_len bytes of key, then answer_len bytes.
struct Reply {
  uint64_t number;
  uint64_t id;         // of the firehose
  uint64_t addr, len;  // the range that it covers
  uint64_t charge;     // its share of the lease
  uint64_t lease;
  uint64_t most;          // the longest range that the peer can ever have
  uint32_t lease_number;  // the newest counts
  int32_t status;
  uint32_t flags;
  uint32_t blob_len;
  uint32_t answer_len;
  uint32_t reserved;
};
enum ReplyFlag : uint32_t {
  kOnce = 1,         // not to be cached: no event reports the end of the memory
  kCalled = 2,       // the target's function has run
  kMaxIsRegion = 4,  // `most` is the target's largest region, not its lending limit
};

// An entry of a recall: `count` of these follow the header.
struct Recalled {
  uint64_t id;
  uint64_t addr, len;
};

struct Lease {
  uint64_t bytes;
  uint64_t most;  // as in Reply
  uint32_t number;
  uint32_t flags;  // kMaxIsRegion
};

// kLeaseRequest, kReclaim.
struct Amount {
  uint64_t bytes;
};

struct Await {
  uint64_t addr, len;
  uint32_t access;
  uint32_t flags;
};
enum AwaitFlag : uint32_t {
  kAtOnce = 1,  // reply now, also if there is no room, and do not remember the request
};

struct Room {
  uint32_t flags;
  uint32_t reserved;
};
enum RoomFlag : uint32_t {
  kDue = 1,  // there may be room; without it: not yet
};

// Room for one message: on the stack if it is short.
class Message {
 public:
  Message() noexcept = default;
  ~Message() {
    if (bytes_ != inline_) ::operator delete(bytes_);
  }
  Message(const Message&) = delete;
  Message& operator=(const Message&) = delete;

  // False: no memory. What was written so far stays.
  [[nodiscard]] bool reserve(size_t room) noexcept;

  std::byte* data() noexcept { return bytes_; }
  const std::byte* data() const noexcept { return bytes_; }
  size_t size() const noexcept { return size_; }
  size_t room() const noexcept { return room_ - size_; }
  std::byte* end() noexcept { return bytes_ + size_; }
  // Both require that much room.
  void add(const void* from, size_t bytes) noexcept {
    if (bytes != 0) std::memcpy(end(), from, bytes);
    size_ += bytes;
  }
  template <typename Part>
  void add(const Part& part) noexcept {
    static_assert(std::is_trivially_copyable_v<Part>);
    add(&part, sizeof part);
  }
  void grow(size_t bytes) noexcept { size_ += bytes; }
  void clear() noexcept { size_ = 0; }

 private:
  static constexpr size_t kInline = 1024;
  alignas(8) std::byte inline_[kInline];
  std::byte* bytes_ = inline_;
  size_t room_ = kInline;
  size_t size_ = 0;
};

inline Header header(Type type, size_t count = 0) noexcept {
  return {kMagic, kVersion, type, static_cast<uint32_t>(count)};
}

// Reads the parts of a message; every step returns whether the message was long enough.
class MessageReader {
 public:
  MessageReader(const void* message, size_t len) noexcept
      : at_(static_cast<const std::byte*>(message)), left_(len) {}

  template <typename Part>
  [[nodiscard]] bool take(Part* part) noexcept {
    static_assert(std::is_trivially_copyable_v<Part>);
    if (left_ < sizeof(Part)) return false;
    std::memcpy(part, at_, sizeof(Part));
    skip(sizeof(Part));
    return true;
  }
  // Null: the message has fewer bytes left.
  [[nodiscard]] const std::byte* take(size_t bytes) noexcept {
    if (bytes > left_) return nullptr;
    const std::byte* part = at_;
    skip(bytes);
    return part;
  }
  size_t left() const noexcept { return left_; }

 private:
  void skip(size_t bytes) noexcept {
    at_ += bytes;
    left_ -= bytes;
  }
  const std::byte* at_;
  size_t left_;
};

// Reads a move without what follows it. False: the message is none.
[[nodiscard]] inline bool read_move(const void* message, size_t len, Move* move) noexcept {
  MessageReader reader(message, len);
  Header header{};
  return message != nullptr && reader.take(&header) && header.magic == kMagic &&
         header.version == kVersion && header.type == Type::kMove && reader.take(move);
}

// Makes the refusal that an end sends for each move if it could not be created. False: the message is no move
// and needs no reply. The lease in the refusal is ignored.
[[nodiscard]] inline bool refuse_move(const void* message, size_t len, Message* reply) noexcept {
  Move move{};
  if (!read_move(message, len, &move)) return false;
  Reply no{};
  no.number = move.number;
  no.status = to_c(Status::kRefused);
  no.lease = no.most = UINT64_MAX;
  reply->add(header(Type::kReply));
  reply->add(no);
  return true;
}

// Longest part of a message that is not the client's arguments, answer or key.
inline constexpr size_t kOverhead = sizeof(Header) + sizeof(Move) + 96;
static_assert(sizeof(Reply) <= sizeof(Move) + 96);

}  // namespace hydrant::remote_wire
