// Communication of Cannon's multiplication, bitonic sort, page sharing and leases; firehose_bench calls it.
#include "bench/support/put_kernels.hpp"

#include "bench/support/limits.hpp"
#include "bench/support/machine.hpp"

#include <algorithm>
#include <random>

namespace hydrant::bench {
namespace {

constexpr uint32_t kSide = 4, kRanks = kSide * kSide;  // ranks of the kernels
constexpr uint32_t kWindow = 8;
constexpr size_t kBlockRow = 1 * kKiB, kBlockRows = 128, kBlock = kBlockRow * kBlockRows;
constexpr size_t kPiece = 2 * kKiB, kKeys = 512 * kKiB;  // keys of a rank, in bytes
constexpr uint64_t kRankBudget = 16 * kMiB;

using Programs = std::vector<std::vector<PutOp>>;

// Memory of all ranks: the targets of puts, and their data.
struct Stage {
  Stage(size_t rank_bytes, double rate)
      : of_rank(rank_bytes), wire_rate(rate), memory(kRanks * rank_bytes, PageKind::kSmall) {}
  std::byte* at(uint32_t rank, size_t offset) const { return memory.at(rank * of_rank + offset); }
  PutSetting setting() const {
    PutSetting setting;
    setting.wire_rate = wire_rate;
    setting.ranks = kRanks;
    setting.window = kWindow;
    setting.largest = std::max(kBlockRow, kPiece);
    setting.budget_bytes = kRankBudget;
    for (uint32_t rank = 0; rank < kRanks; ++rank)
      setting.memory.push_back({rank, at(rank, 0), of_rank});
    return setting;
  }
  size_t of_rank;
  double wire_rate;
  Memory memory;
  Memory source{page_bytes(), PageKind::kSmall};
};

void add_puts(const Stage& stage, uint32_t from, uint32_t to, size_t offset, size_t bytes,
              size_t piece, Programs* programs) {
  for (size_t done = 0; done < bytes; done += piece) {
    (*programs)[from].push_back(
        {from, to, stage.at(to, offset + done), stage.source.data(), piece, 0, {}});
  }
}

// Each rank has two buffers for blocks of A and B, which alternate: one in use, one for the next block.
std::vector<Programs> cannon(const Stage& stage, int multiplications) {
  std::vector<Programs> rounds;
  for (uint32_t step = 0; step < kSide * static_cast<uint32_t>(multiplications); ++step) {
    Programs& programs = rounds.emplace_back(kRanks);
    const size_t room = (step + 1) % 2 * 2 * kBlock;
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      const uint32_t row = rank / kSide, column = rank % kSide;
      const uint32_t left = row * kSide + (column + kSide - 1) % kSide;
      const uint32_t up = (row + kSide - 1) % kSide * kSide + column;
      add_puts(stage, rank, left, room, kBlock, kBlockRow, &programs);
      add_puts(stage, rank, up, room + kBlock, kBlock, kBlockRow, &programs);
    }
  }
  return rounds;
}

// In each step all keys go to the partner, into the buffer that it does not sort from.
std::vector<Programs> bitonic(const Stage& stage, int sorts) {
  std::vector<Programs> rounds;
  uint32_t step = 0;
  for (int sort = 0; sort < sorts; ++sort) {
    for (uint32_t merge = 2; merge <= kRanks; merge *= 2) {
      for (uint32_t distance = merge / 2; distance != 0; distance /= 2) {
        Programs& programs = rounds.emplace_back(kRanks);
        const size_t half = step++ % 2 * kKeys;
        for (uint32_t rank = 0; rank < kRanks; ++rank)
          add_puts(stage, rank, rank ^ distance, half, kKeys, kPiece, &programs);
      }
    }
  }
  return rounds;
}

void run_kernel(const char* name, const Stage& stage, std::vector<Programs> rounds,
                size_t put_bytes, uint64_t delay_ns, uint32_t repetitions,
                std::vector<KernelRow>* rows) {
  constexpr PutWay kWays[] = {PutWay::kFirehose, PutWay::kRendezvousUnpin, PutWay::kRendezvousKeep,
                              PutWay::kPinEverything};
  const size_t first = rows->size();
  const std::string refusal = memlock_refusal(2 * stage.memory.bytes());
  for (const PutWay way : kWays) {
    KernelRow& row = rows->emplace_back();
    row.name = name;
    row.way = way;
    row.put_bytes = put_bytes;
    row.refusal = refusal;
    for (const Programs& programs : rounds) {
      for (const auto& program : programs) row.puts += program.size();
    }
  }
  if (!refusal.empty()) return;
  for (uint32_t repetition = 0; repetition < repetitions; ++repetition) {
    for (size_t i = 0; i < std::size(kWays); ++i) {
      KernelRow& row = (*rows)[first + i];
      const std::unique_ptr<PutStrategy> strategy = make_put_strategy(kWays[i], stage.setting());
      strategy->set_delay(delay_ns);
      double ns = 0.0;
      for (Programs& programs : rounds) ns += strategy->run(programs);
      const auto puts = static_cast<double>(row.puts);
      row.ns.push_back(ns * kRanks / puts);
      const PutCounts counts = strategy->counts();
      row.messages = static_cast<double>(counts.messages) / puts;
      row.registrations = static_cast<double>(counts.registrations) / puts;
      row.hits = static_cast<double>(counts.hits) / puts;
      if (row.refusal.empty()) row.refusal = strategy->failure();
    }
  }
  for (KernelRow& row : *rows) {
    if (!row.refusal.empty()) row.ns.clear();
  }
}

// Puts of 8 bytes to rank 0: `count` from each other rank, to random places of its set.
Programs random_puts(uint32_t ranks, size_t count, std::mt19937_64* random, const std::byte* source,
                     const std::vector<hydrant_range_t>& sets) {
  Programs programs(ranks);
  for (uint32_t rank = 1; rank < ranks; ++rank) {
    const hydrant_range_t set = sets[(rank - 1) % sets.size()];
    for (size_t i = 0; i < count; ++i) {
      auto* at = reinterpret_cast<std::byte*>(set.addr + (*random)() % (set.len / 8) * 8);
      programs[rank].push_back({rank, 0, at, source, 8, 0, {}});
    }
  }
  return programs;
}

hydrant_range_t part_of(const Memory& memory, size_t offset, size_t len) {
  return {reinterpret_cast<uintptr_t>(memory.at(offset)), len};
}

}  // namespace

std::vector<KernelRow> run_kernels(uint64_t delay_ns, double wire_rate, uint32_t repetitions,
                                   bool quick) {
  const OnCore here(0);
  std::vector<KernelRow> rows;
  {
    const Stage stage(4 * kBlock, wire_rate);
    run_kernel("cannon", stage, cannon(stage, quick ? 1 : 4), kBlockRow, delay_ns, repetitions,
               &rows);
  }
  {
    const Stage stage(2 * kKeys, wire_rate);
    run_kernel("bitonic", stage, bitonic(stage, quick ? 1 : 2), kPiece, delay_ns, repetitions,
               &rows);
  }
  return rows;
}

std::vector<SharingRow> run_sharing(uint64_t budget_bytes, uint64_t delay_ns) {
  const OnCore here(0);
  std::vector<SharingRow> rows;
  const size_t page = page_bytes();
  const size_t set = static_cast<size_t>(budget_bytes) / 16 & ~(page - 1);
  const Memory memory(set, PageKind::kSmall);
  const Memory source(page, PageKind::kSmall);
  for (const uint32_t initiators : {1u, 2u, 4u, 8u}) {
    std::mt19937_64 random(23);
    PutSetting setting;
    setting.ranks = initiators + 1;
    setting.budget_bytes = budget_bytes;
    const std::unique_ptr<PutStrategy> firehose = make_firehose_strategy(setting);
    firehose->set_delay(delay_ns);
    const size_t pages = set / page;
    Programs programs =
        random_puts(setting.ranks, 16 * pages, &random, source.data(), {part_of(memory, 0, set)});
    (void)firehose->run(programs);
    const PutCounts counts = firehose->counts();
    rows.push_back({initiators, pages,
                    static_cast<double>(counts.registrations) / static_cast<double>(pages),
                    static_cast<double>(counts.messages) / 2 / static_cast<double>(pages),
                    firehose->failure()});
  }
  return rows;
}

std::vector<LeaseRow> run_leases(uint64_t budget_bytes, uint64_t delay_ns, bool quick) {
  const OnCore here(0);
  constexpr uint32_t kActive = 6, kPeers = 64;
  std::vector<LeaseRow> rows;
  const size_t page = page_bytes();
  const Memory memory(budget_bytes, PageKind::kSmall);
  const Memory source(page, PageKind::kSmall);
  for (const size_t share : {size_t{16}, size_t{12}, size_t{8}}) {
    const size_t set = static_cast<size_t>(budget_bytes) / share & ~(page - 1);
    std::vector<hydrant_range_t> sets;
    for (uint32_t i = 0; i < kActive; ++i) sets.push_back(part_of(memory, i * set, set));
    LeaseRow row{kActive, kPeers, 1.0 / static_cast<double>(share), 0, 0, 0, 0, 0, ""};
    for (const uint32_t percent : {50u, 100u}) {
      std::mt19937_64 random(29);
      PutSetting setting;
      setting.ranks = kActive + 1;
      setting.job_ranks = kPeers + 1;
      setting.budget_bytes = budget_bytes;
      setting.base_percent = percent;
      const std::unique_ptr<PutStrategy> firehose = make_firehose_strategy(setting);
      firehose->set_delay(delay_ns);
      const size_t puts = set / page * (quick ? 4 : 16);
      Programs warm_up = random_puts(setting.ranks, puts, &random, source.data(), sets);
      (void)firehose->run(warm_up);
      const PutCounts before = firehose->counts();
      Programs programs = random_puts(setting.ranks, puts, &random, source.data(), sets);
      const double ns = firehose->run(programs);
      const double hits = static_cast<double>(firehose->counts().hits - before.hits) /
                          static_cast<double>(kActive * puts);
      (percent == 100 ? row.fixed_hits : row.leased_hits) = hits;
      (percent == 100 ? row.fixed_ns : row.leased_ns) = ns / static_cast<double>(puts);
      if (row.refusal.empty()) row.refusal = firehose->failure();
    }
    row.ratio = row.fixed_hits > 0 ? row.leased_hits / row.fixed_hits : 0.0;
    rows.push_back(row);
  }
  return rows;
}

}  // namespace hydrant::bench
