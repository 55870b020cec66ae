#include "tests/integration/rma/stale.hpp"

#include "extended/binding/firehose_binding.hpp"
#include "extended/rma/common/rma_path.hpp"
#include "extended/rma/common/rma_thread.hpp"
#include "extended/rma/pinned/rma_pinned.hpp"
#include "firehose/watch/mutant.hpp"
#include "tests/support/patience.hpp"

#include <algorithm>
#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <random>
#include <unistd.h>
#include <vector>

namespace rma_client {
namespace stale {
namespace {

enum Note : int32_t { kTold, kDone, kGo, kStarted, kNothing, kEnough };

// This rank's slot.
struct Owned {
  std::byte* at = nullptr;
  uint32_t generation = 1;
  uint32_t done = 0;     // peers that are done
  uint32_t started = 0;  // peers that have started the second half
  bool gone = false;     // "go" was sent
};
// A slot of another rank.
struct Far {
  std::byte* at = nullptr;
  uint32_t generation = 0;
  uint32_t written = 0;  // generation of the written first half
  bool go = false;
  bool is_new = false;  // announced, and not accessed since
  bool same_place = false;
  gex_Event_t under_way = GEX_EVENT_INVALID;
  hydrant_pin_t held{};  // keeps the firehose held without moving data
  uint64_t held_until = 0;
};

Owned owned[kSlots];
Far others[kMaxRanks][kSlots];
// Announcements that peers send by puts: {address, generation}.
struct Told {
  std::atomic<uint64_t> at;
  std::atomic<uint64_t> generation;
};
Told* board(gex_Rank_t rank) {
  return static_cast<Told*>(static_cast<void*>(area(rank, kSegment)));
}

std::mt19937_64 chance;
uint64_t puts = 0;
uint64_t reuses = 0;  // addresses reused while peers had firehoses on them
uint64_t left_under_way = 0;
uint64_t held = 0;
uint64_t turn = 0;
constexpr uint64_t kTurnsHeld = 10;
uint32_t satisfied = 0;  // ranks that have seen every kind of event
std::vector<uint64_t> sources[kMaxRanks][kSlots];

hydrant_remote_stats_t statistics_now() {
  hydrant_remote_stats_t stats{};
  stats.size = sizeof stats;
  if (hydrant_remote_get_stats(hydrant::firehose().end, &stats) != GASNET_OK)
    wrong("this job has no firehoses");
  return stats;
}

void note(gex_Rank_t to, Note what, uint32_t slot, uint32_t generation, const void* at = nullptr) {
  const auto address = reinterpret_cast<uintptr_t>(at);
  gex_AM_RequestShort5(team, to, kNoteHandler, 0, what, static_cast<int32_t>(slot),
                       static_cast<int32_t>(generation), static_cast<int32_t>(address >> 32),
                       static_cast<int32_t>(address & 0xffffffffu));
}

size_t slice_words() { return kSlotBytes / 8 / kMaxRanks; }
size_t half_words() { return slice_words() / 2; }

void told(gex_Rank_t owner, uint32_t slot, std::byte* at, uint32_t generation) {
  Far& far = others[owner][slot];
  if (far.held.region != nullptr)
    wrong("STALE: slot %u of rank %u is new, and this rank has the old one in use", slot, owner);
  far.same_place = far.at == at && far.generation != 0;
  far.at = at;
  far.generation = generation;
  far.is_new = true;
}

// ---- the owner --------------------------------------------------------------------------------------------

void fill(const Owned& mine, uint32_t slot) {
  for (size_t i = 0; i < kSlotBytes / 8; ++i) {
    const uint64_t word = tag(me, kNoRank, slot, mine.generation, i);
    std::memcpy(mine.at + 8 * i, &word, sizeof word);
  }
}

void check(const Owned& mine, uint32_t slot) {
  for (gex_Rank_t rank = 0; rank < kMaxRanks; ++rank) {
    for (size_t i = 0; i < slice_words(); ++i) {
      const size_t at = rank * slice_words() + i;
      const bool is_put = rank < size && rank != me && i < half_words();
      const uint64_t wanted = tag(me, is_put ? rank : kNoRank, slot, mine.generation, at);
      uint64_t word = 0;
      std::memcpy(&word, mine.at + 8 * at, sizeof word);
      if (word != wanted)
        wrong("STALE: word %zu of slot %u is %#" PRIx64 " instead of %#" PRIx64, at, slot, word,
              wanted);
    }
  }
}

// Announces by a message or by puts: the address, and then the generation.
void tell(const Owned& mine, uint32_t slot) {
  for (gex_Rank_t rank = 0; rank < size; ++rank) {
    if (rank == me) continue;
    if (chance() % 2 == 0) {
      note(rank, kTold, slot, mine.generation, mine.at);
      continue;
    }
    Told* const there = board(rank) + me * kSlots + slot;
    const uint64_t address = reinterpret_cast<uintptr_t>(mine.at);
    const uint64_t generation = mine.generation;
    gex_RMA_PutBlocking(team, rank, &there->at, &address, 8, 0);
    gex_RMA_PutBlocking(team, rank, &there->generation, &generation, 8, 0);
  }
}

// Releases held firehoses before this rank waits for others, to avoid a deadlock.
void let_go() {
  for (auto& of_rank : others) {
    for (Far& far : of_rank) {
      if (far.held.region != nullptr) (void)hydrant_remote_release(far.held);
      far.held = {};
    }
  }
}

void renew(Owned& mine, uint32_t slot) {
  let_go();
  const uint64_t recalls = statistics_now().recalls;
  std::byte* const before = mine.at;
  mine.at = change_memory(way_of(slot), mine.at);
  // From here on, announcements must lead to the new memory only.
  note((me + 1) % size, kNothing, slot, 0);
  if (mine.at == before && statistics_now().recalls != recalls) ++reuses;
  ++mine.generation;
  mine.done = mine.started = 0;
  mine.gone = false;
  fill(mine, slot);
  tell(mine, slot);
}

bool serve(Owned& mine, uint32_t slot) {
  if (!mine.gone && mine.done == size - 1) {
    check(mine, slot);
    mine.gone = true;
    for (gex_Rank_t rank = 0; rank < size; ++rank) {
      if (rank != me) note(rank, kGo, slot, mine.generation);
    }
    return true;
  }
  if (mine.gone && mine.started == size - 1) {
    renew(mine, slot);
    return true;
  }
  return false;
}

// ---- the other ranks --------------------------------------------------------------------------------------

// Holds a firehose on this rank's slice, which is a page.
hydrant_pin_t hold(gex_Rank_t owner, const Far& far) {
  return hydrant_try_remote_pin(hydrant::firehose().end, owner,
                                reinterpret_cast<uintptr_t>(far.at) + 8 * me * slice_words(),
                                8 * slice_words(), HYDRANT_REMOTE_WRITE | HYDRANT_REMOTE_READ);
}
bool has_firehose(gex_Rank_t owner, const Far& far) {
  const hydrant_pin_t pin = hold(owner, far);
  if (pin.region == nullptr) return false;
  (void)hydrant_remote_release(pin);
  return true;
}

void fill_source(std::vector<uint64_t>& source, gex_Rank_t owner, uint32_t slot,
                 uint32_t generation, size_t first) {
  source.resize(half_words());
  for (size_t i = 0; i < half_words(); ++i) source[i] = tag(owner, me, slot, generation, first + i);
}

void write_first_half(gex_Rank_t owner, uint32_t slot, Far& far) {
  gex_Event_Wait(far.under_way);
  far.under_way = GEX_EVENT_INVALID;
  // Each slot has its own pages, so only a put to it creates a firehose. (Memory that malloc() reuses
  // was never unmapped, so it may have one.)
  if (far.is_new && far.same_place && way_of(slot) != Way::kMalloc && has_firehose(owner, far))
    wrong("STALE: slot %u of rank %u is new, and its firehose is from before", slot, owner);
  far.is_new = false;
  const size_t first = me * slice_words();
  std::vector<uint64_t>& source = sources[owner][slot];
  fill_source(source, owner, slot, far.generation, first);
  constexpr size_t kPieces[] = {1, 8, 13, 64, 2};  // in words
  size_t done = 0;
  for (uint32_t i = 0; done < half_words(); ++i) {
    const size_t words = std::min(kPieces[i % std::size(kPieces)], half_words() - done);
    gex_RMA_PutNBI(team, owner, far.at + 8 * (first + done), &source[done], 8 * words,
                   i % 2 == 0 ? GEX_EVENT_NOW : GEX_EVENT_DEFER, 0);
    done += words;
    ++puts;
  }
  gex_NBI_Wait(GEX_EC_ALL, 0);
  far.written = far.generation;
  note(owner, kDone, slot, far.generation);
}

void write_second_half(gex_Rank_t owner, uint32_t slot, Far& far) {
  far.go = false;
  const size_t first = me * slice_words() + half_words();
  std::vector<uint64_t>& source = sources[owner][slot];
  fill_source(source, owner, slot, far.generation, first);
  const auto put = [&] {
    ++puts;
    return gex_RMA_PutNB(team, owner, far.at + 8 * first, source.data(), 8 * half_words(),
                         GEX_EVENT_DEFER, 0);
  };
  // The network keeps puts and messages of a pair in order, so an operation that is held back tests
  // more than one that is under way.
  if (way_of(slot) != Way::kMalloc && chance() % 2 == 0) {
    far.held = hold(owner, far);
    far.held_until = turn + kTurnsHeld;
    held += far.held.region != nullptr ? 1 : 0;
    note(owner, kStarted, slot, far.generation);
    return;
  }
  // Without room this thread would poll until there is some.
  const bool has_room = hydrant::RmaThread::mine()->under_way() < hydrant::paths(owner).depth;
  if (!keeps_address(way_of(slot)) || !has_room || !has_firehose(owner, far)) {
    gex_Event_Wait(put());
    note(owner, kStarted, slot, far.generation);
    return;
  }
  // Puts arrive before later messages, so the message is sent first. Afterwards only a put by the
  // firehose may be under way, because messages access the memory that exists at their arrival. Between
  // the check and the put no recall can be processed.
  note(owner, kStarted, slot, far.generation);
  if (!has_firehose(owner, far)) return;
  hydrant_path_counts_t before;
  hydrant_path_counts_t after;
  hydrant_query_path(owner, HYDRANT_PATH_FIREHOSE, &before);
  far.under_way = put();
  hydrant_query_path(owner, HYDRANT_PATH_FIREHOSE, &after);
  if (after.put_ops != before.put_ops + 1) wrong("a put did not find the firehose that was there");
  ++left_under_way;
}

bool work(gex_Rank_t owner, uint32_t slot) {
  Far& far = others[owner][slot];
  if (far.held.region != nullptr && turn >= far.held_until) {
    (void)hydrant_remote_release(far.held);
    far.held = {};
  }
  const Told& news = board(me)[owner * kSlots + slot];
  const auto generation = static_cast<uint32_t>(news.generation.load(std::memory_order_acquire));
  if (generation > far.generation)
    told(owner, slot, reinterpret_cast<std::byte*>(news.at.load(std::memory_order_relaxed)),
         generation);
  if (far.generation > far.written) {
    write_first_half(owner, slot, far);
    return true;
  }
  if (far.go) {
    write_second_half(owner, slot, far);
    return true;
  }
  return false;
}

// True if every kind of event has happened on this rank.
bool has_seen_all() {
  if (puts == 0 || reuses == 0 || left_under_way == 0 || held == 0) return false;
  const hydrant_remote_stats_t stats = statistics_now();
  return stats.hits != 0 && stats.recalls != 0;
}

void take_turns(double seconds) {
  const double begin = now_s();
  bool told_enough = false;
  // Slow machines take longer, all ranks together.
  while (now_s() < begin + seconds ||
         (satisfied < size && now_s() < begin + seconds + 60 * hydrant::testing::patience())) {
    bool worked = false;
    if (!told_enough && has_seen_all()) {
      told_enough = true;
      for (gex_Rank_t rank = 0; rank < size; ++rank) note(rank, kEnough, 0, 0);
    }
    ++turn;
    const auto first = static_cast<uint32_t>(chance());
    for (uint32_t i = 0; i < kSlots; ++i) {
      const uint32_t slot = (first + i) % kSlots;
      worked |= serve(owned[slot], slot);
      for (gex_Rank_t rank = 0; rank < size; ++rank) {
        if (rank != me) worked |= work(rank, slot);
      }
      gasnet_AMPoll();
    }
    if (!worked) usleep(20);
  }
}

void choose_mutant(const char* name) {
#if HYDRANT_MUTANTS
  for (int i = 0; i < static_cast<int>(hydrant::Mutant::kCount); ++i) {
    const auto mutant = static_cast<hydrant::Mutant>(i);
    if (std::strcmp(name, hydrant::mutant_info(mutant).name) != 0) continue;
    hydrant::set_mutant(mutant, 0);
    return;
  }
#else
  if (std::strcmp(name, "none") == 0) return;
  std::printf("this build has no mutants\n");
  std::fflush(stdout);
  gasnet_exit(0);
#endif
  wrong("no mutant %s", name);
}

}  // namespace
}  // namespace stale

void on_note(gex_Token_t token, int32_t what, int32_t slot_number, int32_t generation_number,
             int32_t high, int32_t low) {
  using namespace stale;
  gex_Token_Info_t info;
  gex_Token_Info(token, &info, GEX_TI_SRCRANK);
  const gex_Rank_t from = info.gex_srcrank;
  const auto slot = static_cast<uint32_t>(slot_number);
  const auto generation = static_cast<uint32_t>(generation_number);
  const uintptr_t at = uintptr_t{static_cast<uint32_t>(high)} << 32 | static_cast<uint32_t>(low);
  if (what == kTold) told(from, slot, reinterpret_cast<std::byte*>(at), generation);
  if (what == kDone) ++owned[slot].done;
  if (what == kStarted) ++owned[slot].started;
  if (what == kEnough) ++satisfied;
  if (what == kGo) others[from][slot].go = true;
}

void hunt_stale(double seconds, uint64_t seed, const char* mutant) {
  using namespace stale;
  std::printf("rank %u of %u by %d\n", me, size, static_cast<int>(getpid()));
  std::fflush(stdout);
  chance.seed(seed * 16 + me);
  static_assert(sizeof(Told) == 16 && kMaxRanks <= kNoRank);
  std::memset(static_cast<void*>(board(me)), 0, sizeof(Told) * kMaxRanks * kSlots);
  for (uint32_t slot = 0; slot < kSlots; ++slot) {
    owned[slot].at = first_memory(way_of(slot));
    fill(owned[slot], slot);
  }
  barrier();
  choose_mutant(mutant);
  for (uint32_t slot = 0; slot < kSlots; ++slot) tell(owned[slot], slot);
  take_turns(seconds);
  let_go();
  for (auto& of_rank : others) {
    for (Far& far : of_rank) gex_Event_Wait(far.under_way);
  }
  barrier();
  const hydrant_remote_stats_t stats = statistics_now();
  std::printf("rank %u: %" PRIu64 " puts, %" PRIu64 " hits, %" PRIu64 " left under way, %" PRIu64
              " held, %" PRIu64 " recalls, %" PRIu64
              " addresses used again while exported, %" PRIu64 " refused\n",
              me, puts, stats.hits, left_under_way, held, stats.recalls, reuses,
              hydrant::refused_operation_count());
  std::fflush(stdout);
  barrier();
}

}  // namespace rma_client
