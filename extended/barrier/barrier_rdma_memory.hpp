// The job-specific part of RdmaBarrier: the ranks that share a state, the memory of the states, and writes to
// the shared states of other nodes.
//
// The first rank of a node allocates and registers the memory, and publishes its addresses and key in
// the job's store. The number of target nodes equals the number of rounds. Every rank of the node can write
// to them over its own connections; which one does is RdmaBarrier's choice. A rank whose adapter takes no
// eight bytes with a request registers the memory as well, and lets the adapter read the words there.
//
// If ranks communicate only by verbs (HYDRANT_TRANSPORT=ibv, or one node whose ranks share no memory),
// each rank counts as its own node.
//
// The shared states of a job live until its processes end, like the transport with which they are registered.
// They lie between guards (rdma/transport/guarded_memory.hpp).
#pragma once

#include "extended/barrier/barrier_rdma.hpp"
#include "extended/message/send_failures.hpp"
#include "firehose/base/registrar.hpp"
#include "firehose/base/status.hpp"
#include "rdma/bootstrap/bootstrap.hpp"
#include "rdma/transport/transport.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace hydrant {

class BarrierRdmaMemory {
 public:
  // Two barriers: GASNet-1's and the teams'.
  static constexpr uint32_t kBarriers = 2;

  // `transport` has PinnedOperations. `peer_failed` ends the job.
  BarrierRdmaMemory(Bootstrap& bootstrap, Transport& transport,
                    Transport::PeerFailedFn peer_failed) noexcept
      : bootstrap_(bootstrap),
        transport_(transport),
        pinned_(*transport.pinned()),
        writers_{WordWriter(*this, 0, peer_failed), WordWriter(*this, 1, peer_failed)} {}
  // Unpins and unmaps the shared states; no rank may write to them any more.
  ~BarrierRdmaMemory();
  BarrierRdmaMemory(const BarrierRdmaMemory&) = delete;
  BarrierRdmaMemory& operator=(const BarrierRdmaMemory&) = delete;

  // Why this job cannot use shared states, or "". The same on all ranks, whatever their adapters. A null
  // `transport`: the job has one rank.
  static std::string obstacle(const Bootstrap& bootstrap, Transport* transport);
  // Number of nodes in the barrier.
  static uint32_t nodes(const JobTopology& topology);

  // Requires that there is no obstacle. Collective over the job, before its fence. Errors: kResource,
  // kUnsupported; kNotReady and kBroken as share_fd().
  Status make() noexcept;
  // Imports the keys of other nodes' shared states; after the fence. Errors: as Bootstrap::get() and
  // Registrar::import_key().
  Status connect() noexcept;

  RdmaBarrier::Config config(uint32_t which);

 private:
  class WordWriter final : public BarrierWordWriter {
   public:
    WordWriter(BarrierRdmaMemory& memory, uint32_t index,
               Transport::PeerFailedFn peer_failed) noexcept
        : owner(&memory), which(index), failures(peer_failed) {}
    Status post(uint32_t parity, uint32_t round, uint64_t word) noexcept override;
    // From the place that the adapter reads, if it takes no word with its request.
    Status put(uint32_t parity, uint32_t round, uint64_t word, Completion& completion) noexcept;

   private:
    Status put_from(PinnedOperations::Pinned source, uint32_t parity, uint32_t round, uint64_t word,
                    Completion& completion) noexcept;
    BarrierRdmaMemory* const owner;
    const uint32_t which;
    SendFailures failures;
  };
  // For ranks whose adapter, or that of a node they write to, may write twice what has not completed. Posts
  // to a place when the post before it has completed, whichever rank of the node made that.
  class LateWordWriter {
   public:
    LateWordWriter(WordWriter& writer, BarrierRdmaState& state) noexcept;
    Status post(uint32_t parity, uint32_t round, uint64_t word) noexcept;

   private:
    struct Sent : Completion {
      std::atomic<uint32_t>* under_way = nullptr;
    };
    static void end(Completion& completion, Status status) noexcept;

    WordWriter& writer_;
    Sent sent_[2][BarrierRdmaState::kRounds];
  };
  // The node that receives a round's word.
  struct Target {
    Rank rank = 0;
    uint64_t states[kBarriers] = {};
    std::vector<std::byte> key;
  };

  Status map_memory(size_t bytes) noexcept;
  Status register_memory(size_t bytes) noexcept;
  Status publish_memory(size_t bytes) noexcept;
  Status make_late_writers() noexcept;
  size_t state_offset(uint32_t which) const noexcept;

  Bootstrap& bootstrap_;
  Transport& transport_;
  PinnedOperations& pinned_;
  std::byte* memory_ = nullptr;
  size_t bytes_ = 0;
  uint32_t ranks_here_ = 1;
  bool reads_words_ = false;  // the adapter reads words that leave in memory_
  bool is_plain_ = false;     // words leave with their requests, at once
  std::unique_ptr<Registrar> registrar_;
  std::vector<std::byte> key_;  // for memory_; empty on ranks that need none
  std::vector<Target> targets_;
  WordWriter writers_[kBarriers];
  std::unique_ptr<LateWordWriter> late_writers_[kBarriers];  // null: words are posted at once
};

}  // namespace hydrant
