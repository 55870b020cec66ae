// Atomic domains in a job, against models and by the checker of histories. Ends with 0 and "all held", or
// with a line that begins with "WRONG".
// Arguments: the scenario, and the number of rounds.
#include "tests/integration/atomics/atomics_job.hpp"
#include "tests/integration/atomics/history.hpp"
#include "tests/integration/atomics/typed_calls.hpp"
#include "tests/integration/teams/failing_new.hpp"

#include <csignal>
#include <ctime>
#include <immintrin.h>
#include <span>
#include <string>
#include <thread>
#include <utility>

namespace {

// An adapter's operations on integers of 64 bits.
constexpr gex_OP_t kAdapterOps = GEX_OP_GET | GEX_OP_CAS | GEX_OP_FCAS | GEX_OP_ADD | GEX_OP_FADD |
                                 GEX_OP_SUB | GEX_OP_FSUB | GEX_OP_INC | GEX_OP_FINC | GEX_OP_DEC |
                                 GEX_OP_FDEC;

// ---- the model: words that only one rank uses ----

// Opcodes as constants, so that the calls are inlined.
template <typename T, size_t... kIndex>
void run_constant(std::index_sequence<kIndex...>, bool by_event, gex_AD_t ad, T* result,
                  gex_Rank_t rank, void* target, gex_OP_t op, T operand1, T operand2,
                  gex_Flags_t flags) {
  const auto run = [&](auto index) {
    constexpr gex_OP_t kOp = kAllOperations[index.value];
    if (op == kOp) run_call(by_event, ad, result, rank, target, kOp, operand1, operand2, flags);
  };
  (run(std::integral_constant<size_t, kIndex>{}), ...);
}

gex_Flags_t random_flags(std::mt19937_64& random, gex_TM_t team, gex_Rank_t* rank) {
  gex_Flags_t flags = 0;
  if (random() % 2 == 0) flags |= GEX_FLAG_IMMEDIATE;
  if (random() % 4 == 0) flags |= GEX_FLAG_AD_REL;
  if (random() % 4 == 0) flags |= GEX_FLAG_AD_ACQ;
  const gex_Rank_t jobrank = gex_TM_TranslateRankToJobrank(team, *rank);
  if (jobrank == me && random() % 2 == 0)
    flags |= GEX_FLAG_AD_MY_RANK;
  else if (is_neighbour(jobrank) && random() % 2 == 0)
    flags |= GEX_FLAG_AD_MY_NBRHD;
  if (random() % 4 == 0) {
    flags |= GEX_FLAG_RANK_IS_JOBRANK;
    *rank = jobrank;
  }
  return flags;
}

// Sets a word before the operations of a domain, which may not have SET.
template <typename T>
void set_first(gex_AD_t ad, T* word, T value) {
  if ((gex_AD_QueryOps(ad) & GEX_OP_SET) != 0)
    run_call(true, ad, static_cast<T*>(nullptr), gex_TM_QueryRank(gex_AD_QueryTM(ad)), word,
             GEX_OP_SET, value, T{0}, 0);
  else
    *word = value;
}

template <typename T>
void compare_with_model(gex_TM_t team, uint32_t rounds, gex_OP_t ops = operations_of<T>()) {
  gex_AD_t ad = GEX_AD_INVALID;
  // The second has no effect.
  constexpr gex_Flags_t kFlags = GEX_FLAG_AD_FAVOR_REMOTE | GEX_FLAG_PEER_SEG_OFFSET;
  gex_AD_Create(&ad, team, kTypeOf<T>, ops, kFlags);
  check(gex_AD_QueryTM(ad) == team && gex_AD_QueryDT(ad) == kTypeOf<T> &&
            gex_AD_QueryOps(ad) == ops && gex_AD_QueryFlags(ad) == kFlags,
        "what a domain is");
  std::mt19937_64 random(me * 100 + kTypeOf<T>);
  const gex_Rank_t size = gex_TM_QuerySize(team);
  std::vector<T> values(size, T{0});
  for (gex_Rank_t rank = 0; rank < job_size; ++rank)
    set_first(ad, word_of<T>(team, gex_TM_QueryRank(team), 1 + rank), T{0});
  barrier(team);
  for (uint32_t round = 0; round < rounds; ++round) {
    auto rank = static_cast<gex_Rank_t>(random() % size);
    const gex_OP_t op = kAllOperations[random() % kAllOperations.size()];
    if ((ops & op) == 0) continue;
    T& value = values[rank];
    T* const target = word_of<T>(team, rank, 1 + me);
    const T operand1 = random() % 4 == 0 ? value : random_value<T>(random);
    const auto operand2 = random_value<T>(random);
    const gex_Flags_t flags = random_flags(random, team, &rank);
    T result{9};
    const bool by_event = random() % 2 == 0;
    if (random() % 2 == 0)
      run_call(by_event, ad, &result, rank, target, op, operand1, operand2, flags);
    else
      run_constant(std::make_index_sequence<kAllOperations.size()>{}, by_event, ad, &result, rank,
                   target, op, operand1, operand2, flags);
    const bool returns_old = (op & kReturningOld) != 0;
    check(are_same(result, returns_old ? value : T{9}), "the result of an operation");
    value = model_of(op, value, operand1, operand2);
  }
  for (gex_Rank_t rank = 0; rank < size; ++rank) {
    T value{};
    run_call(true, ad, &value, rank, word_of<T>(team, rank, 1 + me), GEX_OP_GET, T{}, T{}, 0);
    check(are_same(value, values[rank]), "the last value of a word");
  }
  barrier(team);
  gex_AD_Destroy(ad);
}

void run_model(uint32_t rounds, bool by_adapter) {
  gex_TM_t reversed = GEX_TM_INVALID;
  gex_TM_t half = GEX_TM_INVALID;
  (void)gex_TM_Split(&reversed, world, 0, -static_cast<int>(me), nullptr, 0,
                     GEX_FLAG_TM_NO_SCRATCH);
  (void)gex_TM_Split(&half, world, me % 2, static_cast<int>(me), nullptr, 0,
                     GEX_FLAG_TM_NO_SCRATCH);
  for (const gex_TM_t team : {world, reversed, half}) {
    if (by_adapter) {
      compare_with_model<int64_t>(team, rounds, kAdapterOps);
      compare_with_model<uint64_t>(team, rounds, kAdapterOps);
      compare_with_model<double>(team, rounds, GEX_OP_GET | GEX_OP_CAS | GEX_OP_FCAS);
      barrier(world);
      continue;
    }
    compare_with_model<int32_t>(team, rounds);
    compare_with_model<uint32_t>(team, rounds);
    compare_with_model<int64_t>(team, rounds);
    compare_with_model<uint64_t>(team, rounds);
    compare_with_model<float>(team, rounds);
    compare_with_model<double>(team, rounds);
    barrier(world);
  }
  gex_TM_Destroy(half, nullptr, 0);
  gex_TM_Destroy(reversed, nullptr, 0);
}

// ---- contention ----

template <typename Work>
void in_threads(uint32_t count, Work work) {
  std::vector<std::thread> threads;
  for (uint32_t i = 1; i < count; ++i) threads.emplace_back([&work, i] { work(i); });
  work(0);
  for (std::thread& each : threads) each.join();
}

// Each value is returned once, and none is left out: a second domain counts how often. `favor` and `set`,
// GEX_OP_SET or 0, are the counter's.
template <typename T>
void count_together(uint32_t rounds, uint32_t threads, gex_Flags_t favor = 0,
                    gex_OP_t set = GEX_OP_SET) {
  gex_AD_t counter = GEX_AD_INVALID;
  gex_AD_t marks = GEX_AD_INVALID;
  gex_AD_Create(&counter, world, kTypeOf<T>, GEX_OP_FADD | GEX_OP_FINC | GEX_OP_GET | set, favor);
  gex_AD_Create(&marks, world, GEX_DT_U32, GEX_OP_FINC | GEX_OP_SET, 0);
  const uint32_t total = rounds * threads * job_size;
  T* const word = word_of<T>(world, 0, 0);
  auto* const mark = word_of<uint32_t>(world, 0, 256);
  if (me == 0) {
    set_first(counter, word, T{0});
    for (uint32_t i = 0; i < total; ++i) set_first(marks, mark + i, uint32_t{0});
  }
  barrier(world);
  in_threads(threads, [&](uint32_t) {
    std::vector<T> results(rounds, T{0});
    for (uint32_t i = 0; i < rounds; ++i) {
      if (i % 3 == 0)
        run_call(true, counter, &results[i], 0, word, GEX_OP_FADD, T{1}, T{0}, 0);
      else
        (void)nbi_call(T{})(counter, &results[i], 0, word, GEX_OP_FINC, T{0}, T{0}, 0);
    }
    gex_NBI_Wait(GEX_EC_RMW, 0);
    for (const T result : results) {
      const auto index = static_cast<uint32_t>(result);
      check(static_cast<T>(index) == result && index < total, "a value of a counter");
      uint32_t earlier = 9;
      run_call<uint32_t>(true, marks, &earlier, 0, mark + index, GEX_OP_FINC, 0, 0, 0);
      check(earlier == 0, "a value that was returned twice");
    }
  });
  barrier(world);
  T sum{0};
  run_call(true, counter, &sum, 0, word, GEX_OP_GET, T{0}, T{0}, 0);
  check(sum == static_cast<T>(total), "the sum of a counter");
  barrier(world);
  gex_AD_Destroy(marks);
  gex_AD_Destroy(counter);
}

// ---- histories ----

uint64_t now() {
  timespec time = {};
  (void)clock_gettime(CLOCK_MONOTONIC, &time);
  // A load may not overtake the clock.
  _mm_lfence();
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec);
}

constexpr gex_OP_t kHistoryOps[] = {GEX_OP_SET, GEX_OP_GET,  GEX_OP_SWAP, GEX_OP_FCAS,
                                    GEX_OP_CAS, GEX_OP_FADD, GEX_OP_ADD,  GEX_OP_FMAX,
                                    GEX_OP_MIN, GEX_OP_FXOR, GEX_OP_FMULT};
constexpr gex_OP_t kAdapterHistoryOps[] = {GEX_OP_GET, GEX_OP_FCAS, GEX_OP_CAS, GEX_OP_FADD,
                                           GEX_OP_ADD, GEX_OP_FDEC, GEX_OP_SUB};

// Updates of the same word by two domains, of which one uses the adapter, the other one processors. Where
// they are not atomic with each other, some are lost: the other scenarios would find a domain that mixes.
// Repeats `rounds` updates until that has happened: ranks that share a processor seldom meet.
void run_mixed(uint32_t rounds) {
  gex_AD_t domains[2] = {};
  gex_AD_Create(&domains[0], world, GEX_DT_U64, GEX_OP_ADD, GEX_FLAG_AD_FAVOR_REMOTE);
  gex_AD_Create(&domains[1], world, GEX_DT_U64, GEX_OP_ADD, 0);
  auto* const word = word_of<uint64_t>(world, 0, 0);
  // A processor's take a hundredth of the time.
  const uint32_t mine = me == 0 ? 200 * rounds : rounds;
  const uint64_t end = now() + 30'000'000'000;
  for (uint64_t all_held = 1; all_held != 0;) {
    if (me == 0) *word = 0;
    barrier(world);
    for (uint32_t i = 0; i < mine; ++i)
      run_call<uint64_t>(false, domains[me == 0 ? 1 : 0], nullptr, 0, word, GEX_OP_ADD, 1, 0, 0);
    barrier(world);
    if (me == 0) check(*word == uint64_t{rounds} * (200 + job_size - 1), "updates were lost");
    uint64_t more = now() < end ? 1 : 0;
    gex_Event_Wait(gex_Coll_BroadcastNB(world, 0, &all_held, &more, sizeof more, 0));
  }
  for (const gex_AD_t ad : domains) gex_AD_Destroy(ad);
}

void run_histories(uint32_t rounds, uint32_t threads, std::span<const gex_OP_t> choice,
                   gex_Flags_t favor) {
  constexpr uint32_t kEach = 4;
  gex_OP_t ops = 0;
  for (const gex_OP_t op : choice) ops |= op;
  gex_AD_t ad = GEX_AD_INVALID;
  gex_AD_Create(&ad, world, GEX_DT_U64, ops, favor);
  const uint32_t all = kEach * threads * job_size;
  std::vector<HistoryEntry> mine(kEach * threads);
  for (uint32_t round = 0; round < rounds; ++round) {
    const gex_Rank_t owner = round % job_size;
    auto* const word = word_of<uint64_t>(world, owner, 2);
    if (me == owner) set_first(ad, word, uint64_t{1});
    barrier(world);
    in_threads(threads, [&](uint32_t thread) {
      std::mt19937_64 random((round * threads + thread) * job_size + me);
      for (uint32_t i = 0; i < kEach; ++i) {
        HistoryEntry& entry = mine[thread * kEach + i];
        entry = {.op = choice[random() % choice.size()],
                 .operand1 = random() % 3,
                 .operand2 = random() % 3};
        entry.called = now();
        run_call(random() % 2 == 0, ad, &entry.old, owner, word, entry.op, entry.operand1,
                 entry.operand2, 0);
        entry.completed = now();
      }
    });
    auto* const place = word_of<HistoryEntry>(world, 0, 1024);
    gex_RMA_PutBlocking(world, 0, place + me * mine.size(), mine.data(),
                        mine.size() * sizeof mine[0], 0);
    barrier(world);
    if (me != 0) continue;
    check(HistorySearch({place, place + all}, 1).is_explained(), "the history of a word");
  }
  barrier(world);
  gex_AD_Destroy(ad);
}

// Ranks 0 and 1 each set one word and then get the one that the other sets, with many pairs in a row. An
// operation that was synchronised is seen by all that start later, so at least one of the two sees a 1. Ranks
// on processors of their own meet in some of the pairs.
void run_order(uint32_t rounds) {
  constexpr size_t kPairs = 1024;
  constexpr size_t kStride = 8;  // words; each has a cache line
  gex_AD_t ad = GEX_AD_INVALID;
  gex_AD_Create(&ad, world, GEX_DT_U64, GEX_OP_SET | GEX_OP_GET, 0);
  const gex_Rank_t other = 1 - me;
  auto* const seen_by_both = word_of<uint64_t>(world, 0, size_t{64} << 10);
  for (uint32_t round = 0; round < rounds; ++round) {
    auto* const mine = word_of<uint64_t>(world, me, size_t{4} << 10);
    auto* const theirs = word_of<uint64_t>(world, other, size_t{4} << 10);
    std::vector<uint64_t> seen(kPairs);
    for (size_t i = 0; i < kPairs; ++i) mine[i * kStride] = 0;
    barrier(world);
    for (size_t i = 0; i < kPairs; ++i) {
      const size_t at = i * kStride;
      gex_Event_Wait(gex_AD_OpNB_U64(ad, nullptr, me, mine + at, GEX_OP_SET, 1, 0, 0));
      gex_Event_Wait(gex_AD_OpNB_U64(ad, &seen[i], other, theirs + at, GEX_OP_GET, 0, 0, 0));
    }
    gex_RMA_PutBlocking(world, 0, seen_by_both + me * kPairs, seen.data(), kPairs * sizeof seen[0],
                        0);
    barrier(world);
    for (size_t i = 0; me == 0 && i < kPairs; ++i) {
      check(seen_by_both[i] + seen_by_both[kPairs + i] != 0,
            "two ranks have set a word each, and neither saw the other's");
    }
  }
  barrier(world);
  gex_AD_Destroy(ad);
}

// ---- the rest ----

void run_calls() {
  gex_AD_t first = GEX_AD_INVALID;
  gex_AD_t ad = GEX_AD_INVALID;
  gex_AD_Create(&first, world, GEX_DT_I64, GEX_OP_ADD, GEX_FLAG_AD_FAVOR_MY_RANK);
  gex_AD_Create(&ad, world, GEX_DT_I64, GEX_OP_ADD | GEX_OP_GET | GEX_OP_CSWAP,
                GEX_FLAG_AD_FAVOR_MY_NBRHD);
  check(gex_AD_QueryCData(ad) == nullptr, "the client data of a new domain");
  gex_AD_SetCData(ad, &ad);
  check(gex_AD_QueryCData(ad) == &ad && gex_AD_QueryCData(first) == nullptr,
        "the client data of domains");
  check(gex_AD_QueryFlags(first) == GEX_FLAG_AD_FAVOR_MY_RANK, "the flags of a domain");
  gex_AD_Destroy(first);
  // An access region collects operations of all categories.
  auto* const word = word_of<int64_t>(world, job_size - 1, 8 + me);
  int64_t old[2] = {7, 7};
  gex_NBI_BeginAccessRegion(0);
  for (int i = 0; i < 3; ++i)
    check(gex_AD_OpNBI_I64(ad, nullptr, job_size - 1, word, GEX_OP_ADD, 2, 0, 0) == 0, "a start");
  gex_Event_Wait(gex_NBI_EndAccessRegion(0));
  gex_Event_Wait(gex_AD_OpNB_I64(ad, old, job_size - 1, word, GEX_OP_FCAS, 6, 11, 0));
  gex_Event_Wait(gex_AD_OpNB_I64(ad, old + 1, job_size - 1, word, GEX_OP_GET, 0, 0, 0));
  check(old[0] == 6 && old[1] == 11, "operations of an access region");
  barrier(world);
  gex_AD_Destroy(ad);
  for (int i = 0; i < 100; ++i) {
    gex_AD_Create(&ad, world, GEX_DT_FLT, GEX_OP_ADD, 0);
    gex_AD_Destroy(ad);
  }
}

// Domains that exist at once, and an operation of each.
void run_many() {
  gex_AD_t domains[8] = {};
  auto* const word = word_of<uint64_t>(world, 0, 0);
  for (gex_AD_t& ad : domains)
    gex_AD_Create(&ad, world, GEX_DT_U64, GEX_OP_FADD, GEX_FLAG_AD_FAVOR_REMOTE);
  for (const gex_AD_t ad : domains) {
    uint64_t old = 0;
    run_call<uint64_t>(true, ad, &old, 0, word, GEX_OP_FADD, 1, 0, 0);
    barrier(world);
  }
  if (me == 0) check(*word == std::size(domains) * job_size, "a sum over domains");
  barrier(world);
  for (const gex_AD_t ad : domains) gex_AD_Destroy(ad);
}

// Rank 0 fails to allocate once: the job ends with a text, or the calls do what they should.
void run_starved(uint32_t number) {
  for (int round = 0; round < 2; ++round) {
    if (round == 1 && me == 0) fail_allocation(number);
    gex_AD_t ad = GEX_AD_INVALID;
    gex_AD_Create(&ad, world, GEX_DT_U64, GEX_OP_FADD | GEX_OP_SET, 0);
    auto* const word = word_of<uint64_t>(world, 0, 64);
    if (me == 0) run_call<uint64_t>(false, ad, nullptr, 0, word, GEX_OP_SET, 0, 0, 0);
    barrier(world);
    // More events than the library has at first.
    std::vector<gex_Event_t> events(300);
    std::vector<uint64_t> old(events.size());
    for (size_t i = 0; i < events.size(); ++i)
      events[i] = gex_AD_OpNB_U64(ad, &old[i], 0, word, GEX_OP_FADD, 1, 0, 0);
    gex_Event_WaitAll(events.data(), events.size(), 0);
    barrier(world);
    uint64_t sum = 0;
    run_call<uint64_t>(true, ad, &sum, 0, word, GEX_OP_FADD, 0, 0, 0);
    check(sum == events.size() * job_size, "a sum without memory");
    barrier(world);
    gex_AD_Destroy(ad);
  }
  if (me == 0 && !has_allocation_failed()) std::puts("nothing failed");
}

// Operations without end; the last rank ends among them.
[[noreturn]] void run_until_one_ends(uint32_t rounds, gex_Flags_t favor, void (*end)()) {
  gex_AD_t ad = GEX_AD_INVALID;
  gex_AD_Create(&ad, world, GEX_DT_U64, GEX_OP_FADD | GEX_OP_FCAS, favor);
  for (uint32_t round = 0;; ++round) {
    if (round == rounds && me == job_size - 1) end();
    gex_Event_t events[2] = {};
    uint64_t old[2] = {};
    for (gex_Rank_t rank = 0; rank < job_size; ++rank) {
      auto* const word = word_of<uint64_t>(world, rank, 64);
      events[0] = gex_AD_OpNB_U64(ad, &old[0], rank, word, GEX_OP_FADD, 1, 0, 0);
      events[1] = gex_AD_OpNB_U64(ad, &old[1], rank, word, GEX_OP_FCAS, 0, 1, 0);
      gex_Event_WaitAll(events, 2, 0);
    }
    gasnet_AMPoll();
  }
}

void kill_this_rank() { (void)raise(SIGKILL); }
void leave() { gasnet_exit(0); }

}  // namespace

int main(int argc, char** argv) {
  start_atomics_job(&argc, &argv);
  if (argc < 3) gasnet_exit(2);
  const std::string what = argv[1];
  const auto rounds = static_cast<uint32_t>(std::atoi(argv[2]));
  constexpr gex_Flags_t kAdapter = GEX_FLAG_AD_FAVOR_REMOTE;
  if (what == "model") run_model(rounds, false);
  if (what == "adapter_model") run_model(rounds, true);
  if (what == "adapter_counter") {
    count_together<uint64_t>(rounds, 2, kAdapter, 0);
    count_together<int64_t>(rounds, 2, kAdapter, 0);
  }
  if (what == "adapter_histories") run_histories(rounds, 2, kAdapterHistoryOps, kAdapter);
  if (what == "adapter_killed") run_until_one_ends(rounds, kAdapter, kill_this_rank);
  if (what == "adapter_left") run_until_one_ends(rounds, kAdapter, leave);
  if (what == "adapter_many") run_many();
  if (what == "mixed") run_mixed(rounds);
  if (what == "counter") {
    count_together<uint64_t>(rounds, 2);
    count_together<int32_t>(rounds, 2);
    count_together<double>(rounds, 2);
  }
  if (what == "histories") run_histories(rounds, 2, kHistoryOps, 0);
  if (what == "order") run_order(rounds);
  if (what == "calls") run_calls();
  if (what == "starved") run_starved(rounds);
  if (what == "killed") run_until_one_ends(rounds, 0, kill_this_rank);
  make_wrong_call(what);
  barrier(world);
  if (me == 0) std::puts("all held");
  std::fflush(stdout);
  gasnet_exit(0);
}
