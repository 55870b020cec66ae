// A job that a seed draws: its ranks, their adapters, what each rank does, and which faults come. A part of
// the plan can be left out, so that a failing job can be made smaller.
#pragma once

#include "rdma/ibv/settings/ibv_options.hpp"
#include "tests/fakes/fake_ibverbs.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

namespace hydrant::simulation {

// Pieces of memory of a rank that one other rank puts to, each with data of one put at a time.
inline constexpr uint32_t kSlots = 4;

enum class Kind : uint8_t {
  kMessage,
  kPut,
  kGet,  // of what any rank has put there
  kAtomic,
  kCompute,  // the rank does not poll
  kForget,   // the rank gives memory up that a peer puts to: remote pins of it are recalled
  // Of all ranks:
  kBarrier,
  kReduce,
  // Faults, without harm to any connection:
  kLoseDatagrams,
  kStall,  // an adapter sends nothing for less than the patience
  kLoseAcknowledgement,
  kRefuseResource,  // a call that is tried again fails once, or for some milliseconds
  kJump,            // the clock goes forward at once
  // Faults that may disconnect peers:
  kRefuse,     // a call fails once
  kFailWork,   // a request fails, or a read, such as the fence of a put
  kBreakPair,  // a queue pair fails
  kCut,        // as kStall, for longer than the patience
  kRemove,     // an adapter is removed
  kDie,        // a rank dies
  kEnd,        // not a kind
};
const char* name_of(Kind kind);
inline bool is_fault(Kind kind) { return kind >= Kind::kLoseDatagrams; }
inline bool is_of_all(Kind kind) { return kind == Kind::kBarrier || kind == Kind::kReduce; }

struct Action {
  Kind kind = Kind::kMessage;
  Rank rank = 0;
  Rank peer = 0;
  uint64_t at_ns = 0;  // not earlier
  Lane lane = Lane::kRequest;
  uint32_t slot = 0;
  uint32_t bytes = 0;    // of a message's head; words of a reduction
  uint32_t payload = 0;  // of its cell
  bool has_cell = false;
  bool has_reply = false;
  bool is_pinned = false;  // needs remote pins: a put or get by the key of one, or kForget
  Rank origin = 0;         // a get reads what this rank has put
  uint64_t amount = 0;     // of an atomic; how long or how many, of compute and faults
  uint32_t choice = 0;  // which device, call or queue pair, modulo their number; names of barriers
};

struct JobPlan {
  uint64_t seed = 0;
  Rank ranks = 2;
  uint32_t rails = 1;
  fake_verbs::Device device;
  struct Order {
    const char* setting = nullptr;  // HYDRANT_IBV_ORDER; null: of the vendor
    fake_verbs::WriteOrder writes = fake_verbs::WriteOrder::kAtOnce;
    bool is_relaxed() const { return writes == fake_verbs::WriteOrder::kRelaxed; }
  };
  std::vector<Order> orders;  // by rank
  bool holds_writes = false;  // until something shows them
  bool is_burst = false;      // messages, above all
  bool is_calm = false;       // no fault may disconnect a peer
  ibv::Options options;
  std::array<uint32_t, kSlots> slot_bytes = {};
  struct Pins {
    uint64_t budget_bytes = 0;  // the most that a rank pins for peers
    uint32_t base_percent = 0;
    uint32_t flags = 0;
    size_t merge_bytes = 0;
  } pins;
  std::vector<Action> actions;
  std::vector<bool> kept;  // by action; the others are left out

  // Leaves out the others.
  void keep_ranks(Rank below);
  // `SEED`, `SEED:1,4-7`: the actions that are kept, or `SEED/RANKS:1,4-7`.
  std::string text() const;
  bool is_relaxed(std::initializer_list<Rank> any) const;
  uint32_t count() const;  // actions that are kept
  Rank taking_part() const;
};

JobPlan plan_job(uint64_t seed);
// Reads what text() wrote.
JobPlan read_plan(const std::string& text);

}  // namespace hydrant::simulation
