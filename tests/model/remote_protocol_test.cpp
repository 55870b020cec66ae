// Remote pins under every interleaving of small histories (remote_protocol_explorer.hpp). Mutants then show
// that the search works: it must find each deliberate defect.
#include "firehose/watch/mutant.hpp"
#include "tests/model/remote_protocol_explorer.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

namespace hydrant::model {
namespace {

// Most executions of one history.
constexpr uint64_t kPlain = 100000;
constexpr uint64_t kLong = 3000000;

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

bool is_long() { return std::getenv("HYDRANT_TEST_LONG") != nullptr; }

RemoteScenario one_page() {
  RemoteScenario s;
  s.name = "one page, used twice, lost once";
  s.requests = {{0, 1, 1}, {0, 1, 1}};
  s.losses = {{1, 1}};
  s.depth = 22;
  return s;
}

// Room for one page: every pin of a page evicts the other one.
RemoteScenario two_pages_in_turn() {
  RemoteScenario s;
  s.name = "two pages in turn, room for one, one lost";
  s.requests = {{0, 1, 1}, {0, 1, 2}, {0, 1, 1}};
  s.losses = {{1, 1}};
  s.budget_pages = 1;
  s.depth = 13;
  return s;
}

RemoteScenario two_initiators() {
  RemoteScenario s;
  s.name = "two initiators of one page, lost once";
  s.ranks = 3;
  s.requests = {{0, 2, 1}, {1, 2, 1}, {0, 2, 1}};
  s.losses = {{2, 1}};
  s.depth = 12;
  return s;
}

RemoteScenario both_ways() {
  RemoteScenario s;
  s.name = "both ways, both lose memory";
  s.requests = {{0, 1, 1}, {1, 0, 1}};
  s.losses = {{1, 1}, {0, 1}};
  s.depth = 11;
  return s;
}

RemoteScenario lost_twice() {
  RemoteScenario s;
  s.name = "one page, lost twice";
  s.requests = {{0, 1, 1}, {0, 1, 1}};
  s.losses = {{1, 1}, {1, 1}};
  s.depth = 18;
  return s;
}

RemoteScenario overlapping() {
  RemoteScenario s;
  s.name = "overlapping ranges, a part is lost";
  s.requests = {{0, 1, 1, 2}, {0, 1, 2, 2}, {0, 1, 2, 1}};
  s.losses = {{1, 2}};
  s.depth = 11;
  return s;
}

RemoteScenario no_room_now() {
  RemoteScenario s;
  s.name = "messages that find no room";
  s.requests = {{0, 1, 1}, {0, 1, 1}};
  s.losses = {{1, 1}};
  s.refusals = 1;
  s.depth = 14;
  return s;
}

RemoteScenario at_once() {
  RemoteScenario s = one_page();
  s.name = "callbacks inside delivery";
  s.requests = {{0, 1, 1}, {0, 1, 1}, {0, 1, 2}};
  s.flags = HYDRANT_REMOTE_INLINE_DONE | HYDRANT_REMOTE_INLINE_REMOTE;
  s.depth = 11;
  return s;
}

RemoteScenario with_function() {
  RemoteScenario s = one_page();
  s.name = "the target's function waits for its poll";
  for (auto& request : s.requests) request.flags = HYDRANT_REMOTE_CALL_ANYWAY;
  s.depth = 22;
  return s;
}

RemoteScenario given_back() {
  RemoteScenario s = one_page();
  s.name = "released and lost";
  s.evictions = 1;
  s.depth = 13;
  return s;
}

RemoteScenario told_twice() {
  RemoteScenario s;
  s.name = "a release that arrives twice";
  s.requests = {{0, 1, 1}, {0, 1, 1}};
  s.losses = {{1, 1}};
  s.duplicates = 1;
  s.depth = 20;
  return s;
}

// A lease moves from one peer to the other and back.
RemoteScenario leases() {
  RemoteScenario s;
  s.name = "two initiators, room for two pages, half of it lent";
  s.ranks = 3;
  s.requests = {{0, 2, 1}, {1, 2, 2}, {0, 2, 3}, {1, 2, 1}};
  s.losses = {{2, 1}};
  s.budget_pages = 2;
  s.base_percent = 50;
  s.fresh_ends = true;
  s.depth = 8;
  return s;
}

// The target needs room for itself repeatedly.
RemoteScenario shortages() {
  RemoteScenario s;
  s.name = "two idle pages, the target needs one, three times";
  s.requests = {{0, 1, 1}, {0, 1, 2}, {0, 1, 1}};
  s.losses = {{1, 1}};
  s.budget_pages = s.domain_pages = 2;
  s.shortages = 3;
  s.depth = 10;
  return s;
}

// The target uses its whole budget itself; it notifies the declined rank when that has ended.
RemoteScenario no_room_yet() {
  RemoteScenario s;
  s.name = "declined, waits for room, and is notified";
  s.requests = {{0, 1, 1}, {0, 1, 2}};
  s.losses = {{1, 1}};
  s.budget_pages = s.domain_pages = s.own_pages = 2;
  s.depth = 10;
  return s;
}

RemoteScenario two_wait() {
  RemoteScenario s = no_room_yet();
  s.name = "two initiators wait for room";
  s.ranks = 3;
  s.requests = {{0, 2, 1}, {1, 2, 2}};
  s.losses = {};
  s.depth = 12;
  return s;
}

RemoteScenario answered_at_once() {
  RemoteScenario s = no_room_yet();
  s.name = "declined, asks about room at each poll";
  s.answers_at_once = true;
  s.depth = 12;
  return s;
}

const std::vector<RemoteScenario>& scenarios() {
  static const std::vector<RemoteScenario> all = {
      one_page(),      two_pages_in_turn(), two_initiators(), both_ways(),
      lost_twice(),    overlapping(),       no_room_now(),    at_once(),
      with_function(), given_back(),        told_twice(),     leases(),
      shortages(),     no_room_yet(),       two_wait(),       answered_at_once()};
  return all;
}

void report(const RemoteScenario& s, const RemoteFindings& f) {
  std::printf(
      "%s: %zu executions%s, %zu steps, %zu orders pruned, %zu hits, %zu recalls, %zu "
      "reclaims, %zu notified of room\n",
      s.name, size_t{f.executions}, f.complete ? " (all)" : "", size_t{f.steps}, size_t{f.pruned},
      size_t{f.hits}, size_t{f.recalls}, size_t{f.reclaims}, size_t{f.told_of_room});
}

class RemoteProtocol : public ::testing::TestWithParam<size_t> {};

// The plain run explores all interleavings of `depth` steps; the long run explores more steps, up to a limit.
TEST_P(RemoteProtocol, EveryInterleaving) {
  RemoteScenario s = scenarios()[GetParam()];
  if (is_long()) s.depth += 3;
  if (kSanitized) s.depth = s.depth * 3 / 4;
  RemoteExplorer explorer(s);
  const RemoteFindings f = explorer.explore(is_long() ? kLong : kPlain);
  report(s, f);
  EXPECT_EQ(f.violation, "");
  EXPECT_TRUE(f.complete || is_long()) << f.executions << " executions were not all of them";
  EXPECT_GT(f.executions, kSanitized ? 50u : 1000u);
  EXPECT_GT(s.own_pages != 0 ? f.told_of_room : f.recalls, kSanitized ? 10u : 500u);
  if (s.shortages != 0) {
    EXPECT_GT(f.reclaims, kSanitized ? 10u : 500u);
  }
}

// Longer histories, at random.
TEST_P(RemoteProtocol, RandomWalks) {
  RemoteScenario s = scenarios()[GetParam()];
  s.depth = 60;
  const std::vector<RemoteScenario::Request> requests = s.requests;
  const std::vector<RemoteScenario::Loss> losses = s.losses;
  for (int i = 0; i < 3; ++i) {
    s.requests.insert(s.requests.end(), requests.begin(), requests.end());
    s.losses.insert(s.losses.end(), losses.begin(), losses.end());
  }
  RemoteExplorer explorer(s);
  const RemoteFindings f = explorer.wander(is_long() ? 100000 : 1000, 1);
  report(s, f);
  EXPECT_EQ(f.violation, "");
  EXPECT_GT(s.own_pages != 0 ? f.told_of_room : f.recalls, 100u);
}

INSTANTIATE_TEST_SUITE_P(All, RemoteProtocol, ::testing::Range(size_t{0}, scenarios().size()));

#if HYDRANT_MUTANTS
class RemoteProtocolMutants : public ::testing::Test {
 protected:
  ~RemoteProtocolMutants() override { set_mutant(Mutant::kNone, 0); }

  // The search's finding for the history with this defect. The comparison of books, which would show every
  // defect at once, is off: the finding must be a broken promise.
  static std::string find(RemoteScenario s, Mutant mutant) {
    s.books = false;
    set_mutant(mutant, 0);
    RemoteExplorer explorer(s);
    const RemoteFindings f = explorer.explore(kPlain);
    set_mutant(Mutant::kNone, 0);
    std::printf("%s, found in execution %zu: %s\n", mutant_info(mutant).name, size_t{f.executions},
                f.violation.c_str());
    return f.violation;
  }
};

TEST_F(RemoteProtocolMutants, ADroppedRecallIsFound) {
  EXPECT_NE(find(one_page(), Mutant::kDropRecall).find("out of reach"), std::string::npos);
}

TEST_F(RemoteProtocolMutants, AnEarlyAcknowledgementIsFound) {
  EXPECT_NE(find(one_page(), Mutant::kEarlyAcknowledgement).find("not registered any more"),
            std::string::npos);
}

TEST_F(RemoteProtocolMutants, AMissingQuarantineIsFound) {
  EXPECT_NE(find(one_page(), Mutant::kNoQuarantine).find("not registered any more"),
            std::string::npos);
}

// A lost wakeup: there is room, but no notification is sent, or it is ignored.
TEST_F(RemoteProtocolMutants, AForgottenWaitIsFound) {
  EXPECT_NE(find(no_room_yet(), Mutant::kForgetAwaiting).find("waits although there is room"),
            std::string::npos);
  EXPECT_NE(find(two_wait(), Mutant::kForgetAwaiting).find("waits although there is room"),
            std::string::npos);
}

TEST_F(RemoteProtocolMutants, AnIgnoredNotificationOfRoomIsFound) {
  // The rank repeats its request for ever.
  for (const RemoteScenario& s : {no_room_yet(), answered_at_once()})
    EXPECT_NE(find(s, Mutant::kIgnoreRoom).find("does not come to rest"), std::string::npos);
}

// A release that arrives twice ends the firehose that has reused its number.
TEST_F(RemoteProtocolMutants, AnIgnoredGenerationIsFound) {
  RemoteScenario s = told_twice();
  s.losses.push_back(s.losses[0]);
  EXPECT_NE(find(s, Mutant::kIgnoreGeneration).find("not registered any more"), std::string::npos);
}
#endif

}  // namespace
}  // namespace hydrant::model
