// What RdmaBarrier needs of this process's job: which ranks share a board, its memory, and how words are
// written to the boards of other nodes.
//
// The first rank of a node makes the memory, registers it, and puts its addresses and key on a card. Every
// rank of the node may write to other nodes' boards, each by its own connections: to as many nodes as there
// are rounds.
//
// Where ranks talk by verbs only (HYDRANT_TRANSPORT=ibv, or one node whose ranks share no memory) each rank
// is a node of its own.
//
// There until the process ends, like the transport that it is registered with.
#pragma once

#include "am/exit.hpp"
#include "extended/barrier_rdma.hpp"
#include "extended/refusals.hpp"
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
  // GASNet-1's barrier and the teams'.
  static constexpr uint32_t kBarriers = 2;

  // Why this job cannot have them, or an empty text. The same on all ranks, as far as their adapters are
  // alike.
  static std::string obstacle();
  // As obstacle(), of their number alone: how many nodes the barrier is among.
  static uint32_t nodes();

  // Requires: no obstacle. Collective over the job, before its fence. Errors: kResource, kUnsupported;
  // kNotReady and kBroken as share_fd().
  Status make() noexcept;
  // Behind the fence. Errors: as Bootstrap::get() and Registrar::import_key().
  Status connect() noexcept;

  RdmaBarrier::Place place(uint32_t which);

 private:
  class Mail final : public BarrierMail {
   public:
    Status post(uint32_t parity, uint32_t round, uint64_t word) noexcept override;
    BarrierBoards* boards = nullptr;
    uint32_t which = 0;
    Refusals refusals{peer_is_lost};
  };
  // The node that round k's word goes to.
  struct Target {
    Rank rank = 0;
    uint64_t boards[kBarriers] = {};
    std::vector<std::byte> key;
  };

  Status map_memory(size_t bytes) noexcept;
  Status register_memory(size_t bytes) noexcept;
  size_t board_offset(uint32_t which) const noexcept;

  std::byte* memory_ = nullptr;
  uint32_t ranks_here_ = 1;
  std::unique_ptr<Registrar> registrar_;
  std::vector<std::byte> key_;  // the first rank's, of memory_
  std::vector<Target> targets_;
  Mail mails_[kBarriers];
};

}  // namespace hydrant
