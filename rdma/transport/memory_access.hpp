// The interface for memory of other ranks that this process reads and writes itself: what is mapped here, and
// what the kernel, or a network that reaches all memory, copies.
//
// Threads, waiting and allocation: as Transport. The defaults reach nothing.
#pragma once

#include "firehose/base/status.hpp"
#include "rdma/bootstrap/bootstrap.hpp"
#include "rdma/transport/completion.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace hydrant {

class MemoryAccess {
 public:
  // Returns an object that reaches no memory.
  static MemoryAccess& none() noexcept;

  // 256 bytes of `peer` that all ranks of the node read and write, for barriers: 128-byte aligned, initially
  // zero. Null if this process and `peer` share no such memory.
  virtual std::byte* shared_block(Rank peer) const noexcept;
  // kStartBytes bytes of `peer` that all ranks of the node read and write, for one agreement at the start:
  // 64-byte aligned, initially zero. Null as above.
  static constexpr uint32_t kStartBytes = 64;
  virtual std::byte* start_block(Rank peer) const noexcept;
  // kCollectiveBlocks blocks of kCollectiveBytes of `peer`, one behind the other, that all ranks of the
  // node read and write, for collectives: 128-byte aligned, zero at first. Their owner reserves each
  // before the first access. Null if this process and `peer` share no such memory.
  static constexpr uint32_t kCollectiveBlocks = 64;
  static constexpr uint32_t kCollectiveBytes = 9344;
  virtual std::byte* collective_blocks(Rank peer) const noexcept;
  // Reserves this rank's block. Errors: kResource; kUnsupported: there are none.
  virtual Status reserve_collective_block(uint32_t block) noexcept;
  // Declares that [peer_addr, peer_addr+bytes) of `peer` is mapped here at `local` for the rest of the job.
  // Called only with Transport::kMapped. Errors: kResource.
  virtual Status add_segment(Rank peer, uintptr_t peer_addr, size_t bytes, void* local) noexcept;
  // Address at which [addr, addr+bytes) of `peer` is mapped in this process; null if it is not mapped.
  virtual void* mapped(Rank peer, uintptr_t addr, size_t bytes) const noexcept;
  // Copies into the memory of `peer`. The copy is complete before any message committed later is delivered:
  // on every network, while that of put() is with Transport::kPutsBeforeMessages.
  // Errors: kUnsupported: this memory is not accessible without the owner's cooperation; kBroken.
  virtual Status write(Rank peer, uintptr_t dest, const void* source, size_t bytes) noexcept;

  // Copies `bytes`, at least one, from `local` to [remote, remote+bytes) of `peer`, or back. With
  // Transport::kCompletesAtOnce kOk means complete, and `completion` is ignored and may be null. Otherwise it
  // means under way: `local` and `completion`, which is not null, belong to the transport until it calls
  // `completion` with kOk, kUnsupported or kBroken.
  // Errors: kNotReady: too many operations are under way; poll. kUnsupported: this memory is not mapped, or
  // is not accessible without the owner's cooperation; some of the bytes may have been copied. kBroken: the
  // peer is disconnected.
  virtual Status put(Rank peer, uintptr_t remote, const void* local, size_t bytes,
                     Completion* completion) noexcept;
  virtual Status get(Rank peer, uintptr_t remote, void* local, size_t bytes,
                     Completion* completion) noexcept;
  // Several copies with one peer, for transports that complete at once; they need one system call together if
  // a copy costs a system call. Errors: as above, for any of the pieces.
  struct Piece {
    void* local = nullptr;
    uintptr_t remote = 0;
    size_t bytes = 0;
  };
  virtual Status put_pieces(Rank peer, std::span<const Piece> pieces) noexcept;
  virtual Status get_pieces(Rank peer, std::span<const Piece> pieces) noexcept;

 protected:
  ~MemoryAccess() = default;
};

}  // namespace hydrant
