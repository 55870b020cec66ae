// The memory of the other ranks of the node: segments that are mapped here, and all other memory, which the
// kernel copies (cross-memory attach, cma_copy.hpp).
#pragma once

#include "rdma/shm/memory/cma_copy.hpp"
#include "rdma/shm/memory/node_memory.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace hydrant::shm {

class PeerMemory {
 public:
  PeerMemory() = default;
  ~PeerMemory();
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  // Reads HYDRANT_CMA, and permits the other ranks of the node to copy to and from this process.
  Status init(NodeMemory& memory) noexcept;

  // Records that [address, address+bytes) of the rank is mapped at `local`, for good. Threads: any.
  // Errors: kBadArg: empty, wraps around; kResource.
  Status add(uint32_t rank, uintptr_t address, size_t bytes, void* local) noexcept;
  // The local address of the range; null if no segment holds all of it. Threads: any. Cost: a few loads per
  // segment of that rank.
  void* mapped(uint32_t rank, uintptr_t address, size_t bytes) const noexcept;

  // Copies all pieces, in no order: mapped ones by memcpy, the rest by the kernel. If the kernel forbids
  // copies between this process and the rank, the first attempt detects it; this is logged once (info) and
  // remembered. Threads: any.
  // Errors: kUnsupported: forbidden, or the owner has to copy; some of it may have been copied. kBroken:
  // there is no such process.
  Status copy(uint32_t rank, CopyDirection direction,
              std::span<const MemoryAccess::Piece> pieces) noexcept;

 private:
  struct Segment {
    uintptr_t address;
    size_t bytes;
    std::byte* local;
    std::atomic<Segment*> next;
  };
  struct Peer {
    // Grows behind the first, which is the attached segment and meant most often; never shrinks.
    std::atomic<Segment*> segments{nullptr};
    std::atomic<bool> forbidden[2] = {};  // by CopyDirection
  };

  bool copy_if_mapped(uint32_t rank, CopyDirection direction,
                      const MemoryAccess::Piece& piece) const noexcept;
  Status copy_by_cma(uint32_t rank, CopyDirection direction,
                     std::span<const MemoryAccess::Piece> pieces) noexcept;
  Status find_process(uint32_t rank, CopyDirection direction, uint32_t* pid) noexcept;
  Status explain(uint32_t rank, CopyDirection direction, uint32_t pid, int error) noexcept;
  void forbid(uint32_t rank, CopyDirection direction, const char* why) noexcept;

  NodeMemory* memory_ = nullptr;
  uint32_t ranks_ = 0;
  std::unique_ptr<Peer[]> peers_;
};

}  // namespace hydrant::shm
