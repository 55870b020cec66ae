// Broadcasts with random roots, lengths and buffers, several outstanding at a time, against data that
// every rank can compute. Ends with 0 and "all held", or with a line that begins with "WRONG".
// Arguments: the test ("many", "polled", "root", "null"), and the number of rounds.
#include <gasnetex.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <gasnet_coll.h>
#include <random>
#include <unistd.h>
#include <vector>

namespace {

constexpr size_t kOutstanding = 6;
constexpr size_t kMaxBytes = 300'000;  // more than one piece

gex_TM_t team;
gex_Rank_t me;
gex_Rank_t size;

struct Broadcast {
  gex_Rank_t root = 0;
  bool in_place = false;  // the root's destination is its source
  uint32_t seed = 0;
  std::vector<unsigned char> source;
  std::vector<unsigned char> dest;

  unsigned char expected(size_t i) const { return static_cast<unsigned char>(i * 13 + seed); }

  gex_Event_t start(std::mt19937& common) {
    root = static_cast<gex_Rank_t>(common() % size);
    seed = static_cast<uint32_t>(common());
    in_place = common() % 4 == 0;
    const size_t bytes = common() % 3 == 0 ? common() % kMaxBytes : common() % 200;
    dest.assign(bytes + 1, 0xee);
    source.resize(bytes);
    auto& data = in_place ? dest : source;
    if (me == root) {
      for (size_t i = 0; i < bytes; ++i) data[i] = expected(i);
    }
    return gex_Coll_BroadcastNB(team, root, dest.data(), me == root ? data.data() : nullptr, bytes,
                                0);
  }

  void check() const {
    for (size_t i = 0; i + 1 < dest.size(); ++i) {
      if (dest[i] == expected(i)) continue;
      std::fprintf(stderr, "WRONG (rank %u): byte %zu of %zu from rank %u is %u, not %u\n", me, i,
                   dest.size() - 1, root, dest[i], expected(i));
      gasnet_exit(3);
    }
    if (dest.back() != 0xee) {
      std::fprintf(stderr, "WRONG (rank %u): written behind the %zu bytes\n", me, dest.size() - 1);
      gasnet_exit(3);
    }
  }
};

// `common` is equal on all ranks, `own` is not.
void run_many(int rounds) {
  std::mt19937 common(7);
  std::mt19937 own(me);
  std::vector<Broadcast> all(kOutstanding);
  std::vector<gex_Event_t> events(kOutstanding);
  for (int round = 0; round < rounds; ++round) {
    const size_t count = 1 + common() % kOutstanding;
    for (size_t i = 0; i < count; ++i) {
      if (own() % 16 == 0) usleep(static_cast<useconds_t>(own() % 2000));
      events[i] = all[i].start(common);
    }
    if (own() % 2 == 0) {
      for (size_t i = count; i-- > 0;) gex_Event_Wait(events[i]);
    } else {
      gex_Event_WaitAll(events.data(), count, 0);
    }
    for (size_t i = 0; i < count; ++i) all[i].check();
    // The root may reuse its buffers before other ranks have checked theirs.
    for (size_t i = 0; i < count; ++i) all[i].source.assign(all[i].source.size(), 0x11);
  }
}

// The other ranks compute: the broadcast must need only their polls.
void run_polled(int rounds) {
  std::vector<unsigned char> data(100'000, static_cast<unsigned char>(me == 0 ? 0x5a : 0));
  for (int round = 0; round < rounds; ++round) {
    const gex_Event_t event =
        gex_Coll_BroadcastNB(team, 0, data.data(), data.data(), data.size(), 0);
    if (me == 0) gex_Event_Wait(event);
    // Rank 0 gets here only if the other ranks received their data by polling, not by waiting.
    const gex_Event_t barrier = gex_Coll_BarrierNB(team, 0);
    gex_Event_Wait(barrier);
    if (me != 0) gex_Event_Wait(event);
    if (data.back() != 0x5a) gasnet_exit(3);
  }
}

}  // namespace

int main(int argc, char** argv) {
  gex_Client_t client;
  gex_EP_t endpoint;
  if (gex_Client_Init(&client, &endpoint, &team, "broadcast_client", &argc, &argv, 0) != GASNET_OK)
    return 2;
  if (argc < 3) gasnet_exit(2);
  me = gex_TM_QueryRank(team);
  size = gex_TM_QuerySize(team);
  char byte = 0;
  if (std::strcmp(argv[1], "many") == 0) run_many(std::atoi(argv[2]));
  if (std::strcmp(argv[1], "polled") == 0) run_polled(std::atoi(argv[2]));
  if (std::strcmp(argv[1], "root") == 0) gex_Coll_BroadcastNB(team, size, &byte, &byte, 1, 0);
  if (std::strcmp(argv[1], "null") == 0) gex_Coll_BroadcastNB(team, 0, nullptr, &byte, 1, 0);
  gex_Event_Wait(gex_Coll_BarrierNB(team, 0));
  if (me == 0) std::puts("all held");
  std::fflush(stdout);
  gasnet_exit(0);
}
