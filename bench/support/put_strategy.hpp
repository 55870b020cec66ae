// Interface of the ways to put data into other ranks' memory over a RemoteCluster; firehose_bench compares
// them.
#pragma once

#include <hydrant/pin_cache.h>

#include "bench/support/bare_pins.hpp"
#include "bench/support/memory.hpp"
#include "bench/support/wire_world.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace hydrant::bench {

struct PutOp {
  uint32_t from, to;
  std::byte* at;  // at the target
  const std::byte* data;
  size_t len;
  // For the strategy.
  uint32_t slot;
  hydrant_pin_t pin;
};

// Memory of a rank that is the target of puts.
struct TargetMemory {
  uint32_t rank;
  std::byte* start;
  size_t len;
};

struct PutSetting {
  uint32_t ranks = 2;         // number of simulated ranks
  uint32_t job_ranks = 0;     // job size as seen by the protocol, if larger
  uint32_t window = 1;        // outstanding puts per rank
  size_t largest = 8;         // largest put in bytes
  double wire_rate = 0.0;     // bytes per ns; 0: the speed of the copy
  uint64_t budget_bytes = 0;  // pinned bytes allowed per rank
  uint32_t base_percent = 0;  // FIREHOSE_REMOTE_BASE; 0: the default
  std::vector<TargetMemory> memory;
};

struct PutCounts {
  uint64_t messages = 0;       // not counting the puts themselves
  uint64_t registrations = 0;  // at the targets
  // firehose: puts without a message; rendezvous: requests for memory that was registered.
  uint64_t hits = 0;
  uint64_t bounced = 0;  // copied through buffers because nothing could be pinned
};

class PutStrategy : private RemoteCluster::Ranks {
 public:
  explicit PutStrategy(const PutSetting& setting);
  ~PutStrategy() override = default;
  PutStrategy(const PutStrategy&) = delete;
  PutStrategy& operator=(const PutStrategy&) = delete;

  void set_delay(uint64_t ns) { world_.set_delay(ns); }
  // Each rank does its puts in order, with as many outstanding as the window allows; then all messages are
  // delivered. Returns the nanoseconds until the last put was complete.
  double run(std::vector<std::vector<PutOp>>& programs);
  // "" if no failure occurred so far.
  const std::string& failure() const { return failure_; }
  virtual PutCounts counts() const = 0;

 protected:
  // Message kinds of derived classes start here; lower ones belong to this class.
  static constexpr uint32_t kOwnKinds = 16;

  // Starts a put, in the initiator's time; complete() ends it.
  virtual void start(PutOp& op) noexcept = 0;
  virtual void on_own_message(uint32_t /*rank*/, uint32_t /*from*/, uint32_t /*kind*/,
                              const std::byte* /*bytes*/, size_t /*len*/) noexcept {}
  // Called when a posted put is done; the default completes the operation.
  virtual void on_put(PutOp& op) noexcept { complete(op); }
  virtual void poll(uint32_t /*rank*/) noexcept {}

  RemoteCluster& world() { return world_; }
  const RemoteCluster& world() const { return world_; }
  const PutSetting& setting() const { return setting_; }
  void post(PutOp& op) { world_.post(op.to, {op.at, op.data, op.len, &op, false}); }
  // Copies through buffers on both sides; a short put travels inside the message.
  void bounce(PutOp& op) noexcept;
  void complete(PutOp& op) noexcept;
  void fail(const char* what, const char* why);
  PutCounts base_counts() const;
  hydrant_range_t bounce_buffers(int side) const;

 private:
  struct Cursor {
    size_t next = 0, under_way = 0;
    std::vector<uint32_t> free_slots;
  };
  static constexpr uint32_t kShortBounce = kOwnKinds - 1, kBounced = kOwnKinds - 2;

  void on_message(uint32_t rank, uint32_t from, uint32_t kind, const std::byte* bytes,
                  size_t len) noexcept override;
  void on_put_done(void* context) noexcept override { on_put(*static_cast<PutOp*>(context)); }
  void on_put_landed(uint32_t rank, uint32_t from, void* context) noexcept override;
  size_t buffer_of(const PutOp& op) const {
    return (size_t{op.from} * setting_.window + op.slot) * setting_.largest;
  }
  bool wait_idly(uint32_t* idle_rounds);

  const PutSetting setting_;
  RemoteCluster world_;
  std::vector<Cursor> cursors_;
  Memory sources_, landings_;
  uint64_t bounced_ = 0, completed_ = 0;
  std::string failure_;
};

enum class PutWay {
  kFirehose,
  kRendezvousUnpin,  // the target registers for each put
  kRendezvousKeep,   // the target caches registrations, and gets a request for each put
  kBounce,
  kPinEverything,  // once, without a budget
};
const char* put_way_name(PutWay way);
// Ways with a cache; the others have no hits.
constexpr bool asks_a_cache(PutWay way) {
  return way == PutWay::kFirehose || way == PutWay::kRendezvousKeep;
}
std::unique_ptr<PutStrategy> make_put_strategy(PutWay way, const PutSetting& setting);
std::unique_ptr<PutStrategy> make_firehose_strategy(const PutSetting& setting);

// Options of the domain that a rank's memory is in, for all strategies.
hydrant_domain_options_t put_domain_options(uint64_t budget_bytes);

}  // namespace hydrant::bench
