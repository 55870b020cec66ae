// Runs what the library builds on RDMA writes on a machine that places them late (placement_machine.hpp):
// every interleaving of two and three ranks with at most four operations each, and larger ones by chance.
// Each protocol is as the source does it that is named with it. A mutant leaves one rule out, and has to be
// found.
#include "tests/model/placement_scenes.hpp"
#include "tests/support/test_seed.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace hydrant::model::placement {
namespace {

using Do = Instruction::Kind;
using Kind = Request::Kind;

constexpr Class kClasses[] = {Class::kOrdered, Class::kUnordered, Class::kRelaxed};
constexpr size_t kMostStates = 20'000'000;

bool is_long() { return std::getenv("HYDRANT_TEST_LONG") != nullptr; }
Findings explore(const Protocol& protocol) { return Explorer(protocol).explore(kMostStates); }
// Fails unless all of it was explored and holds. Returns the number of states.
size_t expect_holds(const Protocol& protocol) {
  const Findings findings = explore(protocol);
  EXPECT_EQ(findings.violation, "");
  EXPECT_TRUE(findings.is_complete) << protocol.name;
  return findings.states;
}
void expect_all(const std::vector<Protocol>& protocols) {
  for (const Protocol& each : protocols)
    std::printf("%s: %zu states\n", each.name.c_str(), expect_holds(each));
}

// ---- a put, and the ways to learn of it ----

// All hops from a rank: messages, words of barriers and mailboxes, stores to shared memory, and atomics with
// GEX_FLAG_AD_REL (extended/atomics/adapter_atomics.cpp).
std::vector<Hop> hops_from(const Layout& layout, Class order, uint8_t from) {
  std::vector<Hop> hops;
  const auto ranks = byte(layout.node.size());
  for (uint8_t to = 0; to < ranks; ++to) {
    if (to == from) continue;
    hops.push_back({Hop::Way::kMessage, to, to});
    if (layout.node[to] == layout.node[from]) hops.push_back({Hop::Way::kShared, to, to});
    for (uint8_t at = 0; at < ranks; ++at) {
      hops.push_back({Hop::Way::kAtomic, to, at});
      const bool is_word = layout.node[at] == layout.node[to] && at != from;
      if (is_word && order != Class::kRelaxed) hops.push_back({Hop::Way::kWord, to, at});
    }
  }
  return hops;
}
std::string text(const Layout& layout, uint8_t owner, const Chain& chain) {
  static const char* const kWays[] = {"message", "word", "store", "atomic"};
  std::string out = layout.has_own_adapters ? "an adapter each, nodes" : "shared adapters, nodes";
  for (const uint8_t node : layout.node) out += " " + std::to_string(node);
  out += ": put to " + std::to_string(owner);
  for (const auto& [way, to, at] : chain)
    out +=
        std::string(", ") + kWays[size_t(way)] + " to " + char('0' + to) + " at " + char('0' + at);
  return out;
}
// A put, another one to the same place when it has completed, and a rank that learns of that. Over relaxed
// adapters one put, as the first could be seen later.
Protocol told(const Layout& layout, Class order, Fences fences, uint8_t owner, const Chain& chain) {
  Scene scene(layout, order, fences, text(layout, owner, chain));
  if (order != Class::kRelaxed) scene.put(0, owner, 0, 1);
  scene.put(0, owner, 0, 2);
  uint8_t at = 0, cell = 1;
  for (const Hop& hop : chain) {
    scene.tell(at, hop, cell++);
    at = hop.to;
  }
  scene.read(at, owner, 0, 2);
  return scene.made();
}
// docs/verbs.md, the table. Over relaxed adapters ranks of the owner's node see a completed put when the
// owner's adapter has delivered a message that was sent later.
bool is_promised(const Layout& layout, Class order, uint8_t owner, const Chain& chain) {
  if (order != Class::kRelaxed) return true;
  return !chain.empty() && layout.node[chain.back().to] == layout.node[owner] &&
         std::any_of(chain.begin(), chain.end(), [&](const Hop& hop) {
           return hop.way == Hop::Way::kMessage &&
                  layout.adapter_of(hop.to) == layout.adapter_of(owner);
         });
}
template <typename F>
void for_each_chain(Class order, F&& f) {
  for (const Layout& layout : kLayouts) {
    for (uint8_t owner = 1; owner < layout.node.size(); ++owner) {
      if (layout.node[owner] == layout.node[0]) continue;
      f(layout, owner, {});
      for (const Hop& first : hops_from(layout, order, 0)) {
        f(layout, owner, {first});
        for (const Hop& next : hops_from(layout, order, first.to)) f(layout, owner, {first, next});
      }
    }
  }
}
Findings find_in_chains(Class order, Fences fences, std::optional<Hop::Way> way = {}) {
  Findings sum;
  for_each_chain(order, [&](const Layout& layout, uint8_t owner, const Chain& chain) {
    if (!sum.violation.empty() || !layout.is_mixed() ||
        (way && (chain.empty() || chain[0].way != *way)))
      return;
    const Findings one = explore(told(layout, order, fences, owner, chain));
    sum.states += one.states;
    sum.violation = one.violation;
  });
  return sum;
}

// ---- barriers and mailboxes ----

struct Words {
  uint8_t nodes = 2, epochs = 4;
  Class order = Class::kOrdered;
  bool waits = true;  // for the word before in the same place (LateWordWriter), unless ordered
  bool has_puts = false;
};

// RdmaBarrier (extended/barrier/barrier_rdma.cpp) with the writers of barrier_rdma_memory.cpp; each rank is a
// node. With puts, each rank puts its epoch to the next one before it begins.
Protocol barrier(const Words& words) {
  Layout layout{{}, true};
  for (uint8_t n = 0; n < words.nodes; ++n) layout.node.push_back(n);
  Scene scene(layout, words.order, Fences::kProduct,
              "barrier of " + std::to_string(words.nodes) + ", " + std::to_string(words.epochs));
  Protocol& made = scene.made();
  const uint8_t rounds = words.nodes > 2 ? 2 : 1;
  const auto cell = [&](size_t node, size_t epoch, size_t round) {
    return byte((node * 2 + epoch % 2) * rounds + round);
  };
  constexpr uint8_t kPuts = 12;
  for (uint8_t rank = 0; rank < words.nodes; ++rank) {
    std::vector<std::vector<uint8_t>> sent(words.epochs + size_t{1}, std::vector<uint8_t>(rounds));
    for (uint8_t epoch = 1; epoch <= words.epochs; ++epoch) {
      const auto after = byte((rank + size_t{1}) % words.nodes);
      if (words.has_puts) scene.put(rank, after, byte(size_t{kPuts} + after), epoch);
      made.add(rank, {.kind = Do::kEnter, .low = epoch});
      for (uint8_t round = 0; round < rounds; ++round) {
        const auto to = byte((rank + (size_t{1} << round)) % words.nodes);
        if (words.waits && words.order != Class::kOrdered && epoch > 2)
          made.await(rank, sent[epoch - 2u][round]);
        sent[epoch][round] =
            made.post(rank, Kind::kWrite, scene.pair(rank, to), cell(to, epoch, round), epoch);
        made.spin(rank, cell(rank, epoch, round), epoch);
      }
      made.add(rank, {.kind = Do::kLeave, .low = epoch});
      // The rank before may have put for the next epoch.
      if (words.has_puts) made.expect(rank, byte(size_t{kPuts} + rank), epoch, byte(epoch + 1u));
    }
  }
  return made;
}

// A barrier in which ranks 0 and 2 share a node, with an adapter each. They meet in shared memory. Rank 0
// posts the words of epochs 1 and 2, and rank 2 those of 3 and 4. Rank 2 puts to rank 1 before each barrier.
Protocol barrier_of_two_posters(const Words& words) {
  const Layout layout{{0, 1, 0}, true};
  Scene scene(layout, words.order, Fences::kProduct, "barrier with two posters");
  Protocol& made = scene.made();
  constexpr uint8_t kPut = 12;
  uint8_t sent[2][5] = {};
  const auto send = [&](uint8_t rank, uint8_t node, uint8_t to, uint8_t epoch) {
    if (words.waits && words.order != Class::kOrdered && epoch > 2)
      made.await(rank, sent[node][epoch - 2]);
    sent[node][epoch] = made.post(rank, Kind::kWrite, scene.pair(rank, to),
                                  byte((1u - node) * 2 + epoch % 2), epoch);
    made.spin(rank, byte(node * 2u + epoch % 2), epoch);
  };
  for (uint8_t epoch = 1; epoch <= words.epochs; ++epoch) {
    const uint8_t poster = epoch <= 2 ? 0 : 2, other = 2 - poster;
    const auto arrival = byte(4u + epoch % 2), result = byte(6u + epoch % 2);
    if (words.has_puts) scene.put(2, 1, kPut, epoch);
    for (uint8_t rank = 0; rank < 3; ++rank) made.add(rank, {.kind = Do::kEnter, .low = epoch});
    made.store(other, arrival, epoch);
    made.spin(poster, arrival, epoch);
    send(poster, 0, 1, epoch);
    send(1, 1, 0, epoch);
    made.store(poster, result, epoch);
    made.spin(other, result, epoch);
    for (uint8_t rank = 0; rank < 3; ++rank) made.add(rank, {.kind = Do::kLeave, .low = epoch});
    if (words.has_puts) made.expect(1, kPut, epoch, byte(epoch + 1u));
  }
  return made;
}

// TeamMailboxes (extended/collective/mailbox/team_mailboxes.hpp) of two members, with two lines, not 32,
// and a window of one operation. A line with another number would be taken for another call, and end the job.
Protocol mailboxes(Class order, uint8_t operations, bool waits) {
  const Layout layout{{0, 1}, true};
  Scene scene(layout, order, Fences::kProduct, "mailboxes");
  Protocol& made = scene.made();
  for (uint8_t rank = 0; rank < 2; ++rank) {
    std::vector<uint8_t> sent(operations + size_t{1});
    for (uint8_t number = 1; number <= operations; ++number) {
      const auto line = [number](size_t owner) { return byte(owner * 2 + number % 2); };
      if (waits && number > 2) made.await(rank, sent[number - 2u]);
      sent[number] =
          made.post(rank, Kind::kWrite, scene.pair(rank, byte(1u - rank)), line(1u - rank), number);
      made.add(rank, {Do::kSpin, 0, line(rank), 1, 15});
      made.expect(rank, line(rank), number, number);
      made.store(rank, line(rank), 0);
    }
  }
  return made;
}

// ---- rails, remote pins and put-backs ----

// A put by the first rail, and then a long put whose share on the second writes the same place
// (rdma/ibv/transfer/striping.cpp), and a message behind it.
Protocol long_put(const Striped& how) {
  Rails rails(how, "long put");
  rails.put_short(1, 1);
  rails.put_striped(2, false);
  rails.tell(1);
  for (const uint8_t cell : kShares) rails.made.expect(1, cell, 2, 2);
  return rails.made;
}
// A put by the first rail, and then a long get of a rank that has heard of it, which reads by the second.
Protocol long_get(const Striped& how) {
  Rails rails(how, "long get");
  rails.put_short(0, 1);
  rails.tell(2);
  const uint8_t get = rails.made.post(2, Kind::kRead, rails.made.pair(5, 3), 0);
  rails.made.await(2, get);
  rails.made.expect_read(2, get, 1);
  return rails.made;
}
// A firehose is returned when the operations that hold it have completed, and its memory is deregistered when
// the message arrives (firehose/remote/initiator/peer_releases.cpp).
Protocol recall(const Striped& how) {
  Rails rails(how, "recall");
  rails.put_striped(1, true);
  rails.tell(1);
  for (const uint8_t cell : kShares) rails.made.unpin(1, cell);
  return rails.made;
}

// put_back() (extended/rma/pinned/rma_pinned_target.cpp): rank 1 answers two gets of rank 0 by a put and a
// message behind it, without waiting. Rank 0 tells its neighbour, which looks, and then writes to the memory
// itself, or deregisters it. The payload of a Long and its message take the same way
// (extended/rma/long_payload.cpp).
Protocol put_back(Class order, bool repeats, bool unpins) {
  const Layout layout{{0, 1, 0}, true};
  Scene scene(layout, order, Fences::kProduct, "put-back");
  Protocol& made = scene.made();
  made.repeats_behind_messages = repeats;
  const uint8_t ask = scene.pair(0, 1), answer = scene.pair(1, 0);
  for (const uint8_t value : {uint8_t{1}, uint8_t{3}}) {
    if (unpins && value != 1) break;
    made.take(1, made.post(0, Kind::kSend, ask));
    made.post(1, Kind::kWrite, answer, 0, value);
    made.take(0, made.post(1, Kind::kSend, answer));
    made.expect(0, 0, value, value);
    made.store(0, value, 1);
    made.spin(2, value, 1);
    made.expect(2, 0, value, 15);
  }
  if (unpins) {
    made.unpin(0, 0);
  } else {
    made.store(0, 0, 4);
    made.at_the_end = {{0, 4}};
  }
  return made;
}

// ---- what holds ----

TEST(PlacementProtocol, WhoeverLearnsOfACompletedPutSeesIt) {
  size_t states = 0, chains = 0, broken = 0;
  for (const Class order : kClasses) {
    for_each_chain(order, [&](const Layout& layout, uint8_t owner, const Chain& chain) {
      const Protocol protocol = told(layout, order, Fences::kProduct, owner, chain);
      ++chains;
      if (is_promised(layout, order, owner, chain)) {
        states += expect_holds(protocol);
      } else {
        broken += !explore(protocol).violation.empty();
      }
    });
  }
  EXPECT_GT(broken, 0u) << "relaxed adapters promise less";
  std::printf("%zu chains, %zu states; %zu of relaxed adapters promise nothing\n", chains, states,
              broken);
}

TEST(PlacementProtocol, NoBarrierIsLeftEarlyOrLost) {
  for (const Class order : {Class::kOrdered, Class::kUnordered}) {
    expect_all({barrier({2, 4, order}), barrier({2, 2, order, true, true}), barrier({3, 2, order}),
                barrier_of_two_posters({2, 3, order, true, true})});
    if (is_long()) expect_all({barrier({2, 3, order, true, true})});
  }
}

TEST(PlacementProtocol, NoLineIsReadTwice) { expect_all({mailboxes(Class::kOrdered, 4, false)}); }

TEST(PlacementProtocol, RailsShowPutsInTheirOrder) {
  for (const Class order : {Class::kOrdered, Class::kUnordered})
    expect_all({long_put({.order = order}), long_get({.order = order}), recall({.order = order})});
}

TEST(PlacementProtocol, PutBacksAreThereAndNotRepeated) {
  for (const Class order : kClasses)
    expect_all({put_back(order, false, false), put_back(order, false, true)});
}

TEST(PlacementProtocol, LargerOnesHoldByChance) {
  const uint64_t seed = ::hydrant::testing::test_seed();
  const uint64_t walks = is_long() ? 5000 : 200;
  for (const Class order : {Class::kOrdered, Class::kUnordered}) {
    for (const Protocol& protocol :
         {barrier({2, 7, order, true, true}), barrier({3, 3, order, true, true}),
          barrier({4, 3, order}), barrier_of_two_posters({2, 4, order, true, true})})
      EXPECT_EQ(Explorer(protocol).wander(walks, seed).violation, "");
  }
  EXPECT_EQ(Explorer(mailboxes(Class::kOrdered, 12, false)).wander(walks, seed).violation, "");
}

// ---- what is needed ----

struct Mutant {
  const char* name;
  Findings (*find)();
};

const Mutant kMutants[] = {
    {"NoFenceBetweenAdapters", [] { return find_in_chains(Class::kOrdered, Fences::kNone); }},
    {"NoFenceOfARankAloneOnItsNode",
     [] { return find_in_chains(Class::kOrdered, Fences::kOwnNode); }},
    {"FenceBeforeCompletion", [] { return find_in_chains(Class::kUnordered, Fences::kEarly); }},
    {"ReadByTheReadersAdapter", [] { return find_in_chains(Class::kOrdered, Fences::kReaderOwn); }},
    {"AtomicBeforeCompletion",
     [] { return find_in_chains(Class::kOrdered, Fences::kNoWait, Hop::Way::kAtomic); }},
    {"BarrierWordBeforeCompletion",
     [] {
       return explore(barrier({2, 4, Class::kUnordered, false}));
     }},
    {"WordOfAnotherPosterBeforeCompletion",
     [] {
       return explore(barrier_of_two_posters({2, 4, Class::kUnordered, false}));
     }},
    {"MailboxesUnordered", [] { return explore(mailboxes(Class::kUnordered, 4, false)); }},
    {"MailboxesUnorderedAfterCompletion",
     [] { return explore(mailboxes(Class::kUnordered, 4, true)); }},
    {"NoFenceOfAShare", [] { return explore(long_put({.fences_share = false})); }},
    {"FenceOfAShareBeforeCompletion",
     [] { return explore(long_put({.order = Class::kUnordered, .fence_waits = false})); }},
    {"MessageBeforeTheShare", [] { return explore(long_put({.message_waits = false})); }},
    {"RecallBeforeCompletion", [] { return explore(recall({.message_waits = false})); }},
    {"PutReadByAnotherRail", [] { return explore(long_get({.fences_puts = false})); }},
    {"PutOverwrittenByAnotherRail", [] { return explore(long_put({.fences_puts = false})); }},
    {"RelaxedPutToldByANeighbour",
     [] {
       const Chain chain = {{Hop::Way::kMessage, 2, 2}, {Hop::Way::kShared, 1, 1}};
       return explore(told(kLayouts[2], Class::kRelaxed, Fences::kProduct, 1, chain));
     }},
    {"PutBackRepeatedBehindItsMessage",
     [] { return explore(put_back(Class::kUnordered, true, false)); }},
    {"PutBackRepeatedWithoutRegistration",
     [] { return explore(put_back(Class::kUnordered, true, true)); }},
};

class PlacementMutants : public ::testing::TestWithParam<Mutant> {};
TEST_P(PlacementMutants, AreFound) {
  const Findings findings = GetParam().find();
  EXPECT_NE(findings.violation, "");
  std::printf("%zu states. %s\n", findings.states, findings.violation.c_str());
}
INSTANTIATE_TEST_SUITE_P(Each, PlacementMutants, ::testing::ValuesIn(kMutants),
                         [](const auto& mutant) { return std::string(mutant.param.name); });

}  // namespace
}  // namespace hydrant::model::placement
