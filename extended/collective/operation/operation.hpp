// A collective operation under way on this rank: executes its schedule, as far as messages and room allow.
//
// Small data are sent in messages; the receiver copies them. For more than `eager_bytes` the sender
// announces its memory, from which the receiver gets the data: through mapped memory, the kernel, or a
// firehose, as for any get. The sender then waits, at its next step that overwrites these data or at the
// end, until they have been read.
//
// Threads: steps of one operation are serialised by Operations. Nothing here waits or runs handlers.
#pragma once

#include "extended/collective/mailbox/team_mailboxes.hpp"
#include "extended/collective/operation/inbox.hpp"
#include "extended/collective/steps/reduction.hpp"
#include "extended/collective/steps/schedule.hpp"
#include "extended/collective/steps/schedules.hpp"
#include "extended/event/completion_counter.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace hydrant {

// A team as operations see it.
struct TeamMembers {
  uint64_t id = 0;  // the same on all members
  Rank rank = 0;
  Rank size = 1;
  const Rank* jobranks = nullptr;  // null: member i is rank first + i * stride of the job
  Rank first = 0;
  Rank stride = 1;
  uint32_t node_bits = 0;  // as Member::node_bits

  Member member() const noexcept { return {.rank = rank, .size = size, .node_bits = node_bits}; }
  Rank jobrank(Rank member) const noexcept {
    return jobranks != nullptr ? jobranks[member] : first + member * stride;
  }
};

// The arguments of a call that all members have to agree on, for messages about those that do not.
enum class CollectiveKind : uint8_t {
  kBarrier = 1,
  kBroadcast,
  kReduceToOne,
  kReduceToAll,
  kGatherAll,
  kGather,
  kScatter,
  kExchange,
  kSplit,
  kCreate,
};
const char* collective_name(uint32_t signature) noexcept;
// 8 bits of kind and 24 of the arguments.
uint32_t signature_of(CollectiveKind kind, uint64_t argument1 = 0, uint64_t argument2 = 0,
                      uint64_t argument3 = 0) noexcept;

// Ends the job with a text: a member makes another call, or passes other arguments.
[[noreturn]] void refuse_disagreement(uint32_t mine, uint32_t theirs, Rank jobrank) noexcept;

struct OperationArguments {
  uint32_t signature = 0;
  const void* source = nullptr;
  void* dest = nullptr;
  Reduction reduction = {};
  const TeamMailboxes* mailboxes =
      nullptr;  // of the team, which other operations use; null: it has none
};

class CollectiveOperation {
 public:
  // Errors: kResource.
  static std::unique_ptr<CollectiveOperation> make(const TeamMembers& team, uint32_t number,
                                                   const OperationArguments& arguments,
                                                   Schedule schedule) noexcept;

  // Does what is possible now. True: complete.
  bool advance() noexcept;
  bool is_done() const noexcept { return done_; }
  uint64_t team_id() const noexcept { return team_.id; }
  // True if advance() would do something.
  bool is_ready() noexcept;

  void log_pending() const;

  std::unique_ptr<CollectiveOperation> next;  // list of Operations

 private:
  // Data that a peer has not read yet.
  struct Announced {
    Rank peer = 0;  // rank of the job
    uint32_t tag = 0;
    const std::byte* data = nullptr;
    size_t bytes = 0;
    bool is_read = true;
  };

  CollectiveOperation(const TeamMembers& team, uint32_t number, const OperationArguments& arguments,
                      Schedule schedule) noexcept;

  std::byte* at(Place place) const noexcept {
    return areas_[static_cast<uint32_t>(place.area)] + place.offset;
  }
  TransferKey key_of(uint32_t tag) const noexcept {
    return {.team = team_.id, .operation = number_, .tag = tag};
  }
  // True: the step is over.
  bool run(const Step& step) noexcept;
  bool send(const Step& step) noexcept;
  bool receive(const Step& step) noexcept;
  bool get_announced(const Step& step) noexcept;
  void check_signature(const Arrival& arrival) const noexcept;
  // Ends the job if the awaited peer has begun an operation in the mailboxes in its place.
  void check_mailboxes(const Step& step) const noexcept;
  // Takes the notices of readers. False: data in the range are not read yet.
  bool may_overwrite(const std::byte* to, size_t bytes) noexcept;

  const TeamMembers team_;
  const uint32_t number_;
  const OperationArguments arguments_;
  const Schedule schedule_;
  std::byte* areas_[kAreas] = {};
  std::unique_ptr<std::byte[]> scratch_;
  std::unique_ptr<Announced[]> announced_;
  size_t announced_count_ = 0;

  size_t current_ = 0;      // index of the step
  size_t progress_ = 0;     // bytes of the step that are done
  uintptr_t address_ = 0;   // of the sender's data, once announced
  CompletionCounter gets_;  // of the current step
  bool done_ = false;
};

// Data of this many bytes and less are sent in messages.
size_t eager_bytes() noexcept;

}  // namespace hydrant
