// rma_client PART ARGUMENT...: a client of put and get that runs the part named by its first argument.
// rma_jobs_test.py runs it as jobs of several ranks. main() lists the parts.
#include "tests/integration/rma/client.hpp"

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>

namespace rma_client {

gex_TM_t team;
gex_Rank_t me;
gex_Rank_t size;

namespace {

gex_Client_t client;
gex_EP_t endpoint;
std::byte* areas[kMaxRanks][kAreas];
std::byte* segment_behind;
alignas(4096) std::byte static_area[kAreaBytes[kStatic]];
std::atomic<uint32_t> told{0};

enum Handlers : gex_AM_Index_t { kTell = 220, kPut = 221 };
static_assert(kNoteHandler > kPut);

void on_tell(gex_Token_t token, void* payload, size_t bytes) {
  gex_Token_Info_t info;
  gex_Token_Info(token, &info, GEX_TI_SRCRANK);
  if (bytes != sizeof areas[0]) wrong("%zu bytes of addresses", bytes);
  std::memcpy(areas[info.gex_srcrank], payload, bytes);
  ++told;
}
void on_put(gex_Token_t) {
  char byte = 1;
  gex_RMA_PutBlocking(team, 0, area(0, kHeap), &byte, 1, 0);
}

void attach() {
  gex_Segment_t segment;
  if (gex_Segment_Attach(&segment, team, kAreaBytes[kSegment] + kOwnSegmentBytes) != GASNET_OK)
    wrong("attach");
#ifdef GASNET_SEGMENT_EVERYTHING
  areas[me][kSegment] =
      static_cast<std::byte*>(std::calloc(1, kAreaBytes[kSegment] + kOwnSegmentBytes));
#else
  areas[me][kSegment] = static_cast<std::byte*>(gex_Segment_QueryAddr(segment));
#endif
  segment_behind = areas[me][kSegment] + kAreaBytes[kSegment];
}

// Publishes this rank's areas; `stack` is part of main()'s frame.
void show_memory(std::byte* stack) {
  attach();
  void* mapped = mmap(nullptr, kAreaBytes[kMapped], PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) wrong("mmap");
  areas[me][kMapped] = static_cast<std::byte*>(mapped);
  areas[me][kHeap] = static_cast<std::byte*>(std::calloc(1, kAreaBytes[kHeap]));
  areas[me][kStatic] = static_area;
  areas[me][kStack] = stack;
  barrier();
  for (gex_Rank_t rank = 0; rank < size; ++rank) {
    gex_AM_RequestMedium0(team, rank, kTell, areas[me], sizeof areas[me], GEX_EVENT_NOW, 0);
  }
  GASNET_BLOCKUNTIL(told == size);
  barrier();
}

double number(int argc, char** argv, int index) {
  if (index >= argc) wrong("argument %d is missing", index);
  return std::strtod(argv[index], nullptr);
}
uint64_t whole(int argc, char** argv, int index) {
  return static_cast<uint64_t>(number(argc, argv, index));
}

}  // namespace

void wrong(const char* format, ...) {
  char text[1000];
  va_list args;
  va_start(args, format);
  std::vsnprintf(text, sizeof text, format, args);
  va_end(args);
  std::fprintf(stderr, "WRONG (rank %u): %s\n", me, text);
  gasnet_exit(3);
}

void barrier() {
  if (gasnet_barrier(0, GASNET_BARRIERFLAG_UNNAMED) != GASNET_OK) wrong("barrier");
}

std::byte* area(gex_Rank_t rank, Area which) { return areas[rank][which]; }
std::byte* own_segment() { return segment_behind; }

void put_in_a_handler() { gex_AM_RequestShort0(team, me, kPut, 0); }

namespace {
bool run_part(const char* part, int argc, char** argv) {
  const auto is = [part](const char* name) { return std::strcmp(part, name) == 0; };
  if (is("model")) {
    model(whole(argc, argv, 2), whole(argc, argv, 3), whole(argc, argv, 4), number(argc, argv, 5));
  } else if (is("neighbours")) {
    neighbours(number(argc, argv, 2));
  } else if (is("counts") && argc > 6) {
    counts({argv[2], argv[3], argv[4], argv[5], argv[6]});
  } else if (is("long") && argc > 3) {
    long_ones(argv[2], argv[3]);
  } else if (is("statistics")) {
    statistics();
  } else if (is("words")) {
    words(number(argc, argv, 2));
  } else if (is("device") && argc > 4) {
    use_device(argv[2], argv[3], argv[4]);
  } else if (is("recycling")) {
    recycling();
  } else if (is("huge")) {
    huge();
  } else if (is("misuse") && argc > 2) {
    misuse(argv[2]);
  } else if (is("stream")) {
    stream();
  } else if (is("silence")) {
    silence();
  } else if (is("edge")) {
    edge();
  } else if (is("late")) {
    late();
  } else if (is("starved")) {
    starved();
  } else if (is("stale") && argc > 4) {
    hunt_stale(number(argc, argv, 2), whole(argc, argv, 3), argv[4]);
  } else if (is("messages")) {
    count_messages();
  } else if (is("variables")) {
    use_variables();
  } else if (is("absent")) {
    hits_without_target();
  } else if (is("deaf")) {
    recall_from_deaf(number(argc, argv, 2));
  } else if (is("persistent")) {
    persistent();
  } else if (is("odd") && argc > 2) {
    odd_memory(argv[2]);
  } else if (is("sparse")) {
    sparse(number(argc, argv, 2), whole(argc, argv, 3));
  } else {
    return false;
  }
  return true;
}
}  // namespace

}  // namespace rma_client

int main(int argc, char** argv) {
  using namespace rma_client;
  // Written completely by other ranks.
  alignas(64) std::byte stack[kAreaBytes[kStack]];
  __asm__ volatile("" : : "r"(stack) : "memory");
  if (gex_Client_Init(&client, &endpoint, &team, "rma_client", &argc, &argv, 0) != GASNET_OK)
    return 2;
  me = gex_TM_QueryRank(team);
  size = gex_TM_QuerySize(team);
  if (size > kMaxRanks) wrong("%u ranks", size);
  gex_AM_Entry_t table[] = {{kTell, reinterpret_cast<gex_AM_Fn_t>(on_tell),
                             GEX_FLAG_AM_MEDIUM | GEX_FLAG_AM_REQUEST, 0, nullptr, "tell"},
                            {kPut, reinterpret_cast<gex_AM_Fn_t>(on_put),
                             GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST, 0, nullptr, "put"},
                            {kNoteHandler, reinterpret_cast<gex_AM_Fn_t>(on_note),
                             GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST, 5, nullptr, "note"}};
  if (gex_EP_RegisterHandlers(endpoint, table, 3) != GASNET_OK) wrong("handlers");
  show_memory(stack);
  const char* part = argc > 1 ? argv[1] : "";
  if (!run_part(part, argc, argv)) wrong("'%s' is no part, or misses an argument", part);
  barrier();
  if (me == 0) std::printf("all held\n");
  gasnet_exit(0);
}
