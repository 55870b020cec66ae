// Several endpoints per rank, each with a segment or none: created, bound, published over teams, used by
// puts, gets and messages through pairs, destroyed and replaced. Ends with 0 and "all held", or with a line
// that begins with "WRONG". Arguments: the scenario, and what addresses of library memory of the node's
// ranks are: "mapped", "unmapped" or "any".
#include <gasnetex.h>
#include <hydrant/alloc.h>
#include <hydrant/rma.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <gasnet_coll.h>
#include <string>
#include <unistd.h>
#include <vector>

namespace {

gex_Client_t client;
gex_TM_t world;
gex_EP_t primordial;
gex_Rank_t me;
gex_Rank_t job_size;
std::string expected_local;
bool is_arena = false;

void check(bool holds, const char* what, long detail = 0) {
  if (holds) return;
  std::fprintf(stderr, "WRONG (rank %u): %s (%ld)\n", me, what, detail);
  gasnet_exit(3);
}

void barrier() { gex_Event_Wait(gex_Coll_BarrierNB(world, 0)); }

bool is_near(gex_Rank_t rank) {
  gex_RankInfo_t* near = nullptr;
  gex_Rank_t count = 0;
  gex_System_QueryNbrhdInfo(&near, &count, nullptr);
  return std::any_of(near, near + count,
                     [rank](const gex_RankInfo_t& info) { return info.gex_jobrank == rank; });
}

// ---- endpoints and segments ----

// Endpoint 0 is the primordial one. The kinds of memory of the others:
enum Memory { kLibrary, kClient, kNone };
constexpr gex_EP_Index_t kEndpoints = 5;  // 0 to 4
constexpr Memory kMemoryOf[kEndpoints] = {kLibrary, kLibrary, kClient, kLibrary, kNone};

struct Place {
  uint64_t addr;
  uint64_t size;
};

gex_EP_t endpoints[kEndpoints];
gex_Segment_t segments[kEndpoints];
// The client's memory of endpoint 2: private, or with "arena" shared memory of libhydrant_alloc.
char* client_memory = nullptr;
size_t client_bytes() { return size_t{90001} + me; }
// The segments of each rank and endpoint, as their owners say.
std::vector<Place> places;

Place place_of(gex_Rank_t rank, gex_EP_Index_t index) { return places[rank * kEndpoints + index]; }
bool has_segment(gex_EP_Index_t index) { return kMemoryOf[index] != kNone; }

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

// ---- puts and gets ----

// Each writer has a slot in each segment: the offset in the segment, for the endpoint that writes.
size_t slot_of(gex_Rank_t writer, gex_EP_Index_t through) {
  return 1024 * (size_t{writer} * kEndpoints + through);
}
unsigned char value_of(gex_Rank_t writer, gex_EP_Index_t through, gex_EP_Index_t to, size_t i,
                       uint32_t round) {
  return static_cast<unsigned char>(writer * 31 + through * 7 + to * 3 + i + round * 5);
}
constexpr size_t kBytes = 1000;
constexpr size_t kLong = 40000;  // of one writer, behind all slots

void put_everywhere(uint32_t round) {
  std::vector<std::vector<unsigned char>> kept;
  std::vector<gex_Event_t> events;
  for (gex_Rank_t rank = 0; rank < job_size; ++rank) {
    for (gex_EP_Index_t to = 0; to < kEndpoints; ++to) {
      if (!has_segment(to)) continue;
      for (gex_EP_Index_t through = 0; through < kEndpoints; ++through) {
        std::vector<unsigned char> data(kBytes);
        for (size_t i = 0; i < kBytes; ++i) data[i] = value_of(me, through, to, i, round);
        char* dest = reinterpret_cast<char*>(place_of(rank, to).addr) + slot_of(me, through);
        const gex_TM_t pair = gex_TM_Pair(endpoints[through], to);
        // Parts of several sizes, by every call.
        gex_RMA_PutBlocking(pair, rank, dest, data.data(), 1, 0);
        gex_RMA_PutBlockingVal(pair, rank, dest + 1, data[1], 1, 0);
        gex_RMA_PutNBI(pair, rank, dest + 2, data.data() + 2, 64, GEX_EVENT_NOW, 0);
        events.push_back(
            gex_RMA_PutNB(pair, rank, dest + 66, data.data() + 66, 500, GEX_EVENT_DEFER, 0));
        events.push_back(gex_RMA_PutNBVal(pair, rank, dest + 566, data[566], 1, 0));
        gex_RMA_PutNBI(pair, rank, dest + 567, data.data() + 567, kBytes - 567, GEX_EVENT_DEFER, 0);
        kept.push_back(std::move(data));
      }
    }
  }
  gex_Event_WaitAll(events.data(), events.size(), 0);
  gex_NBI_Wait(GEX_EC_ALL, 0);
}

void check_own_memory(uint32_t round) {
  for (gex_EP_Index_t to = 0; to < kEndpoints; ++to) {
    if (!has_segment(to)) continue;
    const auto* base = static_cast<const unsigned char*>(gex_Segment_QueryAddr(segments[to]));
    for (gex_Rank_t writer = 0; writer < job_size; ++writer)
      for (gex_EP_Index_t through = 0; through < kEndpoints; ++through)
        for (size_t i = 0; i < kBytes; ++i)
          check(base[slot_of(writer, through) + i] == value_of(writer, through, to, i, round),
                "a byte that was put", static_cast<long>(i));
  }
}

void get_from_everywhere(uint32_t round) {
  for (gex_Rank_t rank = 0; rank < job_size; ++rank) {
    for (gex_EP_Index_t to = 0; to < kEndpoints; ++to) {
      if (!has_segment(to)) continue;
      for (gex_EP_Index_t through = 0; through < kEndpoints; ++through) {
        unsigned char got[kBytes];
        std::memset(got, 0, sizeof got);
        char* source = reinterpret_cast<char*>(place_of(rank, to).addr) + slot_of(me, through);
        const gex_TM_t pair = gex_TM_Pair(endpoints[through], to);
        gex_RMA_GetBlocking(pair, got, rank, source, 40, 0);
        const gex_Event_t event = gex_RMA_GetNB(pair, got + 40, rank, source + 40, 460, 0);
        gex_RMA_GetNBI(pair, got + 500, rank, source + 500, kBytes - 500, 0);
        gex_Event_Wait(event);
        gex_NBI_Wait(GEX_EC_GET, 0);
        for (size_t i = 0; i < kBytes; ++i)
          check(got[i] == value_of(me, through, to, i, round), "a byte that was got",
                static_cast<long>(i));
        check(gex_RMA_GetBlockingVal(pair, rank, source + 3, 1, 0) ==
                  value_of(me, through, to, 3, round),
              "a value that was got");
      }
    }
  }
}

// A long put to the right neighbour, and back; what is mapped is loaded and stored as well.
void copy_long(uint32_t round) {
  const gex_Rank_t peer = (me + 1) % job_size;
  const gex_Rank_t writer = (me + job_size - 1) % job_size;
  for (gex_EP_Index_t to = 1; to < kEndpoints; ++to) {
    if (!has_segment(to)) continue;
    const gex_TM_t pair = gex_TM_Pair(endpoints[4], to);
    const size_t offset = slot_of(job_size, 0);
    std::vector<unsigned char> data(kLong);
    for (size_t i = 0; i < kLong; ++i) data[i] = value_of(me, 4, to, i * i, round);
    char* dest = reinterpret_cast<char*>(place_of(peer, to).addr) + offset;
    gex_RMA_PutBlocking(pair, peer, dest, data.data(), kLong, 0);
    std::vector<unsigned char> back(kLong);
    gex_RMA_GetBlocking(pair, back.data(), peer, dest, kLong, 0);
    check(back == data, "a long get", to);
    void* here = nullptr;
    uintptr_t size = 0;
    gex_Event_Wait(gex_EP_QueryBoundSegmentNB(pair, peer, nullptr, &here, &size, 0));
    if (here != nullptr)
      check(std::memcmp(static_cast<char*>(here) + offset, data.data(), kLong) == 0,
            "a load of a neighbour's segment", to);
    barrier();
    const auto* base = static_cast<const unsigned char*>(gex_Segment_QueryAddr(segments[to]));
    for (size_t i = 0; i < kLong; i += 97)
      check(base[offset + i] == value_of(writer, 4, to, i * i, round), "a long put", to);
    if (here != nullptr) static_cast<char*>(here)[size - 1] = static_cast<char>(me + round + 1);
    const bool is_stored = here != nullptr;
    // Every rank has the same answer for its left neighbour, on one node.
    barrier();
    if (is_stored && is_near(writer) && expected_local == "mapped")
      check(static_cast<char>(base[gex_Segment_QuerySize(segments[to]) - 1]) ==
                static_cast<char>(writer + round + 1),
            "a store to a segment", to);
    barrier();
  }
}

// Puts and gets of mapped segments are copies, by any pair.
void check_mapped_path() {
#ifndef GASNET_DEBUG
  const gex_Rank_t peer = (me + 1) % job_size;
  if ((expected_local != "mapped" && !is_arena) || peer == me || !is_near(peer)) return;
  for (gex_EP_Index_t to = 1; to < kEndpoints; ++to) {
    if (!has_segment(to) || (kMemoryOf[to] == kClient && !is_arena)) continue;
    char* there = reinterpret_cast<char*>(place_of(peer, to).addr) + slot_of(me, 0);
    const gex_TM_t pair = gex_TM_Pair(endpoints[4], to);
    hydrant_path_counts_t before = {};
    hydrant_path_counts_t after = {};
    unsigned char data[200] = {};
    gex_RMA_GetBlocking(pair, data, peer, there, 8, 0);  // the first looks the rank up
    (void)hydrant_query_path(peer, HYDRANT_PATH_MAPPED, &before);
    gex_RMA_GetBlocking(pair, data, peer, there, sizeof data, 0);
    gex_RMA_PutBlocking(pair, peer, there, data, sizeof data, 0);
    gex_RMA_PutNBI(pair, peer, there, data, 8, GEX_EVENT_NOW, 0);
    (void)hydrant_query_path(peer, HYDRANT_PATH_MAPPED, &after);
    check(after.put_ops == before.put_ops + 2 && after.get_ops == before.get_ops + 1,
          "the path of copies", to);
  }
#endif
}

// ---- messages ----

constexpr gex_AM_Index_t kPing = 130, kPong = 131, kPayload = 132, kBack = 133, kShared = 134;
struct Received {
  int pings = 0;
  int pongs = 0;
  int payloads = 0;
  int backs = 0;
};
// By endpoint: handlers of endpoint i are the instances with its index.
Received received[kEndpoints];
int shared_calls = 0;
constexpr size_t kMessageBytes = 3000;

gex_EP_Index_t endpoint_of(gex_Token_t token) {
  gex_Token_Info_t info;
  (void)gex_Token_Info(token, &info, GEX_TI_ALL);
  return gex_EP_QueryIndex(info.gex_ep);
}
void check_payload(const void* payload, size_t bytes, int32_t seed) {
  const auto* data = static_cast<const unsigned char*>(payload);
  for (size_t i = 0; i < bytes; ++i)
    check(data[i] == static_cast<unsigned char>(i + static_cast<size_t>(seed)), "a payload");
}

template <gex_EP_Index_t kIndex>
struct Handlers {
  static void ping(gex_Token_t token, int32_t to) {
    check(to == kIndex && endpoint_of(token) == kIndex, "a ping's endpoint", to);
    ++received[kIndex].pings;
    gex_AM_ReplyShort1(token, kPong, 0, to + 100);
  }
  static void pong(gex_Token_t token, int32_t sum) {
    check(sum >= 100 && endpoint_of(token) == kIndex, "a pong's endpoint", sum);
    ++received[kIndex].pongs;
  }
  static void payload(gex_Token_t token, void* data, size_t bytes, int32_t seed, int32_t low,
                      int32_t high) {
    check(endpoint_of(token) == kIndex, "a payload's endpoint");
    check_payload(data, bytes, seed);
    ++received[kIndex].payloads;
    auto* dest = reinterpret_cast<void*>(uint64_t{static_cast<uint32_t>(high)} << 32 |
                                         static_cast<uint32_t>(low));
    if (dest != nullptr)
      gex_AM_ReplyLong1(token, kBack, data, bytes, dest, GEX_EVENT_NOW, 0, seed);
    else
      gex_AM_ReplyMedium1(token, kBack, data, bytes, GEX_EVENT_NOW, 0, seed);
  }
  static void back(gex_Token_t token, void* data, size_t bytes, int32_t seed) {
    check(endpoint_of(token) == kIndex, "an answer's endpoint");
    check_payload(data, bytes, seed);
    ++received[kIndex].backs;
  }
  static void enter() {
    constexpr gex_Flags_t kBoth = GEX_FLAG_AM_MEDLONG;
    gex_AM_Entry_t rows[] = {{kPing, reinterpret_cast<gex_AM_Fn_t>(ping),
                              GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST, 1, nullptr, "ping"},
                             {kPong, reinterpret_cast<gex_AM_Fn_t>(pong),
                              GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REPLY, 1, nullptr, "pong"},
                             {kPayload, reinterpret_cast<gex_AM_Fn_t>(payload),
                              kBoth | GEX_FLAG_AM_REQUEST, 3, nullptr, "payload"},
                             {kBack, reinterpret_cast<gex_AM_Fn_t>(back), kBoth | GEX_FLAG_AM_REPLY,
                              1, nullptr, "back"}};
    check(gex_EP_RegisterHandlers(endpoints[kIndex], rows, 4) == GASNET_OK,
          "gex_EP_RegisterHandlers", kIndex);
  }
};
void on_shared(gex_Token_t token, int32_t to) {
  check(endpoint_of(token) == static_cast<gex_EP_Index_t>(to), "the endpoint of a shared handler");
  ++shared_calls;
}

void send_messages() {
  std::fill_n(received, kEndpoints, Received{});
  shared_calls = 0;
  const gex_Rank_t peer = (me + 1) % job_size;
  std::vector<unsigned char> data(kMessageBytes);
  barrier();
  int answers[kEndpoints] = {};
  for (gex_EP_Index_t from = 0; from < kEndpoints; ++from) {
    for (gex_EP_Index_t to = 0; to < kEndpoints; ++to) {
      const gex_TM_t pair = gex_TM_Pair(endpoints[from], to);
      const int32_t seed = from * 10 + to;
      for (size_t i = 0; i < data.size(); ++i)
        data[i] = static_cast<unsigned char>(i + static_cast<size_t>(seed));
      gex_AM_RequestShort1(pair, peer, kPing, 0, to);
      gex_AM_RequestShort1(pair, peer, kShared, 0, to);
      for (const size_t bytes : {size_t{10}, kMessageBytes})
        gex_AM_RequestMedium3(pair, peer, kPayload, data.data(), bytes, GEX_EVENT_NOW, 0, seed, 0,
                              0);
      const gex_AM_SrcDesc_t sd =
          gex_AM_PrepareRequestMedium(pair, peer, nullptr, 100, 100, nullptr, 0, 3);
      std::memcpy(gex_AM_SrcDescAddr(sd), data.data(), 100);
      gex_AM_CommitRequestMedium3(sd, kPayload, 100, seed, 0, 0);
      answers[from] += 3;
      if (!has_segment(to) || !has_segment(from)) continue;
      // A Long there, and one back to the endpoint that it came from.
      const size_t slot = slot_of(job_size, 0) + kLong;
      char* dest = reinterpret_cast<char*>(place_of(peer, to).addr) + slot;
      const uint64_t reply = place_of(me, from).addr + slot + kMessageBytes;
      gex_AM_RequestLong3(pair, peer, kPayload, data.data(), kMessageBytes, dest, GEX_EVENT_NOW, 0,
                          seed, static_cast<int32_t>(static_cast<uint32_t>(reply)),
                          static_cast<int32_t>(reply >> 32));
      GASNET_BLOCKUNTIL(received[from].backs == answers[from] + 1);
      ++answers[from];
    }
  }
  for (gex_EP_Index_t index = 0; index < kEndpoints; ++index)
    GASNET_BLOCKUNTIL(received[index].backs == answers[index] &&
                      received[index].pongs == kEndpoints);
  GASNET_BLOCKUNTIL(shared_calls == kEndpoints * kEndpoints);
  barrier();
  for (gex_EP_Index_t index = 0; index < kEndpoints; ++index) {
    check(received[index].pings == kEndpoints, "the number of pings", index);
    check(received[index].payloads >= 3 * kEndpoints, "the number of payloads", index);
  }
}

// ---- scenarios ----

void use_all(uint32_t round) {
  barrier();
  put_everywhere(round);
  barrier();
  check_own_memory(round);
  get_from_everywhere(round);
  barrier();
  check_mapped_path();
  barrier();
  copy_long(round);
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
    const uint64_t value = round * 1000u + me;
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
  Handlers<0>::enter();
  Handlers<1>::enter();
  Handlers<2>::enter();
  Handlers<3>::enter();
  Handlers<4>::enter();
  gex_AM_Entry_t shared = {kShared,
                           reinterpret_cast<gex_AM_Fn_t>(on_shared),
                           GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST,
                           1,
                           nullptr,
                           "shared"};
  check(gex_EP_RegisterHandlers(primordial, &shared, 1) == GASNET_OK, "gex_EP_RegisterHandlers");
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
