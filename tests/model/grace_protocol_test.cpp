// Model of an acquisition's wait (ReleaseWaits::quiet(), the hooks' records), small enough to explore: every
// interleaving of a release, two threads that release other memory without end, the monitor's reader, and a
// thread that maps the addresses anew. It shares no code with the monitor. docs/concurrency.md, "What a
// thread costs", gives the argument in prose.
//
// caller   loads the number of the newest grace period; enters with it; the kernel counts a change, frees the
//          addresses, queues the report; the caller sleeps until the report is read; the count goes down; the
//          caller waits while the sequence that it read is odd; and leaves
// raw      the same without the hooks: it neither enters nor waits at the end
// reader   makes the sequence odd, takes all reports, passes them to the cache, makes it even
// mapper   maps the addresses once they are free. If a change is in progress, it takes a number, waits for
//          each record that is entered with a smaller one, and then for a reading that begins after that; it
//          stops waiting as soon as no change is in progress. Then it waits while the sequence is odd. A wait
//          for a range passes over records whose note is of other memory (note_protocol_test.cpp: the notes)
//
// Safety: the mapper finishes only when the cache has forgotten the memory. Liveness: no cycle of states in
// which the mapper waits, and each thread moves or cannot move. The kernel's locks order a record's mark
// before the state that the kernel reports, so the order of steps is the order of memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

namespace hydrant::model {
namespace {

enum class Mutant : uint8_t {
  kNone,
  kMomentWithoutChanges,  // no grace period: the mapper waits until no change is under way
  kMomentWithoutCalls,    // it waits until no record is entered, whatever the number
  kOldNumber,             // its number is not larger than those of calls that began before
  kLateMark,              // a caller enters its record after the kernel has freed the addresses
  kNoSettle,              // if no change is in progress, it does not wait for the reader
  kNoNote,                // the release is passed over as if it were of other memory
  kNoReading,             // when the calls have returned it does not wait for a reading
};

enum Process : uint8_t { kRelease, kFirst, kSecond, kReader, kMapper, kProcesses };
constexpr int kCallers = 3;
constexpr uint8_t kOld = 1, kNew = 2;  // numbers; 0 in a record: outside calls

enum CallStep : uint8_t {
  kOut,
  kLoaded,
  kIn,
  kBegun,
  kFreed,
  kQueued,
  kWasRead,
  kWoken,
  kSettles,
  kSettled,
  kGone
};
enum ReaderStep : uint8_t { kPolls, kReads, kTells, kEvens };
enum MapperStep : uint8_t {
  kMaps,
  kAsks,
  kTakesNumber,
  kLooks,
  kNotes,
  kAsksAgain,
  kSeesSequence,
  kWaitsForEven,
  kThrough
};

struct Caller {
  uint8_t step, number, entered, waits;  // waits: for the end of the reading that it saw
};
// Bytes only and no padding: compared with memcmp().
struct State {
  std::array<Caller, kCallers> caller;
  uint8_t newest;   // number that calls which begin now load
  uint8_t changes;  // in progress, as counted by the kernel
  uint8_t odd, reader, telling;
  uint8_t is_free, cached;  // the addresses are free; the cache still contains them
  uint8_t mapper, number, from, noted, readings, waits;
};
static_assert(sizeof(State) == 4 * kCallers + 13);
bool operator<(const State& a, const State& b) { return std::memcmp(&a, &b, sizeof a) < 0; }

constexpr const char* kStale = "the mapper got memory for which the cache has an old entry";
constexpr const char* kForEver = "the mapper may wait without end although all others continue";

enum class Scene : uint8_t {
  kHooked,  // the release goes through the hooks; the others release memory
  kRange,   // the same, and the mapper waits for releases of its own range
  kRaw,     // it does not; the others enter and leave calls that release nothing
};

class Explorer {
 public:
  Explorer(Scene scene, Mutant mutant) : scene_(scene), mutant_(mutant) {
    State s;
    std::memset(&s, 0, sizeof s);
    s.newest = kOld;
    s.cached = 1;
    if (scene == Scene::kRaw) s.caller[kRelease].step = kIn;
    id_of(s);
  }

  // Returns "" or the error.
  std::string run() {
    for (size_t at = 0; at < states_.size(); ++at) {
      if (states_[at].mapper == kThrough) {
        if (states_[at].cached != 0) return kStale;
        through_ = true;
        continue;  // later states do not matter
      }
      for (uint8_t process = 0; process < kProcesses; ++process) {
        State next = states_[at];
        if (!step(next, static_cast<Process>(process))) continue;
        const size_t to = id_of(next);
        edges_[at].push_back({process, to});
      }
    }
    return find_endless_wait() ? kForEver : "";
  }
  size_t states() const { return states_.size(); }
  bool through() const { return through_; }
  bool overlapped() const { return overlapped_; }

 private:
  struct Edge {
    uint8_t process;
    size_t to;
  };

  bool is(Mutant mutant) const { return mutant_ == mutant; }
  size_t id_of(const State& s) {
    const auto [found, is_new] = known_.insert({s, states_.size()});
    if (is_new) {
      states_.push_back(s);
      edges_.emplace_back();
    }
    return found->second;
  }

  bool step(State& s, Process process) {
    switch (process) {
      case kReader: return read(s);
      case kMapper: return map(s);
      default: return call(s, process);
    }
  }

  bool call(State& s, Process process) {
    Caller& c = s.caller[process];
    const bool hooked = process != kRelease || scene_ != Scene::kRaw;
    const bool releases = process == kRelease || scene_ != Scene::kRaw;
    const bool late = is(Mutant::kLateMark) && process == kRelease;
    switch (c.step) {
      case kOut:
        c.number = s.newest;
        c.step = kLoaded;
        return true;
      case kLoaded:
        if (!late) c.entered = c.number;
        c.number = 0;
        c.step = releases ? kIn : kSettled;
        return true;
      case kIn:
        ++s.changes;
        c.step = kBegun;
        return true;
      case kBegun:
        if (process == kRelease) s.is_free = 1;
        c.step = kFreed;
        return true;
      case kFreed:
        if (late) c.entered = s.newest;
        c.step = kQueued;
        return true;
      case kQueued: return false;  // sleeps until the reader has read
      case kWasRead:
        --s.changes;
        c.step = hooked ? kWoken : kGone;
        return true;
      case kWoken:
        c.waits = s.odd;
        c.step = kSettles;
        return true;
      case kSettles:
        if (c.waits != 0) return false;
        c.step = kSettled;
        return true;
      case kSettled:
        c.entered = 0;
        c.step = process == kRelease ? kGone : kOut;
        return true;
      default: return false;
    }
  }

  static bool read(State& s) {
    switch (s.reader) {
      case kPolls:
        if (std::none_of(s.caller.begin(), s.caller.end(),
                         [](const Caller& c) { return c.step == kQueued; })) {
          return false;
        }
        s.odd = 1;
        s.reader = kReads;
        return true;
      case kReads:
        for (size_t i = 0; i < kCallers; ++i) {
          if (s.caller[i].step != kQueued) continue;
          s.caller[i].step = kWasRead;
          if (i == kRelease) s.telling = 1;
        }
        s.reader = kTells;
        return true;
      case kTells:
        if (s.telling != 0) s.cached = 0;
        s.telling = 0;
        s.reader = kEvens;
        return true;
      default:
        s.odd = 0;
        for (Caller& c : s.caller) c.waits = 0;
        s.waits = 0;
        if (s.readings != 0) --s.readings;
        s.reader = kPolls;
        return true;
    }
  }

  // The mapper's next step after the query for changes.
  void ask(State& s, MapperStep while_changing) const {
    s.mapper = s.changes != 0 ? while_changing : kSeesSequence;
    if (s.mapper == kSeesSequence && is(Mutant::kNoSettle)) s.mapper = kThrough;
  }

  bool map(State& s) {
    switch (s.mapper) {
      case kMaps:
        if (s.is_free == 0) return false;
        s.mapper = kAsks;
        return true;
      case kAsks:
        ask(s, is(Mutant::kMomentWithoutChanges) ? kAsksAgain : kTakesNumber);
        return true;
      case kTakesNumber:
        s.number = is(Mutant::kOldNumber) ? kOld : kNew;
        s.newest = s.number;
        s.mapper = kLooks;
        return true;
      case kLooks: {
        const uint8_t entered = s.caller[s.from].entered;
        const bool is_of_range =
            scene_ != Scene::kRange || (s.from == kRelease && !is(Mutant::kNoNote));
        const bool waits =
            is_of_range && entered != 0 && (is(Mutant::kMomentWithoutCalls) || entered < s.number);
        if (waits) {
          if (is(Mutant::kMomentWithoutCalls)) s.from = 0;
          s.mapper = kAsksAgain;
        } else if (++s.from == kCallers) {
          s.mapper = kNotes;
        }
        return true;
      }
      case kNotes:
        // Calls that have begun since then count, too: without the number the mapper would wait for them.
        if (s.caller[kFirst].entered == kNew || s.caller[kSecond].entered == kNew)
          overlapped_ = true;
        s.noted = 1;
        s.readings = s.odd != 0 ? 2 : 1;
        if (is(Mutant::kNoReading)) s.readings = 0;
        s.mapper = kAsksAgain;
        return true;
      case kAsksAgain:
        if (s.noted != 0 && s.readings == 0) {
          s.mapper = kThrough;
          return true;
        }
        ask(s, is(Mutant::kMomentWithoutChanges) || s.noted != 0 ? kAsksAgain : kLooks);
        return true;
      case kSeesSequence:
        s.waits = s.odd;
        s.mapper = kWaitsForEven;
        return true;
      case kWaitsForEven:
        if (s.waits != 0) return false;
        s.mapper = kThrough;
        return true;
      default: return false;
    }
  }

  // Finds a strongly connected part of the states in which the mapper waits and each thread moves, or is in a
  // state in which it cannot move. (Tarjan's algorithm, without recursion.)
  bool find_endless_wait() {
    const size_t n = states_.size();
    std::vector<size_t> index(n, 0), low(n, 0), next(n, 0), stack, path;
    part_of_.assign(n, 0);
    size_t count = 0;
    const auto open = [&](size_t at) {
      index[at] = low[at] = ++count;
      stack.push_back(at);
      path.push_back(at);
    };
    for (size_t root = 0; root < n; ++root) {
      if (index[root] == 0) open(root);
      while (!path.empty()) {
        const size_t at = path.back();
        if (next[at] < edges_[at].size()) {
          const size_t to = edges_[at][next[at]++].to;
          if (index[to] == 0) {
            open(to);
          } else if (part_of_[to] == 0) {
            low[at] = std::min(low[at], index[to]);
          }
          continue;
        }
        path.pop_back();
        if (!path.empty()) low[path.back()] = std::min(low[path.back()], low[at]);
        if (low[at] != index[at]) continue;
        std::vector<size_t> part;
        do {
          part.push_back(stack.back());
          part_of_[stack.back()] = at + 1;
          stack.pop_back();
        } while (part.back() != at);
        if (is_endless_wait(part)) return true;
      }
    }
    return false;
  }
  bool is_endless_wait(const std::vector<size_t>& part) const {
    const uint8_t mapper = states_[part[0]].mapper;
    if (mapper == kMaps || mapper == kThrough) return false;
    std::array<bool, kProcesses> is_fair{};
    for (const size_t at : part) {
      std::array<bool, kProcesses> can{};
      for (const Edge& edge : edges_[at]) {
        can[edge.process] = true;
        if (part_of_[edge.to] == part_of_[at]) is_fair[edge.process] = true;
      }
      for (size_t i = 0; i < kProcesses; ++i) is_fair[i] = is_fair[i] || !can[i];
    }
    return std::all_of(is_fair.begin(), is_fair.end(), [](bool fair) { return fair; });
  }

  const Scene scene_;
  const Mutant mutant_;
  std::map<State, size_t> known_;
  std::vector<State> states_;
  std::vector<std::vector<Edge>> edges_;
  std::vector<size_t> part_of_;  // 0: none yet
  bool through_ = false, overlapped_ = false;
};

TEST(GraceProtocol, AHookedReleaseIsKnownBeforeItsMemoryIsHandedOutAndOthersDoNotHoldUp) {
  Explorer explorer(Scene::kHooked, Mutant::kNone);
  EXPECT_EQ(explorer.run(), "") << explorer.states() << " states";
  EXPECT_TRUE(explorer.through() && explorer.overlapped());
}

TEST(GraceProtocol, AReleaseOfTheRangeIsKnownAndOthersArePassedOver) {
  Explorer explorer(Scene::kRange, Mutant::kNone);
  EXPECT_EQ(explorer.run(), "") << explorer.states() << " states";
  EXPECT_TRUE(explorer.through() && explorer.overlapped());
}

TEST(GraceProtocol, ARawReleaseIsKnownBeforeItsMemoryIsHandedOut) {
  Explorer explorer(Scene::kRaw, Mutant::kNone);
  EXPECT_EQ(explorer.run(), "") << explorer.states() << " states";
  EXPECT_TRUE(explorer.through() && explorer.overlapped());
}

TEST(GraceProtocolMutant, WaitingForAMomentWithoutAnyIsFound) {
  EXPECT_EQ(Explorer(Scene::kHooked, Mutant::kMomentWithoutChanges).run(), kForEver);
  EXPECT_EQ(Explorer(Scene::kHooked, Mutant::kMomentWithoutCalls).run(), kForEver);
}

TEST(GraceProtocolMutant, PassingOverACallThatIsInsideIsFound) {
  EXPECT_EQ(Explorer(Scene::kHooked, Mutant::kOldNumber).run(), kStale);
  EXPECT_EQ(Explorer(Scene::kHooked, Mutant::kLateMark).run(), kStale);
  EXPECT_EQ(Explorer(Scene::kRange, Mutant::kLateMark).run(), kStale);
  EXPECT_EQ(Explorer(Scene::kRange, Mutant::kOldNumber).run(), kStale);
  EXPECT_EQ(Explorer(Scene::kRange, Mutant::kNoNote).run(), kStale);
}

TEST(GraceProtocolMutant, ContinuingBeforeTheCacheIsNotifiedIsFound) {
  EXPECT_EQ(Explorer(Scene::kHooked, Mutant::kNoSettle).run(), kStale);
  EXPECT_EQ(Explorer(Scene::kRaw, Mutant::kNoReading).run(), kStale);
}

}  // namespace
}  // namespace hydrant::model
