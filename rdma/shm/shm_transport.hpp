// The transport between the processes of a node, made of NodeRings, NodeMemoryAccess and NodeSleeping.
//
// The caller decides how to wait. Measured (shm_idle_bench): an empty poll takes 13 ns, a message arrives
// after 160 ns, and a round trip of two ranks that sleep after every message takes 35 us. So: poll for about
// as long as a sleep costs, then sleep(). With more ranks than processors, call sched_yield() instead of
// polling from the start.
#pragma once

#include "rdma/shm/connections.hpp"
#include "rdma/shm/memory/node_memory.hpp"
#include "rdma/shm/node_memory_access.hpp"
#include "rdma/shm/node_rings.hpp"
#include "rdma/shm/node_sleeping.hpp"
#include "rdma/transport/transport.hpp"

#include <cstdint>
#include <memory>

namespace hydrant {

class ShmTransport final : public Transport {
 public:
  enum class Threads { kOne, kMany };

  // `memory` is attached, and must outlive the transport. topology.node_ranks[i] is node rank i.
  // Errors: kBadArg: topology and memory disagree; kResource.
  static Status open(shm::NodeMemory& memory, const JobTopology& topology, Threads threads,
                     std::unique_ptr<ShmTransport>* transport) noexcept;

  const char* name() const noexcept override { return "shm"; }
  MessageChannel& messages(Rank) noexcept override { return rings_; }
  MemoryAccess& memory() noexcept override { return memory_; }
  Sleeping& sleeping() noexcept override { return sleeping_; }
  uint32_t capabilities() const noexcept override {
    return kOneSided | kCompletesAtOnce | kPutsBeforeMessages | kMapped;
  }
  uint32_t poll(Receiver& receiver, uint32_t budget, bool replies_only) noexcept override;
  void disconnect(Rank peer) noexcept override { rings_.disconnect(peer); }

  // For tests and diagnosis.
  struct Counts : shm::NodeRings::Counts {
    uint64_t sleeps = 0;
  };
  Counts counts() const noexcept { return {rings_.counts(), sleeping_.sleeps()}; }
  uint32_t active_rings() const noexcept { return rings_.active_rings(); }

 private:
  ShmTransport(shm::NodeMemory& memory, bool threaded) noexcept
      : rings_(memory, connections_, threaded),
        memory_(memory, connections_),
        sleeping_(memory, rings_) {}
  Status init(const JobTopology& topology, uint32_t self) noexcept;

  std::unique_ptr<uint32_t[]> table_;  // of the parts' NodeIndex
  shm::Connections connections_;
  shm::NodeRings rings_;
  shm::NodeMemoryAccess memory_;
  shm::NodeSleeping sleeping_;
};

}  // namespace hydrant
