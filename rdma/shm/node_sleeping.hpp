// Sleep of a rank's threads until a doorbell, and wake-ups between the ranks of a node.
//
// Threads: any; announce_sleep() and sleep() as polls of the transport.
#pragma once

#include "rdma/shm/memory/node_memory.hpp"
#include "rdma/shm/node_index.hpp"
#include "rdma/shm/node_rings.hpp"
#include "rdma/transport/sleeping.hpp"

#include <atomic>
#include <cstdint>

namespace hydrant::shm {

class NodeSleeping final : public Sleeping {
 public:
  NodeSleeping(NodeMemory& memory, NodeRings& rings) noexcept
      : memory_(memory), self_(memory.area(memory.node_rank())), rings_(rings) {}
  // `has_fence`: the ranks' fences reach each other (GlobalMembarrier).
  void init(const NodeIndex& index, bool has_fence) noexcept {
    index_ = index;
    has_fence_ = has_fence;
  }

  // Also returns if wake() was called since the calling thread slept last.
  void sleep(uint64_t deadline_ns, const WakeCondition& check) noexcept override;
  bool announce_sleep(Announcement* announcement) noexcept override;
  bool sleep_announced(const Announcement& announcement, uint64_t deadline_ns) noexcept override;
  void yield() noexcept override;
  bool is_reply_imminent() const noexcept override;
  void wake_peer(Rank peer) noexcept override;
  void wake() noexcept override;

  uint64_t sleeps() const noexcept { return sleeps_.load(std::memory_order_relaxed); }

 private:
  void publish_processor() noexcept;

  NodeMemory& memory_;
  RankArea& self_;
  NodeRings& rings_;
  NodeIndex index_;
  bool has_fence_ = false;
  std::atomic<uint64_t> sleeps_{0};
};

}  // namespace hydrant::shm
