// The barriers and small reductions of a simulated job: each rank has its own, over words and lines in memory
// or over messages, as its adapter demands. No rank leaves a barrier before all have entered it; puts that
// were complete before are seen behind it; each reduction has the contribution of each rank once.
//
// The job ends when a rank has lost another one: what ranks still wait for then ends with that error.
#pragma once

#include "extended/barrier/barrier_messages.hpp"
#include "extended/barrier/barrier_rdma_memory.hpp"
#include "extended/collective/mailbox/mailbox_memory.hpp"
#include "extended/collective/mailbox/mailbox_operations.hpp"
#include "extended/message/send_failures.hpp"
#include "tests/simulation/job_world.hpp"

#include <array>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace hydrant::simulation {

class JobCollectives {
 public:
  // Sends a message whose delivery calls `then`. False: retry later.
  using Send = std::function<bool(Rank from, Rank to, std::function<void()> then)>;

  JobCollectives(JobWorld& world, Send send) : world_(world), send_(std::move(send)) {}
  JobCollectives(const JobCollectives&) = delete;
  JobCollectives& operator=(const JobCollectives&) = delete;

  // Makes those of all ranks, if the plan has any. `peer_failed` hears of peers that cannot be written to.
  void open(Transport::PeerFailedFn peer_failed);
  // Before the rank's transport ends.
  void close(Rank rank) { members_.erase(rank); }

  // kNotReady: it has to wait.
  Status start(Rank rank, const Action& action);
  // Goes on with what the rank has started.
  void advance(Rank rank);
  bool is_waiting(Rank rank) const;
  void end_job();
  // Unless the job has ended: another team can use the lines.
  void check_lines();

 private:
  using Values = std::array<uint64_t, MailboxLine::kMaxBytes / sizeof(uint64_t)>;
  struct Barrier {
    Rank entered = 0;
    BarrierName name;  // the join of the ranks' names
  };
  struct Reduction {
    uint32_t number = 0;
    uint32_t words = 0;
    Values result = {};
    MailboxOperations::Pending* pending = nullptr;
  };
  struct Member final : BarrierMessageSender, MailboxMessages {
    Member(JobCollectives& its_owner, Rank its_rank, Transport::PeerFailedFn peer_failed)
        : owner(its_owner), rank(its_rank), failures(peer_failed) {}
    bool send(Rank peer, const BarrierMessage& message) noexcept override;
    Status post(uint32_t edge, uint32_t line, const uint64_t* words,
                uint32_t count) noexcept override;
    bool send(uint32_t edge, uint32_t operation, uint32_t signature, const std::byte* data,
              size_t bytes) noexcept override;
    bool receive(uint32_t edge, uint32_t operation, uint32_t signature, std::byte* data,
                 size_t bytes) noexcept override;
    bool has(uint32_t edge, uint32_t operation, uint32_t signature) noexcept override;
    void refuse(uint32_t edge, uint32_t mine, uint32_t theirs) noexcept override;
    Rank peer_at(uint32_t edge) const;

    JobCollectives& owner;
    const Rank rank;
    SendFailures failures;
    std::unique_ptr<BarrierRdmaMemory> words;
    std::unique_ptr<BarrierEngine> barrier;
    MessageBarrier* by_messages = nullptr;  // `barrier`, if it has no words
    MailboxMemory lines;
    std::array<const MailboxPeer*, TeamMailboxes::kMaxEdges> peers = {};  // by edge
    std::map<std::pair<uint32_t, uint32_t>, std::vector<std::byte>>
        arrived;  // by edge and operation
    std::unique_ptr<MailboxOperations> operations;
    uint32_t entered = 0, left = 0;  // barriers
    uint32_t reduced = 0;            // reductions that have started
    bool has_lines = false;
    bool is_over = false;  // the job has ended for this rank
    std::list<Reduction> reductions;
  };

  bool has(Kind kind) const;
  bool open_barrier(Member& member, bool has_words, Transport::PeerFailedFn peer_failed);
  void open_reductions(Member& member);
  Status enter(Member& member, const Action& action);
  Status reduce(Member& member, const Action& action);
  void leave(Member& member, BarrierName all);
  void finish(Member& member, const Reduction& reduction);
  // Fails unless the status is kOk.
  bool check(Rank rank, const char* what, Status status);
  bool has_job_ended() const;

  JobWorld& world_;
  const Send send_;
  std::map<Rank, Member> members_;
  std::vector<Barrier> barriers_;
  uint64_t ends_at_ns_ = 0;  // 0: not yet
};

}  // namespace hydrant::simulation
