// What carries messages between the ranks of a job. am/ formats messages and owns their meaning; a
// transport owns the room they are written into, their order, and credits. One that offers only
// reserve, commit and poll carries the whole API: the porting path for a new network.
//
// A message is a tag (24 bits, am's own), a head of at most kMaxHeadBytes, and a payload that is either
// written behind the head (as long as both fit inline_bytes()) or in a cell that was taken before. The
// receiver reads all of it in place; it is gone when the function that got it returns.
//
// Order: messages to one peer in one lane arrive in the order of their commits. Requests and replies
// are two lanes, and a receiver that takes replies only always makes room for more replies: nobody can
// be kept from replying for ever.
//
// Threads: any number in the multi-threaded mode, one at a time in the other. Nothing here waits: what
// cannot be done now answers kNotReady, and the caller polls. No call allocates after first contact
// with a peer. Errors: the peer is gone: kBroken, with a text.
#pragma once

#include "firehose/base/registrar.hpp"
#include "firehose/base/status.hpp"
#include "rdma/bootstrap/bootstrap.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <sched.h>
#include <span>

namespace hydrant {

enum class Lane : uint32_t { kRequest = 0, kReply = 1 };
inline constexpr uint32_t kLaneCount = 2;

// Room for one message. Between reserve() and commit() the caller writes head and payload, does nothing
// else, and takes no longer than that needs: others who write to this peer wait.
struct Outgoing {
  std::byte* head = nullptr;  // 8-byte aligned
  uint64_t state[3] = {};     // the transport's own
  uint32_t route = 0;         // of a transport that is made of several: by which
};

// Room for a payload outside the ring.
struct Cell {
  std::byte* data = nullptr;  // 64-byte aligned
  uint32_t bytes = 0;         // room
  uint32_t index = 0;         // the transport's own
};

// A message that has come. `payload` is the cell's, null if there is none. The transport vouches for the
// room: what head and payload say about their own lengths is the receiver's to check against it.
struct Incoming {
  Rank from = 0;
  Lane lane = Lane::kRequest;
  uint32_t tag = 0;
  const std::byte* head = nullptr;
  std::byte* payload = nullptr;
  uint32_t head_room = 0;     // bytes from `head` on that belong to this message
  uint32_t payload_room = 0;  // bytes of the cell
};

// Gets what poll() finds. Runs in the thread that polls, may send, and may poll the reply lane.
class Receiver {
 public:
  virtual void deliver(const Incoming& message) noexcept = 0;

 protected:
  ~Receiver() = default;
};

class Transport {
 public:
  static constexpr uint32_t kTagBits = 24;
  static constexpr uint32_t kMaxHeadBytes = 120;

  virtual ~Transport() = default;
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  virtual const char* name() const noexcept = 0;

  // ---- what it can do: constant for its life ----
  // Most bytes of head and payload together that reserve() has room for.
  virtual uint32_t inline_bytes() const noexcept = 0;
  // The same to one peer: no less.
  virtual uint32_t inline_bytes_to(Rank /*peer*/) const noexcept { return inline_bytes(); }
  // Largest cell.
  virtual uint32_t cell_bytes() const noexcept = 0;

  // ---- sending ----
  // Room for `bytes` (head and inline payload) to `peer`.
  // Errors: kNotReady: no credit; poll, then try again. kResource: first contact, no memory for a ring.
  virtual Status reserve(Rank peer, Lane lane, uint32_t bytes, Outgoing* room) noexcept = 0;
  // Sends it. With a cell, its first `cell_bytes` bytes are the payload, and the cell is given up.
  virtual void commit(Outgoing& room, uint32_t tag) noexcept = 0;
  virtual void commit_with_cell(Outgoing& room, uint32_t tag, const Cell& cell,
                                uint32_t bytes) noexcept = 0;
  // A message that is nothing but a head of `bytes` bytes, a multiple of 4: reserve(), a copy and
  // commit() in one call, for the messages that are sent most. Errors: as reserve().
  virtual Status post(Rank peer, Lane lane, uint32_t tag, const void* head,
                      uint32_t bytes) noexcept {
    Outgoing room;
    const Status status = reserve(peer, lane, bytes, &room);
    if (status != Status::kOk) return status;
    // NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker): reserve() has made room
    if (bytes != 0) std::memcpy(room.head, head, bytes);
    commit(room, tag);
    return Status::kOk;
  }
  // A cell of at least `bytes`, at most cell_bytes(), to be sent to `peer` in `lane`. Errors: kNotReady.
  virtual Status take_cell(Rank peer, Lane lane, uint32_t bytes, Cell* cell) noexcept = 0;
  virtual void drop_cell(Rank peer, Lane lane, const Cell& cell) noexcept = 0;

  // ---- memory ----
  // 256 bytes of `peer` that all ranks of the node read and write, 128-byte aligned, zero at first: for
  // barriers. Null if there is no such memory between this process and `peer`.
  virtual std::byte* shared_block(Rank peer) const noexcept = 0;
  // From now on [peer_addr, peer_addr+bytes) of `peer` is mapped here at `local`, for the life of the job.
  // Errors: kResource.
  virtual Status add_segment(Rank peer, uintptr_t peer_addr, size_t bytes,
                             void* local) noexcept = 0;
  // Where [addr, addr+bytes) of `peer` is mapped in this process; null if it is not.
  virtual void* mapped(Rank peer, uintptr_t addr, size_t bytes) const noexcept = 0;
  // Copies into the memory of `peer`, complete before any message committed later is delivered.
  // Errors: kUnsupported: this memory cannot be reached without its owner's help.
  virtual Status write(Rank peer, uintptr_t dest, const void* source, size_t bytes) noexcept = 0;

  // ---- one-sided operations ----
  // Bits of capabilities(), constant for the transport's life.
  enum Capability : uint32_t {
    kOneSided = 1,            // put() and get() exist; without it they answer kUnsupported
    kCompletesAtOnce = 2,     // ... and are over when they return
    kPutsBeforeMessages = 4,  // what was put is there before a message committed later is delivered
    kPinned = 8,              // put_pinned() and get_pinned() exist
    kMapped = 16,             // mapped() may answer; without it, nobody asks
    kAtomics = 32,            // start_atomic() exists
  };
  virtual uint32_t capabilities() const noexcept { return 0; }
  // The same of one peer, for transports that are two: capabilities() are then all that any peer has.
  virtual uint32_t peer_capabilities(Rank /*peer*/) const noexcept { return capabilities(); }
  // Ports by which long puts and gets go at once, and so many with one peer: as far as is known of it, so
  // perhaps less before it is connected.
  virtual uint32_t rails() const noexcept { return 1; }
  virtual uint32_t rails_with(Rank /*peer*/) const noexcept { return rails(); }
  // Most operations that may be under way at once; 0 where they complete at once.
  virtual uint32_t depth() const noexcept { return 0; }

  // What an operation that is under way reports to: `done` is called once, by a thread that polls, and may
  // neither send nor poll.
  struct Completion {
    void (*done)(Completion& completion, Status status) noexcept = nullptr;
  };
  // Copies `bytes`, at least one, from `local` to [remote, remote+bytes) of `peer`, or from there to `local`.
  // kOk: over, if the transport completes at once; else under way, and `local` and `completion` are the
  // transport's until that is called, with kOk or one of these errors.
  // Errors: kNotReady: too many are under way; poll. kUnsupported: this memory cannot be reached without its
  // owner's help (or is not there); some of the bytes may have been copied. kBroken: the peer is gone.
  virtual Status put(Rank peer, uintptr_t remote, const void* local, size_t bytes,
                     Completion* completion) noexcept;
  virtual Status get(Rank peer, uintptr_t remote, void* local, size_t bytes,
                     Completion* completion) noexcept;
  // Several with one peer, for transports that complete at once: one system call where that is what they
  // cost. Errors: as above, for any of them.
  struct Piece {
    void* local = nullptr;
    uintptr_t remote = 0;
    size_t bytes = 0;
  };
  virtual Status put_pieces(Rank peer, std::span<const Piece> pieces) noexcept;
  virtual Status get_pieces(Rank peer, std::span<const Piece> pieces) noexcept;

  // ---- one-sided operations between pinned memory ----
  // A registrar that pins memory for this transport, for a pin cache to own; null without kPinned, or with a
  // text. The transport outlives it.
  virtual std::unique_ptr<Registrar> make_registrar() noexcept { return nullptr; }
  // One end of an operation: memory, and the key of the registration that it lies in.
  struct Pinned {
    uintptr_t addr = 0;
    const std::byte* key = nullptr;  // of this rank: make_registrar()'s; of a peer: imported by it
  };
  // Copies of up to so many bytes to a peer need no local key: they have left their source at return.
  virtual uint32_t pinned_inline_bytes() const noexcept { return 0; }
  // As put() and get(), of any length; keys are read before the call returns. kRefused, at once or by the
  // completion: a key does not allow it (any more).
  virtual Status put_pinned(Rank peer, const Pinned& remote, const Pinned& local, size_t bytes,
                            Completion* completion) noexcept;
  virtual Status get_pinned(Rank peer, const Pinned& remote, const Pinned& local, size_t bytes,
                            Completion* completion) noexcept;
  // Several with one peer, which the adapter is told of together where it can be. Answers how many, from the
  // front, are under way; why the next is not, its own call tells.
  struct PinnedOperation {
    Pinned remote;
    Pinned local;
    size_t bytes = 0;
    Completion* completion = nullptr;
  };
  virtual size_t put_pinned_list(Rank peer, std::span<const PinnedOperation> list) noexcept;
  virtual size_t get_pinned_list(Rank peer, std::span<const PinnedOperation> list) noexcept;
  // One that is carried out again and again, and whose request is made beforehand; by one thread at a time.
  // It may be deleted while it is under way, and not after the transport.
  class PersistentRequest {
   public:
    virtual ~PersistentRequest() = default;
    // As put_pinned() or get_pinned(), with the keys that the two ends have now.
    virtual Status start(const std::byte* remote_key, const std::byte* local_key,
                         Completion* completion) noexcept = 0;
  };
  // Null: there is nothing to be made beforehand, or no memory for it; put_pinned() and get_pinned() do it.
  virtual std::unique_ptr<PersistentRequest> make_persistent_put(Rank /*peer*/,
                                                                 uintptr_t /*remote*/,
                                                                 uintptr_t /*local*/,
                                                                 size_t /*bytes*/) noexcept {
    return nullptr;
  }
  virtual std::unique_ptr<PersistentRequest> make_persistent_get(Rank /*peer*/,
                                                                 uintptr_t /*remote*/,
                                                                 uintptr_t /*local*/,
                                                                 size_t /*bytes*/) noexcept {
    return nullptr;
  }

  // Reads a word of a peer and changes it, as one step to all others that do so by the same adapter. Not to
  // its processors, nor to put_pinned(): all who change a word while others may have to come this way.
  struct Atomic {
    enum class Kind : uint32_t {
      kFetchAdd,     // adds `operand`
      kCompareSwap,  // stores `operand` if the word is `expected`
    };
    Kind kind = Kind::kFetchAdd;
    uint64_t operand = 0;
    uint64_t expected = 0;
  };
  // On the 8 bytes at `remote`, a multiple of 8, in memory that is pinned with Access::kRemoteAtomic. What
  // was there before is in the 8 bytes at `local` when `completion` is told kOk. Reports like get_pinned().
  // Errors: those of get_pinned(); kUnsupported: without kAtomics; kBadArg: no multiple of 8, no key.
  virtual Status start_atomic(Rank peer, const Pinned& remote, const Pinned& local,
                              const Atomic& what, Completion* completion) noexcept;

  // What it has done beside the messages and operations it was asked for, by name (literals), for people who
  // look for a cause. Answers how many rows it has, of which it wrote those that there was room for.
  struct Count {
    const char* name = "";
    uint64_t value = 0;
  };
  virtual size_t list_counts(std::span<Count> /*rows*/) const noexcept { return 0; }

  // ---- progress ----
  // Delivers at most `budget` messages of the reply lane and, unless `replies_only`, of the request lane
  // to `receiver`; answers how many.
  virtual uint32_t poll(Receiver& receiver, uint32_t budget, bool replies_only) noexcept = 0;
  // Sleeps until a message may have come, wake() is called, a peer rouses this rank, or now_ns()
  // reaches the deadline; not at all if `check` holds when others can see that this process sleeps.
  struct WakeCondition {
    bool (*holds)(const void* context) noexcept = nullptr;
    const void* context = nullptr;
  };
  virtual void sleep(uint64_t deadline_ns, const WakeCondition& check) noexcept = 0;
  void sleep(uint64_t deadline_ns) noexcept { sleep(deadline_ns, {}); }
  // Gives the processor to whoever else can run on it, and lets the peers know.
  virtual void yield() noexcept { sched_yield(); }
  // True if the rank that this one sent to or heard from last seems to run on another processor: then
  // an answer is near. A hint, and a cheap one.
  virtual bool is_reply_imminent() const noexcept { return false; }
  // Makes the threads of `peer` leave sleep(), if it is on this node: what this rank has stored before is
  // seen by them, or by the check that they make. Two loads if nobody there sleeps.
  virtual void wake_peer(Rank peer) noexcept = 0;
  // Makes every thread of this process leave sleep(). Async-signal-safe.
  virtual void wake() noexcept = 0;
  // Before this process ends: until all that was committed is beyond its reach, or the deadline. Takes no
  // lock for which it would have to wait longer.
  virtual void flush(uint64_t /*deadline_ns*/) noexcept {}
  // `lost` is called once for each peer that the network says is gone, by whoever finds out: perhaps in a
  // call of this class, which it may not call but for disconnect() and wake(). Set before ranks talk.
  using PeerFailedFn = void (*)(Rank peer, const char* why) noexcept;
  virtual void set_peer_failed_callback(PeerFailedFn /*lost*/) noexcept {}
  // Nobody will hear of `peer` again: its rings are drained no more, sends to it answer kBroken, after the
  // next poll at the latest. By any thread, in the mode for one as well.
  virtual void disconnect(Rank peer) noexcept = 0;
};

}  // namespace hydrant
