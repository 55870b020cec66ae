// An abstract machine for the placement of RDMA writes: ranks, adapters, and queue pairs, small enough to be
// explored. It has the rules of docs/verbs.md (Order), and shares no code with the library.
//
// request    posted, then executed by the target's adapter, then accepted (the adapter has all requests of
//            the pair up to it), then acknowledged (the initiator's adapter has written its completion)
// write      when it is executed it waits in the target's adapter, and is placed in memory later
// ordered    requests are executed in their order, once, and placed in the order in which they were executed
// unordered  a write may be executed before earlier requests of its pair have been accepted, and once more
//            until it has been acknowledged; reads and atomics may pass earlier writes of their pair
// relaxed    the same, and an adapter places its writes in any order
// all        a message is delivered, and a completion written, by an adapter that has placed what it has
//            executed. So is a read or an atomic executed, but for relaxed ones
//
// A pair has the class of that of its adapters which promises less. What one adapter does forces nothing of
// another one. A write is not executed again once a message behind it has been delivered, unless
// Protocol::repeats_behind_messages says so.
//
// Limits: a write is executed twice at most, Protocol::repeats of all are, and kWaiting writes at most wait
// in an adapter.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace hydrant::model::placement {

constexpr uint8_t byte(size_t value) { return static_cast<uint8_t>(value); }

enum class Class : uint8_t { kOrdered, kUnordered, kRelaxed };

struct Request {
  enum class Kind : uint8_t { kWrite, kRead, kAdd, kSend };
  Kind kind = Kind::kWrite;
  uint8_t pair = 0, cell = 0, value = 0;
  uint8_t place = 0;  // among those of its pair
};

// A program is a list of these. A rank goes on with the next one when it has done what the last one says.
struct Instruction {
  enum class Kind : uint8_t {
    kPost,
    kAwait,       // waits for the completion of a request, perhaps a neighbour's
    kTake,        // waits for the delivery of a message
    kSpin,        // waits until the cell has a value from `low` to `high`
    kStore,       // stores `low`
    kExpect,      // the cell has to have a value from `low` to `high`
    kExpectRead,  // the same for what a completed read or atomic has read
    kStopUnless,  // all programs end unless an atomic has read `low`
    kEnter,       // begins the barrier number `low`
    kLeave,       // all ranks that have such a barrier have to have begun it
    kUnpin,       // no write may reach the cell from now on
  };
  Kind kind = Kind::kPost;
  uint8_t request = 0, cell = 0, low = 0, high = 0;
};

struct Protocol {
  struct Pair {
    uint8_t from = 0, to = 0;  // adapters
  };
  std::string name;
  std::vector<Class> adapters;
  std::vector<Pair> pairs;
  std::vector<Request> requests;
  std::vector<std::vector<Instruction>> programs;       // by rank
  std::vector<std::pair<uint8_t, uint8_t>> at_the_end;  // cells and their values
  bool repeats_behind_messages = false;
  uint8_t repeats = 2;

  uint8_t pair(uint8_t from, uint8_t to);
  // Returns the request, which the rank posts next.
  uint8_t post(size_t rank, Request::Kind kind, uint8_t pair, uint8_t cell = 0, uint8_t value = 0);
  void add(size_t rank, Instruction instruction) { programs[rank].push_back(instruction); }
  void await(size_t rank, uint8_t request) {
    add(rank, {.kind = Instruction::Kind::kAwait, .request = request});
  }
  void take(size_t rank, uint8_t request) {
    add(rank, {.kind = Instruction::Kind::kTake, .request = request});
  }
  void spin(size_t rank, uint8_t cell, uint8_t value) {
    add(rank, {Instruction::Kind::kSpin, 0, cell, value, value});
  }
  void store(size_t rank, uint8_t cell, uint8_t value) {
    add(rank, {.kind = Instruction::Kind::kStore, .cell = cell, .low = value});
  }
  void expect(size_t rank, uint8_t cell, uint8_t low, uint8_t high) {
    add(rank, {.kind = Instruction::Kind::kExpect, .cell = cell, .low = low, .high = high});
  }
  void expect_read(size_t rank, uint8_t request, uint8_t value) {
    add(rank, {Instruction::Kind::kExpectRead, request, 0, value, value});
  }
  void unpin(size_t rank, uint8_t cell) {
    add(rank, {.kind = Instruction::Kind::kUnpin, .cell = cell});
  }
};

inline constexpr size_t kRanks = 4, kAdapters = 6, kPairs = 10, kRequests = 28, kCells = 16;
inline constexpr size_t kWaiting = 6;

// Bytes only and no padding: compared and hashed as such.
struct State {
  std::array<uint8_t, kRanks> next;  // instruction
  std::array<uint8_t, kPairs> posted, accepted, acknowledged;
  std::array<uint8_t, kRequests> executed;  // how often; above, in four bits, what it has read
  std::array<uint8_t, kCells> memory, unpinned;
  uint8_t repeats;
  std::array<uint8_t, kAdapters> waiting;
  std::array<std::array<uint8_t, kWaiting>, kAdapters>
      writes;  // cell, and below in four bits the value
  friend bool operator==(const State&, const State&) = default;
};

struct Findings {
  std::string violation;  // "" or the violation and the steps that lead to it
  size_t states = 0;
  bool is_complete = false;
};

class Explorer {
 public:
  explicit Explorer(const Protocol& protocol);
  // Breadth first, until the first violation, which therefore has the fewest steps.
  Findings explore(size_t max_states);
  // Walks with random choices, each to its end.
  Findings wander(uint64_t walks, uint64_t seed);

 private:
  struct Step {
    enum class Kind : uint8_t { kRank, kExecute, kAccept, kAcknowledge, kPlace };
    Kind kind;
    uint8_t who, what;
  };
  struct Hash {
    size_t operator()(const State& state) const noexcept;
  };

  std::vector<Step> steps_of(const State& s) const;
  void list_requests(const State& s, uint8_t pair, std::vector<Step>* steps) const;
  bool may_execute(const State& s, const Request& request) const;
  bool may_repeat(const State& s, const Request& request) const;
  bool can_acknowledge(const State& s, size_t pair) const;
  bool can_run(const State& s, const Instruction& next) const;
  State after(const State& s, const Step& step);
  void execute(State& s, const Request& request);
  void run(State& s, size_t rank);
  void settle(State& s);
  void check_end(const State& s);
  const Instruction* next_of(const State& s, size_t rank) const;
  Class class_of(uint8_t pair) const;
  size_t id_of(const Request& request) const {
    return static_cast<size_t>(&request - protocol_.requests.data());
  }
  std::string text(const Step& step) const;
  void wrong(std::string what) {
    if (wrong_.empty()) wrong_ = std::move(what);
  }

  const Protocol& protocol_;
  std::vector<std::vector<uint8_t>> by_pair_;  // requests in their order
  std::vector<uint8_t> awaited_;  // by pair: the number of requests up to the last awaited one
  std::string wrong_;
};

}  // namespace hydrant::model::placement
