// Several endpoints per rank, each with a segment or none: created, bound, published over teams, used by
// puts, gets and messages through pairs, destroyed and replaced. Ends with 0 and "all held", or with a line
// that begins with "WRONG". Arguments: the scenario, and what addresses of library memory of the node's
// ranks are: "mapped", "unmapped" or "any".
#include <hydrant/alloc.h>

#include "tests/integration/endpoints/endpoints_job.hpp"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <gasnet_coll.h>
#include <string>
#include <vector>

namespace {

// ---- endpoints and segments ----

// The client's memory of endpoint 2: private, or with "arena" shared memory of libhydrant_alloc.
char* client_memory = nullptr;
size_t client_bytes() { return size_t{90001} + me; }

void exchange_places() {
  Place mine[kEndpoints] = {};
  for (gex_EP_Index_t index = 0; index < kEndpoints; ++index) {
    const gex_Segment_t bound = gex_EP_QuerySegment(endpoints[index]);
    if (bound == GEX_SEGMENT_INVALID) continue;
    mine[index] = {reinterpret_cast<uint64_t>(gex_Segment_QueryAddr(bound)),
                   gex_Segment_QuerySize(bound)};
  }
  places.resize(job_size * kEndpoints);
  gasnet_coll_gather_all(GASNET_TEAM_ALL, places.data(), mine, sizeof mine,
                         GASNET_COLL_IN_MYSYNC | GASNET_COLL_OUT_MYSYNC);
}

size_t library_bytes(gex_EP_Index_t index) { return size_t{70000} + 8192 * index + 4096 * me; }

void make_segment(gex_EP_Index_t index) {
  if (kMemoryOf[index] == kLibrary) {
    const size_t bytes = library_bytes(index);
    check(gex_Segment_Create(&segments[index], client, nullptr, bytes, GEX_MK_HOST, 0) == GASNET_OK,
          "gex_Segment_Create");
    check(gex_Segment_QuerySize(segments[index]) >= bytes, "the size of a segment");
  } else {
    if (client_memory != nullptr && is_arena) hydrant_free(client_memory);
    if (client_memory != nullptr && !is_arena) std::free(client_memory);
    void* memory =
        is_arena ? hydrant_alloc_shared(64, client_bytes()) : std::malloc(client_bytes());
    check(memory != nullptr, "memory of the client");
    client_memory = static_cast<char*>(memory);
    std::memset(client_memory, 0, client_bytes());
    // Neither address nor size is aligned.
    check(gex_Segment_Create(&segments[index], client, client_memory + 1, client_bytes() - 1,
                             GEX_MK_HOST, 0) == GASNET_OK,
          "gex_Segment_Create of memory of the client");
  }
  check(gex_EP_BindSegment(endpoints[index], segments[index], 0) == GASNET_OK,
        "gex_EP_BindSegment");
  check(gex_EP_QuerySegment(endpoints[index]) == segments[index], "the bound segment");
}

// Endpoint 1 and 2 over teams of the even and the odd ranks, first of all without segments.
void publish_in_parts() {
  check(gex_EP_PublishBoundSegment(world, endpoints + 1, kEndpoints - 1, 0) == GASNET_OK,
        "publishing no segments");
  for (gex_EP_Index_t index = 1; index < kEndpoints; ++index) {
    uintptr_t size = 1;
    gex_Event_Wait(gex_EP_QueryBoundSegmentNB(gex_TM_Pair(primordial, index), (me + 1) % job_size,
                                              nullptr, nullptr, &size, 0));
    check(size == 0, "a segment before it exists", index);
    if (has_segment(index)) make_segment(index);
  }
  exchange_places();
  gex_TM_t half = GEX_TM_INVALID;
  (void)gex_TM_Split(&half, world, static_cast<int>(me % 2), -static_cast<int>(me), nullptr, 0,
                     GEX_FLAG_TM_NO_SCRATCH);
  gex_EP_t two[2] = {endpoints[2], endpoints[1]};
  // The number of endpoints differs between callers.
  const size_t count = me % 3 == 0 ? 1 : 2;
  check(gex_EP_PublishBoundSegment(half, two, count, 0) == GASNET_OK, "publishing in a team");
  gex_TM_Destroy(half, nullptr, 0);
  for (gex_Rank_t rank = 0; rank < job_size; ++rank) {
    for (gex_EP_Index_t index = 1; index < 3; ++index) {
      const bool is_known = rank == me || (rank % 2 == me % 2 && (index == 2 || rank % 3 != 0));
      void* owner = nullptr;
      uintptr_t size = 0;
      gex_Event_Wait(gex_EP_QueryBoundSegmentNB(gex_TM_Pair(endpoints[4], index), rank, &owner,
                                                nullptr, &size, 0));
      check((size != 0) == is_known, "a segment of the other team", index);
      if (!is_known) continue;
      check(size == place_of(rank, index).size, "the size", index);
      check(reinterpret_cast<uint64_t>(owner) == place_of(rank, index).addr, "the address", index);
    }
  }
  barrier();
}

void check_queries() {
  for (gex_Rank_t rank = 0; rank < job_size; ++rank) {
    for (gex_EP_Index_t index = 0; index < kEndpoints; ++index) {
      const Place expected = place_of(rank, index);
      void* owner = nullptr;
      void* here = nullptr;
      uintptr_t size = 0;
      const gex_TM_t pair = gex_TM_Pair(endpoints[index % 2], index);
      const gex_Event_t event =
          gex_EP_QueryBoundSegmentNB(pair, rank, &owner, &here, &size, GEX_FLAG_IMMEDIATE);
      check(event == GEX_EVENT_INVALID || index == 0, "an immediate query", index);
      if (event == GEX_EVENT_NO_OP) continue;
      check(size == expected.size, "the queried size", index);
      if (size == 0) continue;
      check(reinterpret_cast<uint64_t>(owner) == expected.addr, "the queried address", index);
      if (rank == me) {
        check(here == owner, "the own address", index);
      } else if (!is_near(rank)) {
        check(here == nullptr, "an address of another node's memory", index);
      } else if (kMemoryOf[index] == kClient) {
        check((here != nullptr) == is_arena, "an address of the client's memory", index);
      } else if (expected_local != "any" && index != 0) {
        check((here != nullptr) == (expected_local == "mapped" || is_arena), "a local address",
              index);
      }
    }
  }
}

// ---- scenarios ----

void use_all(uint32_t round) {
  use_by_rma(round);
  send_messages();
}

void replace_segments() {
  barrier();  // no rank uses them any more
  for (gex_EP_Index_t index = 1; index < kEndpoints; ++index) {
    if (!has_segment(index)) continue;
    gex_Segment_Destroy(segments[index], 0);
    check(gex_EP_QuerySegment(endpoints[index]) == GEX_SEGMENT_INVALID, "a destroyed segment",
          index);
    make_segment(index);
  }
  exchange_places();
  check(gex_EP_PublishBoundSegment(world, endpoints + 1, kEndpoints - 1, 0) == GASNET_OK,
        "publishing again");
}

void run_all() {
  publish_in_parts();
  // The primordial one is published already, by its attach, and may be named again.
  check(gex_EP_PublishBoundSegment(world, endpoints, kEndpoints, 0) == GASNET_OK, "publishing all");
  check_queries();
  for (uint32_t round = 0; round < 3; ++round) {
    use_all(round);
    replace_segments();
    check_queries();
  }
  use_all(7);
}

long resident_pages() {
  long whole = 0;
  long resident = 0;
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr || std::fscanf(file, "%ld %ld", &whole, &resident) != 2) whole = 0;
  if (file != nullptr) std::fclose(file);
  return whole / 4096 + resident;  // whole: 16 MiB count as one page
}

// Many segments come and go without growth.
void run_growth() {
  publish_in_parts();
  long before = 0;
  for (int round = 0; round < 400; ++round) {
    if (round == 100) before = resident_pages();
    replace_segments();
    const gex_Rank_t peer = (me + 1) % job_size;
    for (gex_EP_Index_t to = 1; to < 4; ++to) {
      const int64_t value = round * 100 + to;
      auto* dest = reinterpret_cast<char*>(place_of(peer, to).addr) + 1001;
      gex_RMA_PutBlocking(gex_TM_Pair(endpoints[4], to), peer, dest, &value, sizeof value, 0);
    }
    barrier();
    for (gex_EP_Index_t to = 1; to < 4; ++to) {
      int64_t value = 0;
      std::memcpy(&value, static_cast<char*>(gex_Segment_QueryAddr(segments[to])) + 1001,
                  sizeof value);
      check(value == round * 100 + to, "a value in a new segment", round);
    }
  }
  const long grown = resident_pages() - before;
  check(grown < 300, "pages more after 300 rounds", grown);
}

// Segments of the primordial endpoint that are not attached, and the same segment at two endpoints.
void run_unattached() {
  gex_Segment_t own = GEX_SEGMENT_INVALID;
  check(gex_Segment_Create(&own, client, nullptr, 100000, GEX_MK_HOST, 0) == GASNET_OK,
        "gex_Segment_Create");
  check(gex_EP_BindSegment(primordial, own, 0) == GASNET_OK, "gex_EP_BindSegment");
  check(gex_EP_BindSegment(endpoints[1], own, 0) == GASNET_OK, "binding it again");
  gex_EP_t both[2] = {endpoints[1], primordial};
  check(gex_EP_PublishBoundSegment(world, both, 2, 0) == GASNET_OK, "publishing");
  const gex_Rank_t peer = (me + 1) % job_size;
  char* there[2] = {};
  void* here[2] = {};
  for (gex_EP_Index_t index = 0; index < 2; ++index) {
    void* owner = nullptr;
    gex_Event_Wait(gex_EP_QueryBoundSegmentNB(gex_TM_Pair(primordial, index), peer, &owner,
                                              &here[index], nullptr, 0));
    there[index] = static_cast<char*>(owner);
  }
  check(there[0] == there[1] && here[0] == here[1], "one segment at two endpoints");
  for (int round = 0; round < 20; ++round) {
    const uint64_t value = static_cast<uint64_t>(round) * 1000 + me;
    gex_RMA_PutBlocking(world, peer, there[0] + 8 * round, &value, 8, 0);
    gex_RMA_PutBlocking(gex_TM_Pair(endpoints[1], 1), peer, there[0] + 4096 + 8 * round, &value, 8,
                        0);
    uint64_t back = 0;
    gex_RMA_GetBlocking(gex_TM_Pair(endpoints[1], 0), &back, peer, there[1] + 8 * round, 8, 0);
    check(back == value, "a value got back", round);
    gex_RMA_GetBlocking(world, &back, peer, there[1] + 4096 + 8 * round, 8, 0);
    check(back == value, "a value got back", round);
  }
  barrier();
}

void run_wrong(const std::string& what) {
  char data[64] = {};
  gex_Segment_t segment = GEX_SEGMENT_INVALID;
  if (me == 0 || what == "beyond" || what == "unpublished") {
    if (gex_Segment_Create(&segment, client, nullptr, 4096, GEX_MK_HOST, 0) != GASNET_OK) return;
    if (gex_EP_BindSegment(endpoints[1], segment, 0) != GASNET_OK) return;
  }
  const size_t count = what == "unpublished" && me != 0 ? 0 : 1;
  if (gex_EP_PublishBoundSegment(world, endpoints + 1, count, 0) != GASNET_OK) return;
  void* owner = nullptr;
  uintptr_t size = 0;
  gex_Event_Wait(
      gex_EP_QueryBoundSegmentNB(gex_TM_Pair(primordial, 1), 0, &owner, nullptr, &size, 0));
  char* there = static_cast<char*>(owner);
  if (me == 1) {
    const gex_TM_t pair = gex_TM_Pair(primordial, 1);
    if (what == "beyond") gex_RMA_PutBlocking(pair, 0, there + size - 8, data, 16, 0);
    if (what == "primordial") gex_RMA_PutBlocking(world, 0, there, data, 16, 0);
    if (what == "long")
      gex_AM_RequestLong0(pair, 0, kPayload, data, 8, there + size, GEX_EVENT_NOW, 0);
    if (what == "nowhere") gex_AM_RequestShort1(gex_TM_Pair(primordial, 20), 0, kPing, 0, 20);
    if (what == "handler") gex_AM_RequestShort1(pair, 0, 200, 0, 20);
  }
  // The message ends this rank.
  if (me == 0 && (what == "nowhere" || what == "handler")) GASNET_BLOCKUNTIL(false);
  if (what == "unpublished" && me == 0)
    gex_RMA_PutBlocking(gex_TM_Pair(primordial, 1), 1, data, data, 16, 0);
  barrier();
}

}  // namespace

int main(int argc, char** argv) {
  if (gex_Client_Init(&client, &primordial, &world, "endpoints_client", &argc, &argv, 0) !=
      GASNET_OK)
    return 2;
  if (argc < 3) gasnet_exit(2);
  me = gex_TM_QueryRank(world);
  job_size = gex_TM_QuerySize(world);
  const std::string what = argv[1];
  expected_local = argv[2];
  is_arena = expected_local == "arena";
  endpoints[0] = primordial;
  for (gex_EP_Index_t index = 1; index < kEndpoints; ++index) {
    check(gex_EP_Create(&endpoints[index], client, GEX_EP_CAPABILITY_ALL, 0) == GASNET_OK,
          "gex_EP_Create");
    check(gex_EP_QueryIndex(endpoints[index]) == index, "the index of an endpoint");
  }
  enter_handlers();
  if (what != "unattached" && gex_Segment_Attach(&segments[0], world, size_t{1} << 20) != GASNET_OK)
    gasnet_exit(2);
  barrier();
  if (what == "all")
    run_all();
  else if (what == "growth")
    run_growth();
  else if (what == "unattached")
    run_unattached();
  else
    run_wrong(what);
  barrier();
  if (me == 0) std::puts("all held");
  std::fflush(stdout);
  gasnet_exit(0);
}
