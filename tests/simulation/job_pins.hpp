// The remote pins of a simulated job: each rank has a real end of that protocol, over messages and a domain
// of its own. The end asks peers for pins and keeps the keys that they grant. It pins memory for peers within
// a budget that is too small for all of them: some are declined, or have to release what they keep.
//
// Memory is not quiet while a peer holds a recalled pin of it, and at the end all pins have come back. The
// stand-in notices the use of a key whose memory is not pinned any more.
#pragma once

#include <hydrant/remote_pin.h>

#include "firehose/base/memory_range.hpp"
#include "tests/simulation/job_world.hpp"

#include <cstddef>
#include <functional>
#include <map>
#include <utility>
#include <vector>

namespace hydrant::simulation {

class JobPins {
 public:
  // Sends a message whose delivery calls `then`. False: retry later, unless the peer is lost.
  using Send = std::function<bool(Rank from, Rank to, Lane lane, std::function<void()> then)>;

  JobPins(JobWorld& world, Send send) : world_(world), send_(std::move(send)) {}
  JobPins(const JobPins&) = delete;
  JobPins& operator=(const JobPins&) = delete;

  // Makes the ends of all ranks, if the plan needs them.
  void open();
  // Before the rank's transport and memory end.
  void close(Rank rank);

  // kOk: `pin` is held until release(). kNotReady: it has to wait. kRefused: the peer does not grant it.
  Status take(size_t index, MemoryRange range, hydrant_pin_t* pin);
  void release(size_t index);
  // The rank announces that memory which the peer puts to is released.
  void forget(Rank rank, MemoryRange range);
  // Polls the rank's end.
  void advance(Rank rank);

  // All ranks give back what they keep.
  void give_back();
  // No recall is under way, and after give_back() no pin is left.
  bool is_waiting(Rank rank) const;

 private:
  struct End {
    JobPins* owner = nullptr;
    Rank rank = 0;
    hydrant_domain_t domain = 0;
    hydrant_remote_t remote = 0;
    std::vector<bool> has_lost;  // by peer
    bool is_recalling = false;   // until its memory is quiet
  };
  // The pin of an action.
  struct Wait {
    JobPins* owner = nullptr;
    size_t index = 0;
    enum class State : uint8_t { kNew, kAsked, kHeld, kRefused } state = State::kNew;
    hydrant_pin_t pin = {};
    uint32_t declined = 0;  // times
    uint64_t at_ns = 0;     // when it was asked, or not earlier
    bool is_recalled = false;
  };

  static int send(void* user, uint32_t peer, uint32_t lane, void* reply_to, const void* message,
                  size_t bytes);
  static void hear(void* context, hydrant_pin_t pin, const hydrant_remote_outcome_t* outcome);
  bool open(Rank rank);
  void ask(Wait& wait, MemoryRange range);
  void note_answer(Wait& wait, int status, hydrant_pin_t pin);
  void deliver(Rank from, Rank to, Lane lane, const std::vector<std::byte>& message);
  hydrant_remote_stats_t stats_of(const End& end) const;
  void lose_peer(End& end, Rank peer);
  void check_quiet(End& end);

  JobWorld& world_;
  const Send send_;
  std::map<Rank, End> ends_;
  std::map<size_t, Wait> waits_;  // by action
  bool gives_back_ = false;
};

}  // namespace hydrant::simulation
