// Random vector, indexed and strided transfers with the next rank, against copies byte by byte. Ends with 0
// and "all held", or with a line that begins with "WRONG". Arguments: the scenario, a seed, the number of
// rounds.
#include <hydrant/persistent.h>

#include "tests/integration/teams/failing_new.hpp"
#include "tests/integration/vis/vis_calls.hpp"
#include "tests/integration/vis/vis_job.hpp"
#include "tests/unit/extended/vis/random_shapes.hpp"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

using hydrant::testing::bytes_of;
using hydrant::testing::pick;
using hydrant::testing::random_grid;
using hydrant::testing::random_vector;
using hydrant::testing::RandomGrid;

namespace {

constexpr gex_AM_Index_t kNotice = 200;

gex_EP_t endpoint;
size_t notices = 0;
size_t notice_bytes = 0;

// Tells a target which words a put with a notice has written.
struct Slot {
  uint64_t number = 0;
  uint64_t sum = 0;
};
constexpr size_t kSlots = 16;
constexpr size_t kPieces = 100;

void on_notice(gex_Token_t token, void* data, size_t bytes) {
  gex_Token_Info_t info;
  const gex_TI_t known = gex_Token_Info(token, &info, GEX_TI_ALL);
  check((known & GEX_TI_SRCRANK) != 0 && info.gex_srcrank == (me + job_size - 1) % job_size,
        "the sender of a notice");
  check(info.gex_is_req == 0, "a notice is a reply");
  Slot slot;
  if (bytes == sizeof slot) {
    std::memcpy(&slot, data, sizeof slot);
    uint64_t sum = 0;
    for (size_t i = 0; i < kPieces; ++i) {
      uint64_t word = 0;
      std::memcpy(&word, mine + (i * kSlots + slot.number) * 8, sizeof word);
      sum += word;
    }
    check(sum == slot.sum, "the data of a put before its notice");
  }
  ++notices;
  notice_bytes += bytes;
}

struct Memory {
  std::vector<std::byte> expected;  // in the peer's area
  std::vector<std::byte> heap;      // sources and destinations of this rank
  std::byte* own(std::mt19937& random) {
    return random() % 2 == 0 ? heap.data() : mine + kSegment / 2;
  }
};

// The bytes of both sides, in order.
struct Bytes {
  hydrant::testing::Addresses dest;
  hydrant::testing::Addresses source;
};

// A random way to make one call, by team and rank.
struct Way {
  Manner manner;
  gex_TM_t tm;
  gex_Rank_t rank;
};

Way random_way(std::mt19937& random, bool is_get) {
  Way way = {{.is_get = is_get}, world, peer};
  way.manner.how = static_cast<How>(random() % 3);
  if (random() % 4 == 0) {
    way.manner.is_gasnet1 = true;
    return way;
  }
  if (random() % 3 == 0) {
    way.tm = turned;
    way.rank = (peer + 1) % job_size;
  } else if (random() % 3 == 0) {
    way.tm = gex_TM_Pair(endpoint, 0);
  }
  if (random() % 3 == 0) way.manner.flags |= GEX_FLAG_IMMEDIATE;
  if (!is_get && way.manner.how != How::kBlocking && random() % 2 == 0)
    way.manner.flags |= GEX_FLAG_ENABLE_LEAF_LC;
  return way;
}

size_t sent_notices = 0;
size_t sent_notice_bytes = 0;
std::byte notice[GEX_VIS_MAX_PEERCOMPLETION];

template <typename Arguments>
void run(const Way& way, const Arguments& arguments, const Bytes& bytes, Memory& memory,
         std::mt19937& random) {
  Manner manner = way.manner;
  if (manner.is_get) {
    for (const uintptr_t to : bytes.dest) *bytes_at(to) = std::byte{0xee};
  } else {
    for (const uintptr_t from : bytes.source) *bytes_at(from) = static_cast<std::byte>(random());
    for (size_t i = 0; i < bytes.dest.size(); ++i)
      memory.expected[offset_of(bytes.dest[i])] = *bytes_at(bytes.source[i]);
    if ((manner.flags & GEX_FLAG_IMMEDIATE) == 0 && random() % 6 == 0) {
      size_t length = pick(random, 0, sizeof notice);
      if (length == sizeof(Slot)) ++length;
      gex_VIS_SetPeerCompletionHandler(kNotice, notice, length, 0);
      ++sent_notices;
      sent_notice_bytes += length;
    }
  }
  Started started = call(manner, way.tm, way.rank, arguments);
  if (started.is_nothing()) {
    check((manner.flags & GEX_FLAG_IMMEDIATE) != 0, "an operation that has not started");
    manner.flags &= ~GEX_FLAG_IMMEDIATE;
    started = call(manner, way.tm, way.rank, arguments);
  }
  if ((manner.flags & GEX_FLAG_ENABLE_LEAF_LC) != 0) {
    if (started.event != GEX_EVENT_INVALID)
      gex_Event_Wait(gex_Event_QueryLeaf(started.event, GEX_EC_LC));
    else
      gex_NBI_Wait(GEX_EC_LC, 0);
    for (const uintptr_t from : bytes.source) *bytes_at(from) = std::byte{0xaa};
  }
  if (manner.how == How::kEvent) gex_Event_Wait(started.event);
  if (manner.how == How::kImplicit) gex_NBI_Wait(GEX_EC_ALL, 0);
  if (!manner.is_get) return;
  for (size_t i = 0; i < bytes.dest.size(); ++i)
    check(*bytes_at(bytes.dest[i]) == memory.expected[offset_of(bytes.source[i])], "what was got");
}

void run_vectors(std::mt19937& random, Memory& memory, bool is_get) {
  const size_t longest = random() % 3 == 0 ? 8 : pick(random, 1, 3000);
  const auto far = reinterpret_cast<uintptr_t>(peers);
  const auto near = reinterpret_cast<uintptr_t>(memory.own(random));
  auto dest = random_vector(random, is_get ? near : far, kRoom, longest);
  auto source = random_vector(random, is_get ? far : near, kRoom, longest);
  size_t sums[2] = {bytes_of(dest).size(), bytes_of(source).size()};
  auto& longer = sums[0] > sums[1] ? dest : source;
  for (size_t excess = std::max(sums[0], sums[1]) - std::min(sums[0], sums[1]); excess != 0;) {
    const size_t cut = std::min(excess, longer.back().gex_len);
    longer.back().gex_len -= cut;
    excess -= cut;
    if (longer.back().gex_len == 0) longer.pop_back();
  }
  run(random_way(random, is_get), Vectors{dest.size(), dest.data(), source.size(), source.data()},
      {bytes_of(dest), bytes_of(source)}, memory, random);
}

std::vector<void*> random_indices(std::mt19937& random, uintptr_t start, size_t count,
                                  size_t bytes) {
  std::vector<void*> list;
  const size_t gap = count == 0 ? 0 : random() % (1 + (kRoom - count * bytes) / count);
  for (size_t i = 0; i < count; ++i)
    list.push_back(reinterpret_cast<void*>(start + i * (bytes + gap)));
  if (random() % 2 == 0) std::shuffle(list.begin(), list.end(), random);
  return list;
}

void run_indices(std::mt19937& random, Memory& memory, bool is_get) {
  const size_t unit = random() % 2 == 0 ? size_t{1} << random() % 6 : pick(random, 1, 50);
  const size_t factors[2] = {pick(random, 1, 4), pick(random, 1, 4)};
  const size_t most = kRoom / (unit * factors[0] * factors[1]);
  const size_t blocks = random() % 10 == 0 ? 0 : pick(random, 1, std::min<size_t>(most, 400));
  const auto far = reinterpret_cast<uintptr_t>(peers);
  const auto near = reinterpret_cast<uintptr_t>(memory.own(random));
  const size_t counts[2] = {blocks * factors[1], blocks * factors[0]};
  const auto dest = random_indices(random, is_get ? near : far, counts[0], unit * factors[0]);
  const auto source = random_indices(random, is_get ? far : near, counts[1], unit * factors[1]);
  Bytes bytes;
  for (void* piece : dest)
    for (size_t i = 0; i < unit * factors[0]; ++i)
      bytes.dest.push_back(reinterpret_cast<uintptr_t>(piece) + i);
  for (void* piece : source)
    for (size_t i = 0; i < unit * factors[1]; ++i)
      bytes.source.push_back(reinterpret_cast<uintptr_t>(piece) + i);
  run(random_way(random, is_get),
      Indices{counts[0], dest.data(), unit * factors[0], counts[1], source.data(),
              unit * factors[1]},
      bytes, memory, random);
}

void run_strides(std::mt19937& random, Memory& memory, bool is_get) {
  const auto far = reinterpret_cast<uintptr_t>(peers);
  const auto near = reinterpret_cast<uintptr_t>(memory.own(random));
  const RandomGrid grid = random_grid(random, is_get ? near : far, is_get ? far : near, kRoom);
  Bytes bytes;
  for (const auto& [to, from] : grid.pairs()) {
    bytes.dest.push_back(to);
    bytes.source.push_back(from);
  }
  std::vector<size_t> counts = {grid.element};
  counts.insert(counts.end(), grid.counts.begin(), grid.counts.end());
  run(random_way(random, is_get),
      Strides{bytes_at(grid.dest), grid.dest_strides.data(), bytes_at(grid.source),
              grid.source_strides.data(), counts.data(), grid.counts.size()},
      bytes, memory, random);
}

void check_area(const Memory& memory) {
  std::vector<std::byte> found(kRoom);
  gex_RMA_GetBlocking(world, found.data(), peer, peers, kRoom, 0);
  check(found == memory.expected, "the bytes at the target");
}

void run_random(uint32_t seed, int rounds) {
  std::mt19937 random(seed * 100 + me);
  Memory memory = {std::vector<std::byte>(kRoom), std::vector<std::byte>(kRoom)};
  gex_RMA_GetBlocking(world, memory.expected.data(), peer, peers, kRoom, 0);
  for (int round = 0; round < rounds; ++round) {
    const bool is_get = round % 2 == 1;
    switch (random() % 3) {
      case 0: run_vectors(random, memory, is_get); break;
      case 1: run_indices(random, memory, is_get); break;
      default: run_strides(random, memory, is_get); break;
    }
    if (!is_get) check_area(memory);
  }
  // The next rank tells how many notices are on their way.
  uint64_t sums[2] = {sent_notices, sent_notice_bytes};
  gex_RMA_PutBlocking(world, peer, peers + kRoom, sums, sizeof sums, 0);
  barrier();
  std::memcpy(sums, mine + kRoom, sizeof sums);
  GASNET_BLOCKUNTIL(notices >= sums[0]);
  check(notices == sums[0] && notice_bytes == sums[1], "the notices");
  barrier();
}

// Several under way, each with a notice.
void run_under_way(uint32_t seed, int rounds) {
  std::mt19937 random(seed);
  for (int round = 1; round <= rounds; ++round) {
    std::vector<uint64_t> sources(kSlots * kPieces);
    std::vector<uint64_t> results(sources.size());
    std::vector<void*> far[kSlots];
    std::vector<void*> near[2][kSlots];
    gex_Event_t events[kSlots];
    Slot slots[kSlots];
    for (size_t i = 0; i < kSlots; ++i) {
      slots[i].number = i;
      for (size_t j = 0; j < kPieces; ++j) {
        sources[i * kPieces + j] = random();
        slots[i].sum += sources[i * kPieces + j];
        far[i].push_back(peers + (j * kSlots + i) * 8);
        near[0][i].push_back(&sources[i * kPieces + j]);
        near[1][i].push_back(&results[i * kPieces + j]);
      }
      gex_VIS_SetPeerCompletionHandler(kNotice, &slots[i], sizeof slots[i], 0);
      events[i] = gex_VIS_IndexedPutNB(world, peer, kPieces, far[i].data(), 8, kPieces,
                                       near[0][i].data(), 8, 0);
    }
    gex_Event_WaitAll(events, kSlots, 0);
    for (size_t i = 0; i < kSlots; ++i)
      events[i] = gex_VIS_IndexedGetNB(world, kPieces, near[1][i].data(), 8, peer, kPieces,
                                       far[i].data(), 8, 0);
    for (size_t i = kSlots; i-- > 0;) gex_Event_Wait(events[i]);
    check(results == sources, "operations under way at once");
    GASNET_BLOCKUNTIL(notices == static_cast<size_t>(round) * kSlots);
    barrier();
  }
}

// Strided transfers without bytes ignore ranks, addresses, strides, and counts beside a 0.
void run_empty() {
  constexpr size_t kCounts[2][3] = {{8, 5, 0}, {0, 5, 1}};  // an element's bytes first
  for (const auto& counts : kCounts) {
    const Strides nothing = {nullptr, nullptr, nullptr, nullptr, counts, 2};
    for (int i = 0; i < 12; ++i) {
      const Manner manner = {
          .is_get = i % 2 == 1, .how = static_cast<How>(i / 2 % 3), .is_gasnet1 = i >= 6};
      check(!call(manner, world, job_size, nothing).is_nothing(), "a transfer without bytes");
    }
    hydrant_operation_t empty = nullptr;
    good(hydrant_put_strided_init(world, job_size, nullptr, nullptr, nullptr, nullptr, counts[0],
                                  counts + 1, 2, &empty),
         "an operation without bytes");
    good(hydrant_start(empty), "its start");
    good(hydrant_wait(empty), "its wait");
    good(hydrant_operation_free(&empty), "its end");
  }
  gex_NBI_Wait(GEX_EC_ALL, 0);
}

// A put of a column of pieces, whose peer has no firehose yet.
void run_column() {
  constexpr size_t kPieceBytes = 4096;
  constexpr size_t kCount = 64;
  std::vector<std::byte> source(kPieceBytes * kCount, std::byte{7});
  const size_t count[1] = {kCount};
  const ptrdiff_t far[1] = {2 * kPieceBytes};
  const ptrdiff_t near[1] = {kPieceBytes};
  gex_VIS_StridedPutBlocking(world, peer, peers + kSegment / 2, far, source.data(), near,
                             kPieceBytes, count, 1, 0);
  barrier();
  for (size_t i = 0; i < kCount; ++i)
    check(mine[kSegment / 2 + 2 * i * kPieceBytes + kPieceBytes - 1] == std::byte{7}, "the column");
}

// Transfers without end; the last rank is killed among them.
[[noreturn]] void run_killed(int rounds) {
  constexpr size_t kCount = 200;
  std::vector<uint64_t> words(2 * kCount);
  const size_t count[1] = {kCount};
  const ptrdiff_t strides[1] = {16};
  std::vector<void*> far;
  std::vector<void*> near;
  for (size_t i = 0; i < kCount; ++i) {
    far.push_back(peers + 16 * i);
    near.push_back(&words[2 * i]);
  }
  for (int round = 0;; ++round) {
    if (round == rounds && me == job_size - 1) (void)raise(SIGKILL);
    gex_Event_t events[4] = {
        gex_VIS_StridedPutNB(world, peer, peers, strides, words.data(), strides, 8, count, 1, 0),
        gex_VIS_IndexedPutNB(world, peer, kCount, far.data(), 8, kCount, near.data(), 8, 0),
        gex_VIS_StridedGetNB(world, words.data(), strides, peer, peers, strides, 8, count, 1, 0),
        gex_VIS_IndexedGetNB(world, kCount, near.data(), 8, peer, kCount, far.data(), 8, 0)};
    gex_Event_WaitAll(events, 4, 0);
    gasnet_AMPoll();
  }
}

// ---- wrong calls ----

void on_wrong(gex_Token_t) {
  void* place = mine;
  (void)gex_VIS_IndexedGetBlocking(world, 1, &place, 1, peer, 1, &place, 1, 0);
}

void run_wrong(const std::string& what) {
  uint64_t words[8] = {};
  void* near[2] = {&words[0], &words[4]};
  void* far[2] = {peers, peers + 64};
  const gex_Memvec_t vector = {nullptr, 8};
  const size_t count[1] = {4};
  const ptrdiff_t strides[1] = {8};
  const ptrdiff_t wide[1] = {ptrdiff_t{1} << 30};
  const ptrdiff_t same[1] = {4};
  if (what == "lengths") gex_VIS_IndexedPutNBI(world, peer, 2, far, 8, 2, near, 16, 0);
  if (what == "rank") gex_VIS_IndexedPutNBI(world, job_size, 2, far, 8, 2, near, 8, 0);
  if (what == "null") gex_VIS_IndexedPutNBI(world, peer, 2, far, 8, 2, nullptr, 8, 0);
  if (what == "piece") gex_VIS_VectorPutNBI(world, peer, 1, &vector, 1, &vector, 0);
  if (what == "counts")
    gex_VIS_StridedPutNBI(world, peer, peers, strides, words, strides, 8, nullptr, 1, 0);
  if (what == "wraps") {
    const ptrdiff_t huge[1] = {PTRDIFF_MAX};
    gex_VIS_StridedPutNBI(world, peer, peers, huge, words, strides, 8, count, 1, 0);
  }
  if (what == "wraps_most") {
    const ptrdiff_t least[1] = {PTRDIFF_MIN};
    gex_VIS_StridedPutNBI(world, peer, peers, least, words, strides, 8, count, 1, 0);
  }
  if (what == "longest") gex_VIS_IndexedPutNBI(world, peer, 1, far, SIZE_MAX, 1, near, SIZE_MAX, 0);
  if (what == "overlap") {
    far[1] = peers + 4;
    gex_VIS_IndexedPutNBI(world, peer, 2, far, 8, 2, near, 8, 0);
  }
  if (what == "grid")
    gex_VIS_StridedPutNBI(world, peer, peers, same, words, strides, 8, count, 1, 0);
  if (what == "large_grid") {
    const size_t large[1] = {size_t{1} << 60};
    const ptrdiff_t none[1] = {0};
    gex_VIS_StridedPutNBI(world, peer, peers, none, words, none, 8, large, 1, 0);
  }
  if (what == "segment")
    gex_VIS_StridedPutNBI(world, peer, peers, wide, words, strides, 8, count, 1, 0);
  if (what == "long_notice")
    gex_VIS_SetPeerCompletionHandler(kNotice, words, GEX_VIS_MAX_PEERCOMPLETION + 1, 0);
  if (what == "own_handler") gex_VIS_SetPeerCompletionHandler(5, nullptr, 0, 0);
  if (what == "get_notice") {
    gex_VIS_SetPeerCompletionHandler(kNotice, nullptr, 0, 0);
    gex_VIS_IndexedGetNBI(world, 2, near, 8, peer, 2, far, 8, 0);
  }
  if (what == "handler") {
    gex_AM_RequestShort0(world, peer, kNotice + 1, 0);
    GASNET_BLOCKUNTIL(false);
  }
  std::fprintf(stderr, "not refused\n");
}

void run_starved(uint32_t seed) {
  run_random(seed, 4);
  fail_allocation(seed);
  run_random(seed + 1, 30);
  if (!has_allocation_failed()) std::fprintf(stderr, "nothing failed\n");
  fail_allocation(-1);
}

}  // namespace

int main(int argc, char** argv) {
  gex_Client_t client;
  if (argc < 4 || gex_Client_Init(&client, &endpoint, &world, "vis", &argc, &argv, 0) != GASNET_OK)
    return 2;
  const std::string what = argv[1];
  const auto seed = static_cast<uint32_t>(std::atoi(argv[2]));
  const int rounds = std::atoi(argv[3]);
  gex_Segment_t segment;
  if (gex_Segment_Attach(&segment, world, kSegment) != GASNET_OK) return 2;
  gex_AM_Entry_t entries[] = {{kNotice, reinterpret_cast<gex_AM_Fn_t>(on_notice),
                               GEX_FLAG_AM_MEDIUM | GEX_FLAG_AM_REPLY, 0, nullptr, "notice"},
                              {kNotice + 1, reinterpret_cast<gex_AM_Fn_t>(on_wrong),
                               GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST, 0, nullptr, "wrong"}};
  gex_EP_RegisterHandlers(endpoint, entries, 2);
  me = gex_TM_QueryRank(world);
  job_size = gex_TM_QuerySize(world);
  peer = (me + 1) % job_size;
  mine = static_cast<std::byte*>(gex_Segment_QueryAddr(segment));
  void* owner = nullptr;
  gex_Event_Wait(gex_EP_QueryBoundSegmentNB(world, peer, &owner, nullptr, nullptr, 0));
  peers = static_cast<std::byte*>(owner);
  gex_TM_Split(&turned, world, 0, static_cast<int>((me + 1) % job_size), nullptr, 0,
               GEX_FLAG_TM_NO_SCRATCH);
  barrier();
  if (what == "random")
    run_random(seed, rounds);
  else if (what == "under_way")
    run_under_way(seed, rounds);
  else if (what == "persistent")
    run_persistent(seed, rounds);
  else if (what == "persistent_wrong")
    run_persistent_wrong();
  else if (what == "empty")
    run_empty();
  else if (what == "column")
    run_column();
  else if (what == "killed")
    run_killed(rounds);
  else if (what == "starved")
    run_starved(seed);
  else
    run_wrong(what);
  barrier();
  if (me == 0) std::fprintf(stderr, "all held\n");
  gasnet_exit(0);
  return 0;
}
