// A client of GASNet's barriers and events. Its arguments select the test and, for rules, agreed and
// events, the number of rounds. It ends with 0 if all checks passed, else with a line that begins with
// "WRONG". barrier_jobs_test.py runs it as jobs of several ranks.
#include <gasnet.h>
#include <gasnetex.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <random>
#include <set>
#include <unistd.h>
#include <vector>

namespace {

gex_Client_t client;
gex_EP_t endpoint;
gex_TM_t team;
gex_Rank_t me;
gex_Rank_t size;

[[noreturn, gnu::format(printf, 1, 2)]] void wrong(const char* format, ...) {
  va_list args;
  va_start(args, format);
  std::fprintf(stderr, "WRONG (rank %u): ", me);
  std::vfprintf(stderr, format, args);
  std::fprintf(stderr, "\n");
  va_end(args);
  gasnet_exit(3);
}

// ---- published by every rank: the number of barriers that it has reached ----

struct Reached {
  void* address;                  // address in the owner
  std::atomic<uint64_t>* mapped;  // address here; null on another node
};
std::vector<Reached> reached;

void attach() {
  gex_Segment_t segment;
  if (gex_Segment_Attach(&segment, team, GASNET_PAGESIZE) != GASNET_OK) wrong("attach");
  for (gex_Rank_t rank = 0; rank < size; ++rank) {
    void* address = nullptr;
    void* local = nullptr;
    gex_Segment_QueryBound(team, rank, &address, &local, nullptr);
    reached.push_back({address, static_cast<std::atomic<uint64_t>*>(local)});
  }
}
void reach(uint64_t count) { reached[me].mapped->store(count, std::memory_order_relaxed); }
void check_all_reached(uint64_t count) {
  for (gex_Rank_t rank = 0; rank < size; ++rank) {
    const auto [address, mapped] = reached[rank];
    uint64_t theirs = 0;
    if (mapped != nullptr) {
      theirs = mapped->load(std::memory_order_relaxed);
    } else {
      gex_RMA_GetBlocking(team, &theirs, rank, address, sizeof theirs, 0);
    }
    if (theirs < count)
      wrong("passed barrier %llu, and rank %u had reached %llu",
            static_cast<unsigned long long>(count), rank, static_cast<unsigned long long>(theirs));
  }
}

// ---- names, against an independent statement of the rules ----

struct Argument {
  int id;
  int flags;
  bool has_name() const { return flags == 0; }
  bool mismatches() const { return (flags & GASNET_BARRIERFLAG_MISMATCH) != 0; }
};

Argument random_argument(std::mt19937& random) {
  switch (random() % 6) {
    case 0: return {static_cast<int>(random() % 3), GASNET_BARRIERFLAG_ANONYMOUS};
    case 1: return {static_cast<int>(random() % 40 == 0 ? 1 : 0), 0};
    case 2:
      return {0, random() % 20 == 0 ? GASNET_BARRIERFLAG_MISMATCH : GASNET_BARRIERFLAG_ANONYMOUS};
    default: return {-7, 0};
  }
}

int pass(const Argument& notified, const Argument& waited, uint32_t way) {
  if (way == 0 && std::memcmp(&notified, &waited, sizeof notified) == 0)
    return gasnet_barrier(notified.id, notified.flags);
  gasnet_barrier_notify(notified.id, notified.flags);
  if (way == 1) {
    int answer = 0;
    while ((answer = gasnet_barrier_try(waited.id, waited.flags)) == GASNET_ERR_NOT_READY)
      usleep(10);
    return answer;
  }
  if (way == 2) gasnet_AMPoll();
  return gasnet_barrier_wait(waited.id, waited.flags);
}

void rules(uint64_t rounds) {
  std::mt19937 common(4711);  // the same on all ranks
  std::mt19937 own(me + 1);   // selects this rank's own calls
  for (uint64_t i = 1; i <= rounds; ++i) {
    std::set<int> names;
    bool mismatch = false;
    Argument mine{};
    for (gex_Rank_t rank = 0; rank < size; ++rank) {
      const Argument argument = random_argument(common);
      if (rank == me) mine = argument;
      if (argument.has_name()) names.insert(argument.id);
      if (argument.mismatches()) mismatch = true;
    }
    mismatch = mismatch || names.size() > 1;
    const Argument waited = own() % 2 == 0 ? mine : random_argument(own);
    bool expected = !mismatch && !waited.mismatches();
    if (waited.has_name() && names.size() == 1 && *names.begin() != waited.id) expected = false;
    reach(i);
    const int answer = pass(mine, waited, own() % 4);
    check_all_reached(i);
    if (answer != (expected ? GASNET_OK : GASNET_ERR_BARRIER_MISMATCH))
      wrong("barrier %llu answered %d", static_cast<unsigned long long>(i), answer);
    int id = 0;
    const bool has_result = gasnet_barrier_result(&id) == 0;
    if (has_result != (!mismatch && names.size() == 1)) wrong("result of barrier %d", answer);
    if (has_result && id != *names.begin()) wrong("result %d", id);
  }
}

// All anonymous or all named in turn, as HYDRANT_BARRIER_STRICT=0 requires.
void agreed(int rounds) {
  for (int i = 1; i <= rounds; ++i) {
    const int flags = i % 2 == 0 ? 0 : GASNET_BARRIERFLAG_ANONYMOUS;
    const bool odd = i % 7 == 0 && me == static_cast<gex_Rank_t>(i) % size;
    const int answer = gasnet_barrier(i, flags | (odd ? GASNET_BARRIERFLAG_MISMATCH : 0));
    if (answer != (i % 7 == 0 ? GASNET_ERR_BARRIER_MISMATCH : GASNET_OK)) wrong("barrier %d", i);
  }
}

// ---- GASNet-EX ----

void events(int rounds) {
  uint64_t count = 0;
  for (int round = 0; round < rounds; ++round) {
    gex_Event_t events[8];
    const uint64_t first = count + 1;
    for (gex_Event_t& event : events) {
      reach(++count);
      event = gex_Coll_BarrierNB(team, 0);
    }
    if (round % 4 == 0) {
      for (uint32_t i = 0; i < 8; ++i) {
        const uint32_t at = (i + me) % 8;
        gex_Event_Wait(events[at]);
        check_all_reached(first + at);
      }
      continue;
    }
    if (round % 4 == 1) gex_Event_WaitAll(events, 8, 0);
    if (round % 4 == 2) {
      // If ranks outnumber processors, a loop that keeps its processor delays the other ranks.
      while (gex_Event_TestAll(events, 8, 0) != GASNET_OK) {
        gasnet_AMPoll();
        usleep(10);
      }
    }
    while (round % 4 == 3) {
      gex_Event_WaitSome(events, 8, 0);
      bool left = false;
      for (uint32_t i = 0; i < 8; ++i) {
        if (events[i] == GEX_EVENT_INVALID) check_all_reached(first + i);
        left = left || events[i] != GEX_EVENT_INVALID;
      }
      if (!left) break;
    }
    check_all_reached(count);
    for (gex_Event_t event : events) {
      if (event != GEX_EVENT_INVALID) wrong("a complete event was left in the array");
    }
    if (gex_Event_TestSome(events, 8, 0) != GASNET_OK ||
        gex_Event_TestSome(events, 0, 0) != GASNET_OK)
      wrong("an array without events is not complete");
    if (round % 3 == 0) {
      reach(++count);
      gex_Coll_BarrierBlocking(team, 0);
      check_all_reached(count);
    }
  }
  if (gex_NBI_Test(GEX_EC_ALL, 0) != GASNET_OK) wrong("gex_NBI_Test");
  gex_NBI_Wait(GEX_EC_AM, 0);
  if (gex_Event_Test(GEX_EVENT_INVALID) != GASNET_OK) wrong("gex_Event_Test(GEX_EVENT_INVALID)");
  // Both kinds alternate.
  for (int i = 0; i < 200; ++i) {
    gex_Coll_BarrierBlocking(team, 0);
    gasnet_barrier(0, GASNET_BARRIERFLAG_UNNAMED);
  }
}

// ---- messages are served during waits, and by calls that need not wait ----

std::atomic<uint32_t> replies{0};
enum Handlers : gex_AM_Index_t { kAsk = 200, kAnswer = 201, kMisuse = 202 };
void on_ask(gex_Token_t token, gex_AM_Arg_t value) { gex_AM_ReplyShort1(token, kAnswer, 0, value); }
void on_answer(gex_Token_t, gex_AM_Arg_t value) { replies += static_cast<uint32_t>(value); }

void messages() {
  for (gex_Rank_t asker = 0; asker < size; ++asker) {
    if (me == asker) {
      replies = 0;
      for (gex_Rank_t rank = 0; rank < size; ++rank) gex_AM_RequestShort1(team, rank, kAsk, 0, 1);
      GASNET_BLOCKUNTIL(replies == size);
    }
    gasnet_barrier_notify(0, GASNET_BARRIERFLAG_UNNAMED);
    gasnet_barrier_wait(0, GASNET_BARRIERFLAG_UNNAMED);
    gex_Event_Wait(gex_Coll_BarrierNB(team, 0));
  }
}

// ---- one rank arrives late ----

void late() {
  for (int kind = 0; kind < 2; ++kind) {
    if (me == size - 1) usleep(400'000);
    if (kind == 0) gasnet_barrier(0, GASNET_BARRIERFLAG_UNNAMED);
    if (kind == 1) gex_Event_Wait(gex_Coll_BarrierNB(team, 0));
  }
}

// ---- misuse: each of them ends the job with a text ----

void on_misuse(gex_Token_t) { gasnet_barrier_notify(0, 0); }

void misuse(const char* what) {
  if (std::strcmp(what, "wait") == 0) gasnet_barrier_wait(0, 0);
  if (std::strcmp(what, "try") == 0) gasnet_barrier_try(0, 0);
  if (std::strcmp(what, "notify") == 0) {
    gasnet_barrier_notify(0, 0);
    gasnet_barrier_notify(0, 0);
  }
  if (std::strcmp(what, "handler") == 0) gex_AM_RequestShort0(team, me, kMisuse, 0);
  if (std::strcmp(what, "team") == 0) gex_Coll_BarrierBlocking(GEX_TM_INVALID, 0);
  if (std::strcmp(what, "no_op") == 0) gex_Event_Test(GEX_EVENT_NO_OP);
  if (std::strcmp(what, "twice") == 0) {
    // The other ranks have not arrived: this rank gets a real event.
    gex_Event_t event = GEX_EVENT_INVALID;
    if (me == 0) event = gex_Coll_BarrierNB(team, 0);
    if (me != 0) usleep(200'000);
    if (me != 0) gex_Coll_BarrierBlocking(team, 0);
    if (me != 0) sleep(5);
    gex_Event_Wait(event);
    gex_Event_Wait(event);
  }
  wrong("%s was allowed", what);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 2 && std::strcmp(argv[2], "early") == 0) gasnet_barrier_notify(0, 0);
  if (gex_Client_Init(&client, &endpoint, &team, "barrier_client", &argc, &argv, 0) != GASNET_OK)
    return 2;
  me = gex_TM_QueryRank(team);
  size = gex_TM_QuerySize(team);
  constexpr gex_Flags_t kRequest = GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST;
  constexpr gex_Flags_t kReply = GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REPLY;
  gex_AM_Entry_t table[] = {
      {kAsk, reinterpret_cast<gex_AM_Fn_t>(on_ask), kRequest, 1, nullptr, nullptr},
      {kAnswer, reinterpret_cast<gex_AM_Fn_t>(on_answer), kReply, 1, nullptr, nullptr},
      {kMisuse, reinterpret_cast<gex_AM_Fn_t>(on_misuse), kRequest, 0, nullptr, nullptr}};
  if (gex_EP_RegisterHandlers(endpoint, table, 3) != GASNET_OK) wrong("handlers");
  attach();
  gasnet_barrier(0, GASNET_BARRIERFLAG_UNNAMED);
  const char* what = argc > 1 ? argv[1] : "";
  const int wanted = argc > 2 ? std::atoi(argv[2]) : 0;
  const auto rounds = [wanted](int usual) { return wanted > 0 ? wanted : usual; };
  if (std::strcmp(what, "rules") == 0)
    rules(static_cast<uint64_t>(rounds(3000)));
  else if (std::strcmp(what, "agreed") == 0)
    agreed(rounds(2000));
  else if (std::strcmp(what, "events") == 0)
    events(rounds(300));
  else if (std::strcmp(what, "messages") == 0)
    messages();
  else if (std::strcmp(what, "late") == 0)
    late();
  else if (std::strcmp(what, "misuse") == 0 && argc > 2)
    misuse(argv[2]);
  else
    wrong("'%s' is none of rules, agreed, events, messages, late, misuse", what);
  gasnet_barrier(0, GASNET_BARRIERFLAG_UNNAMED);
  if (me == 0) std::printf("all held\n");
  gasnet_exit(0);
}
