// Shared by the parts of rma_client: the job, its checks, and the memory that every rank publishes. A
// failed check ends the job with 3 and a line that begins with "WRONG".
#pragma once

#include <gasnet.h>
#include <gasnetex.h>
#include <hydrant/rma.h>

#include <cstddef>
#include <cstdint>
#include <ctime>

namespace rma_client {

extern gex_TM_t team;
extern gex_Rank_t me;
extern gex_Rank_t size;
inline constexpr gex_Rank_t kMaxRanks = 4;

[[noreturn, gnu::format(printf, 1, 2)]] void wrong(const char* format, ...);
void barrier();

// ---- target areas of puts and gets, equally large on every rank ----
enum Area : uint32_t { kSegment, kMapped, kHeap, kStatic, kStack, kAreas };
inline constexpr size_t kAreaBytes[kAreas] = {size_t{8} << 20, size_t{8} << 20, size_t{2} << 20,
                                              size_t{2} << 20, size_t{512} << 10};
inline constexpr const char* kAreaNames[kAreas] = {"segment", "mapped", "heap", "static", "stack"};
// The area's address in `rank`.
std::byte* area(gex_Rank_t rank, Area which);
// The part of this rank's segment behind the area: local memory for operations.
inline constexpr size_t kOwnSegmentBytes = size_t{8} << 20;
std::byte* own_segment();

inline double now_s() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// ---- the parts; arguments are numbers ----
void model(uint64_t seed, uint64_t threads, uint64_t operations, double seconds);
void neighbours(double seconds);
// Allowed paths of operations: one name, or several joined by "+".
struct Expected {
  const char* segment;   // up to 60000 bytes, to and from the segment of another rank
  const char* heap;      // the same for its heap
  const char* large;     // 300000 bytes between segments
  const char* constant;  // sizes that the compiler knows, segment
  const char* self;
};
void counts(const Expected& expected);
// Operations larger than a message; each direction must use exactly the given path.
void long_ones(const char* put_path, const char* get_path);
// Operations of known number and size.
void statistics();
// With two ranks: tests that a word is never half written.
void words(double seconds);
void recycling();
void edge();
void huge();
// Executes a wrong call in rank 0 and prints its result, if it returns.
void misuse(const char* what);
void put_in_a_handler();
// Rank 0 puts from ("put") or gets to ("get") device memory; the other side is "mapped", "unmapped" or
// "self"; `size`: "word", "constant", "some", "implicit", "many".
void use_device(const char* direction, const char* place, const char* size);
// Prints the result of a call and the last error's text.
void answered(int code);

// Puts and gets until another process ends the job.
void stream();
// The last rank stops polling for a while.
void silence();
// Calls in destructors of threads and after main(); ends the job itself.
void late();
// Calls without memory for new allocations.
void starved();

// ---- between pinned memory ----
// Runs for `seconds`, with a mutant of the library by name, or "none".
void hunt_stale(double seconds, uint64_t seed, const char* mutant);
inline constexpr gex_AM_Index_t kNoteHandler = 222;
void on_note(gex_Token_t token, int32_t what, int32_t slot, int32_t generation, int32_t high,
             int32_t low);
// Counts the messages of hits and misses.
void count_messages();
// Tests that puts between static arrays hit like others.
void use_variables();
// Hits while the target makes no calls.
void hits_without_target();
// Rank 1 has a firehose on memory that rank 0 releases, and does not poll for `seconds`.
void recall_from_deaf(double seconds);
void persistent();
// "pinned" (whose operations are counted), or another network.
void odd_memory(const char* network);
// Sparse accesses to a region many times larger than the machine's memory.
void sparse(double seconds, uint64_t seed);

}  // namespace rma_client
