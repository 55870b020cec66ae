// Ranks on their nodes, and what they do over the adapters of placement_machine.hpp, as the library does it.
#pragma once

#include "tests/model/placement_machine.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace hydrant::model::placement {

inline std::string name_of(Class order) {
  static const char* const kNames[] = {"ordered", "unordered", "relaxed"};
  return kNames[static_cast<size_t>(order)];
}

// Which puts have a fence behind them.
enum class Fences : uint8_t {
  kProduct,    // PutFences: those to a node whose ranks use several adapters
  kNone,       // no put
  kOwnNode,    // puts of ranks that share their node
  kEarly,      // all, and the fence is posted with the put
  kReaderOwn,  // no put; instead a reader first reads by its own adapter
  kNoWait,     // no put, and what follows does not wait for the put
};
struct Layout {
  std::vector<uint8_t> node;  // of each rank
  bool has_own_adapters;      // each rank its own; else the ranks of a node share one
  uint8_t adapter_of(uint8_t rank) const { return has_own_adapters ? rank : node[rank]; }
  bool is_mixed() const {
    auto sorted = node;
    std::sort(sorted.begin(), sorted.end());
    return has_own_adapters && std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end();
  }
};
inline const Layout kLayouts[] = {{{0, 1}, true},     {{0, 1, 1}, false}, {{0, 1, 1}, true},
                                  {{0, 0, 1}, false}, {{0, 0, 1}, true},  {{0, 1, 2}, true}};

struct Hop {
  enum class Way : uint8_t { kMessage, kWord, kShared, kAtomic };
  Way way;
  uint8_t to, at;  // `at`: the rank whose adapter gets the word or has the atomic's word
};
using Chain = std::vector<Hop>;

class Scene {
 public:
  Scene(const Layout& layout, Class order, Fences fences, std::string name)
      : layout_(layout), order_(order), fences_(fences) {
    made_.name = std::move(name) + ", " + name_of(order);
    made_.adapters.assign(layout.node.size(), order);
    made_.programs.resize(layout.node.size());
  }
  Protocol& made() { return made_; }
  uint8_t pair(uint8_t from, uint8_t to) {
    const auto [found, is_new] = pairs_.try_emplace({from, to}, uint8_t{0});
    if (is_new) found->second = made_.pair(layout_.adapter_of(from), layout_.adapter_of(to));
    return found->second;
  }

  // PutFences (rdma/ibv/transfer/put_fences.cpp), and a wait for it.
  void put(uint8_t from, uint8_t to, uint8_t cell, uint8_t value) {
    const uint8_t write = made_.post(from, Request::Kind::kWrite, pair(from, to), cell, value);
    if (fences_ == Fences::kNoWait) return;
    const bool early = fences_ == Fences::kEarly;
    if (!early) made_.await(from, write);
    if (!early && !has_fences(from, to)) return;
    made_.await(from, made_.post(from, Request::Kind::kRead, pair(from, to)));
    made_.await(from, write);
  }
  void tell(uint8_t from, const Hop& hop, uint8_t cell) {
    switch (hop.way) {
      case Hop::Way::kMessage:
        made_.take(hop.to, made_.post(from, Request::Kind::kSend, pair(from, hop.to)));
        break;
      case Hop::Way::kWord:
        made_.post(from, Request::Kind::kWrite, pair(from, hop.at), cell, 1);
        made_.spin(hop.to, cell, 1);
        break;
      case Hop::Way::kShared:
        made_.store(from, cell, 1);
        made_.spin(hop.to, cell, 1);
        break;
      case Hop::Way::kAtomic: {
        made_.post(from, Request::Kind::kAdd, pair(from, hop.at), cell, 1);
        const uint8_t fetch = made_.post(hop.to, Request::Kind::kAdd, pair(hop.to, hop.at), cell);
        made_.await(hop.to, fetch);
        made_.add(hop.to, {.kind = Instruction::Kind::kStopUnless, .request = fetch, .low = 1});
        break;
      }
    }
  }
  void read(uint8_t reader, uint8_t owner, uint8_t cell, uint8_t value) {
    if (fences_ == Fences::kReaderOwn)
      made_.await(reader, made_.post(reader, Request::Kind::kRead, pair(reader, reader)));
    if (layout_.node[reader] == layout_.node[owner])
      return made_.expect(reader, cell, value, value);
    const uint8_t get = made_.post(reader, Request::Kind::kRead, pair(reader, owner), cell);
    made_.await(reader, get);
    made_.expect_read(reader, get, value);
  }

 private:
  bool has_fences(uint8_t from, uint8_t to) const {
    const uint8_t node = layout_.node[fences_ == Fences::kOwnNode ? from : to];
    return (fences_ == Fences::kOwnNode || fences_ == Fences::kProduct) &&
           layout_.has_own_adapters && order_ != Class::kRelaxed &&
           std::count(layout_.node.begin(), layout_.node.end(), node) > 1;
  }

  const Layout& layout_;
  const Class order_;
  const Fences fences_;
  Protocol made_;
  std::map<std::pair<uint8_t, uint8_t>, uint8_t> pairs_;
};

// ---- rails ----

struct Striped {
  Class order = Class::kOrdered;
  bool fences_share = true;   // Striping: a fence behind the share of the further rail
  bool fence_waits = true;    // ... when its write has completed, unless ordered
  bool message_waits = true;  // Messages::check_ready(): until the shares have ended
  bool fences_puts = true;    // PutFences, for what the first rail has written
};
inline constexpr uint8_t kShares[] = {0, 1};  // cells
// Rank 0 has adapters 0 and 2, rank 1 has 1 and 3, rank 2 has 4 and 5.
struct Rails {
  Rails(const Striped& how, const std::string& name)
      : how_(how), to_1{made.pair(0, 1), made.pair(2, 3)} {
    made.name = name + " over rails, " + name_of(how.order);
    made.adapters.assign(6, how.order);
    made.programs.resize(3);
  }
  // Without `completes` rank 0 goes on as soon as it may send a message.
  void put_striped(uint8_t value, bool completes) {
    const uint8_t own = made.post(0, Request::Kind::kWrite, to_1[0], kShares[0], value);
    const uint8_t share = made.post(0, Request::Kind::kWrite, to_1[1], kShares[1], value);
    if (!how_.message_waits) return;
    if (how_.fence_waits && how_.order != Class::kOrdered) made.await(0, share);
    if (how_.fences_share) made.await(0, made.post(0, Request::Kind::kRead, to_1[1]));
    made.await(0, share);
    if (!completes) return;
    made.await(0, own);
    fence_put();
  }
  void put_short(uint8_t cell, uint8_t value) {
    made.await(0, made.post(0, Request::Kind::kWrite, to_1[0], cell, value));
    fence_put();
  }
  void fence_put() {
    if (how_.fences_puts) made.await(0, made.post(0, Request::Kind::kRead, to_1[0]));
  }
  void tell(size_t rank) {
    made.take(rank, made.post(0, Request::Kind::kSend, rank == 1 ? to_1[0] : made.pair(0, 4)));
  }

  const Striped how_;
  Protocol made;
  uint8_t to_1[2];
};

}  // namespace hydrant::model::placement
