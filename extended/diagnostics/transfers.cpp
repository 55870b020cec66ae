// Sections A, B and E: collectives, puts and gets in all forms, remote atomics.
#include <gasnetex.h>
#include <hydrant/coll.h>

#include "extended/diagnostics/diagnostics.hpp"

#include <algorithm>
#include <cstring>
#include <gasnet_coll.h>
#include <gasnet_ratomic.h>
#include <gasnet_vis.h>
#include <memory>
#include <new>

namespace hydrant::diagnostics {

void check_collectives(Run& run) noexcept {
  const uint32_t arguments[2] = {run.rounds, run.seed};
  uint32_t of_root[2] = {run.rounds, run.seed};
  gex_Event_Wait(gex_Coll_BroadcastNB(run.team, 0, of_root, arguments, sizeof of_root, 0));
  run.expect(of_root[0] == run.rounds && of_root[1] == run.seed,
             "rank 0 passes other iterations or another seed");
  const std::unique_ptr<uint64_t[]> all(new (std::nothrow) uint64_t[run.ranks]);
  if (!run.expect(all != nullptr, "no memory for %u numbers", run.ranks)) return;
  // Each rank does as many as rank 0, whatever it was passed.
  for (uint32_t round = 0; round < std::max(of_root[0] / 10, 1u); ++round) {
    const uint64_t own = uint64_t{run.rank} * 1000 + round;
    gex_Event_Wait(hydrant_gather_all_nb(run.team, all.get(), &own, sizeof own));
    for (gex_Rank_t rank = 0; rank < run.ranks; ++rank)
      run.expect(all[rank] == uint64_t{rank} * 1000 + round,
                 "a gather has another value of rank %u", rank);
    uint64_t total = 0;
    gex_Event_Wait(gex_Coll_ReduceToAllNB(run.team, &total, &own, GEX_DT_U64, sizeof own, 1,
                                          GEX_OP_ADD, nullptr, nullptr, 0));
    const uint64_t wanted =
        uint64_t{run.ranks} * (run.ranks - 1) / 2 * 1000 + uint64_t{run.ranks} * round;
    run.expect(total == wanted, "a reduction is %llu instead of %llu",
               static_cast<unsigned long long>(total), static_cast<unsigned long long>(wanted));
    gex_Event_Wait(gex_Coll_BarrierNB(run.team, 0));
  }
}

namespace {

// A put and a get of the same bytes in one form.
void move(Run& run, uint32_t form, std::byte* there, std::byte* back, std::byte* from,
          size_t bytes) noexcept {
  if (form == 0) {
    gex_RMA_PutBlocking(run.team, run.peer, there, from, bytes, 0);
    gex_RMA_GetBlocking(run.team, back, run.peer, there, bytes, 0);
  } else if (form == 1) {
    gex_Event_Wait(gex_RMA_PutNB(run.team, run.peer, there, from, bytes, GEX_EVENT_DEFER, 0));
    gex_Event_Wait(gex_RMA_GetNB(run.team, back, run.peer, there, bytes, 0));
  } else if (form == 2) {
    gex_RMA_PutNBI(run.team, run.peer, there, from, bytes, GEX_EVENT_DEFER, 0);
    gex_NBI_Wait(GEX_EC_PUT, 0);
    gex_RMA_GetNBI(run.team, back, run.peer, there, bytes, 0);
    gex_NBI_Wait(GEX_EC_GET, 0);
  } else {
    // Rows of up to 16 bytes, every second one in the peer's memory.
    const size_t row = std::min<size_t>(bytes, 16);
    const size_t count[1] = {bytes / row / 2 + (bytes == row ? 1 : 0)};
    const ptrdiff_t dense[1] = {static_cast<ptrdiff_t>(row)};
    const ptrdiff_t sparse[1] = {static_cast<ptrdiff_t>(2 * row)};
    std::memcpy(back, from, bytes);
    std::memset(back, 0, count[0] * row);
    gex_VIS_StridedPutBlocking(run.team, run.peer, there, sparse, from, dense, row, count, 1, 0);
    gex_VIS_StridedGetBlocking(run.team, back, dense, run.peer, there, sparse, row, count, 1, 0);
  }
}

}  // namespace

void check_transfers(Run& run, const Part& part, uint32_t rounds) noexcept {
  std::byte from[4096];
  std::byte back[4096];
  Noise noise(run.seed + run.rank * kMaxThreads + part.thread);
  const auto most = static_cast<uint32_t>(std::min(sizeof from, part.bytes / 2));
  for (uint32_t round = 0; round < rounds; ++round) {
    const size_t bytes = noise.below(round % 4 == 0 ? most : 64) + 1;
    const size_t sent = std::min<size_t>(bytes, most);
    const uint32_t offset = noise.below(static_cast<uint32_t>(part.bytes / 2)) & ~uint32_t{7};
    noise.fill(from, sent);
    std::memset(back, 0, sent);
    const uint32_t form = round % 4;
    move(run, form, run.theirs + part.offset + std::min(part.bytes / 2 - 8, size_t{offset}), back,
         from, sent);
    run.expect(std::memcmp(from, back, sent) == 0,
               "a get of %zu bytes, form %u, is not what was put", sent, form);
  }
}

// Each rank's first word is incremented by the rank itself and by the one whose peer it is.
void check_atomics(Run& run) noexcept {
  void* const word = run.mine;
  void* const other = run.theirs;
  std::memset(word, 0, sizeof(uint64_t));
  gex_AD_t domain = GEX_AD_INVALID;
  gex_AD_Create(&domain, run.team, GEX_DT_U64, GEX_OP_FADD | GEX_OP_INC | GEX_OP_GET, 0);
  gex_Event_Wait(gex_Coll_BarrierNB(run.team, 0));
  uint64_t last = 0;
  for (uint32_t round = 0; round < run.rounds; ++round) {
    uint64_t before = 0;
    gex_Event_Wait(gex_AD_OpNB_U64(domain, &before, run.peer, other, GEX_OP_FADD, 1, 0, 0));
    run.expect(round == 0 || before > last, "a word went from %llu back to %llu",
               static_cast<unsigned long long>(last), static_cast<unsigned long long>(before));
    last = before;
    gex_AD_OpNBI_U64(domain, nullptr, run.rank, word, GEX_OP_INC, 0, 0, 0);
  }
  gex_NBI_Wait(GEX_EC_RMW, 0);
  gex_Event_Wait(gex_Coll_BarrierNB(run.team, 0));
  uint64_t total = 0;
  gex_Event_Wait(gex_AD_OpNB_U64(domain, &total, run.rank, word, GEX_OP_GET, 0, 0, 0));
  run.expect(total == uint64_t{run.rounds} * 2, "%llu increments instead of %llu",
             static_cast<unsigned long long>(total),
             static_cast<unsigned long long>(run.rounds) * 2);
  gex_Event_Wait(gex_Coll_BarrierNB(run.team, 0));
  gex_AD_Destroy(domain);
}

}  // namespace hydrant::diagnostics
