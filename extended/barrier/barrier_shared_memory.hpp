// The job-specific part of RdmaBarrier: the ranks that share a board, the board's memory, and writes to
// the boards of other nodes.
//
// The first rank of a node allocates and registers the memory, and publishes its addresses and key in
// the job's store. Every rank of the node may write to other nodes' boards over its own connections.
// The number of target nodes equals the number of rounds.
//
// If ranks communicate only by verbs (HYDRANT_TRANSPORT=ibv, or one node whose ranks share no memory),
// each rank counts as its own node.
//
// The boards of a job live until its processes end, like the transport with which they are registered.
// They lie between guards (rdma/guarded_memory.hpp).
#pragma once

#include "am/job/exit.hpp"
#include "extended/barrier/barrier_rdma.hpp"
#include "extended/send_failures.hpp"
#include "firehose/base/registrar.hpp"
#include "firehose/base/status.hpp"
#include "rdma/transport.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace hydrant {

class BarrierBoards {
 public:
  // Two barriers: GASNet-1's and the teams'.
  static constexpr uint32_t kBarriers = 2;

  BarrierBoards() = default;
  // Unpins and unmaps the boards; no rank may write to them any more.
  ~BarrierBoards();
  BarrierBoards(const BarrierBoards&) = delete;
  BarrierBoards& operator=(const BarrierBoards&) = delete;

  // Why this job cannot use boards, or "". The same on all ranks if their adapters are alike.
  static std::string obstacle();
  // Number of nodes in the barrier.
  static uint32_t nodes();

  // Requires that there is no obstacle. Collective over the job, before its fence. Errors: kResource,
  // kUnsupported; kNotReady and kBroken as share_fd().
  Status make() noexcept;
  // Imports the keys of other nodes' boards; after the fence. Errors: as Bootstrap::get() and
  // Registrar::import_key().
  Status connect() noexcept;

  RdmaBarrier::Place place(uint32_t which);

 private:
  class Mail final : public BarrierMail {
   public:
    Status post(uint32_t parity, uint32_t round, uint64_t word) noexcept override;
    BarrierBoards* boards = nullptr;
    uint32_t which = 0;
    Refusals refusals{on_peer_failed};
  };
  // The node that receives the word of one round.
  struct Target {
    Rank rank = 0;
    uint64_t boards[kBarriers] = {};
    std::vector<std::byte> key;
  };

  Status map_memory(size_t bytes) noexcept;
  Status register_memory(size_t bytes) noexcept;
  size_t board_offset(uint32_t which) const noexcept;

  std::byte* memory_ = nullptr;
  size_t bytes_ = 0;
  uint32_t ranks_here_ = 1;
  std::unique_ptr<Registrar> registrar_;
  std::vector<std::byte> key_;  // for memory_; set only on the node's first rank
  std::vector<Target> targets_;
  Mail mails_[kBarriers];
};

}  // namespace hydrant
