// The memory of the other ranks of the node: what is mapped here, and what the kernel copies for us
// (process_vm_writev).
#pragma once

#include "rdma/shm/node_memory.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace hydrant::shm {

class PeerMemory {
 public:
  PeerMemory() = default;
  ~PeerMemory();
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  Status init(NodeMemory& memory) noexcept;

  // [address, address+bytes) of the rank is mapped at `local`, for good. Threads: any.
  // Errors: kBadArg: empty, wraps around; kResource.
  Status add(uint32_t rank, uintptr_t address, size_t bytes, void* local) noexcept;
  // Null if no segment holds all of it. Threads: any. Cost: a few loads per segment of that rank.
  void* mapped(uint32_t rank, uintptr_t address, size_t bytes) const noexcept;

  // Copies into memory that is not mapped here. The first refusal of the kernel is remembered.
  // Errors: kUnsupported: forbidden, or its owner must do it; kBroken: there is no such process.
  Status write(uint32_t rank, uintptr_t dest, const void* source, size_t bytes) noexcept;

 private:
  struct Segment {
    uintptr_t address;
    size_t bytes;
    std::byte* local;
    Segment* next;
  };
  struct Peer {
    std::atomic<Segment*> segments{nullptr};  // grows at its head; never shrinks
    std::atomic<bool> forbidden{false};
  };

  Status find_process(uint32_t rank, uint32_t* pid) noexcept;

  NodeMemory* memory_ = nullptr;
  uint32_t ranks_ = 0;
  std::unique_ptr<Peer[]> peers_;
};

}  // namespace hydrant::shm
