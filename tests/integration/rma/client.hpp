// What the parts of rma_client share: the job, its checks, and the memory that every rank shows the others.
// A failed check ends the job with 3 and a line that begins with "WRONG".
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
inline constexpr gex_Rank_t kMostRanks = 4;

[[noreturn, gnu::format(printf, 1, 2)]] void wrong(const char* format, ...);
void barrier();

// ---- memory that others put to and get from, as large on every rank ----
enum Area : uint32_t { kSegment, kMapped, kHeap, kStatic, kStack, kAreas };
inline constexpr size_t kAreaBytes[kAreas] = {size_t{8} << 20, size_t{8} << 20, size_t{2} << 20,
                                              size_t{2} << 20, size_t{512} << 10};
inline constexpr const char* kAreaNames[kAreas] = {"segment", "mapped", "heap", "static", "stack"};
// Where `rank` has it.
std::byte* area(gex_Rank_t rank, Area which);
// Of this rank's segment, behind the area: for the near side of operations.
inline constexpr size_t kOwnSegmentBytes = size_t{8} << 20;
std::byte* own_segment();

inline double now_s() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// ---- the parts; arguments as numbers ----
void model(uint64_t seed, uint64_t threads, uint64_t operations, double seconds);
void neighbours(double seconds);
// Which paths operations may take: one name, or several joined by "+".
struct Expected {
  const char* segment;   // up to 60000 bytes, to and from the segment of another rank
  const char* heap;      // the same for its heap
  const char* large;     // 300000 bytes between segments
  const char* constant;  // sizes that the compiler knows, segment
  const char* self;
};
void counts(const Expected& expected);
// Larger than a message, each direction by one path, and no other.
void long_ones(const char* put_path, const char* get_path);
// Some operations of known number and size.
void statistics();
// Of two ranks: whether a word is ever half written.
void words(double seconds);
void recycling();
void edge();
void huge();
// Does what is wrong, in rank 0. Prints what comes back, if something does.
void misuse(const char* what);
void put_in_a_handler();
// Rank 0 puts from ("put") or gets to ("get") memory of a device; the other side is "mapped", "unmapped" or
// "self"; `size`: "word", "constant", "some", "implicit", "many".
void use_device(const char* direction, const char* place, const char* size);
// Prints what a call returned, and the last error's text.
void answered(int code);

// Puts and gets until somebody ends the job.
void stream();
// One rank does not poll for a while.
void silence();
// In destructors of threads and behind main(); ends the job itself.
void late();
// Without memory for anything new.
void starved();

// ---- between pinned memory ----
// For so long; with a mutant of the library by name, or "none".
void hunt_stale(double seconds, uint64_t seed, const char* mutant);
inline constexpr gex_AM_Index_t kNoteHandler = 222;
void on_note(gex_Token_t token, int32_t what, int32_t slot, int32_t generation, int32_t high,
             int32_t low);
// What a hit and a miss send.
void count_messages();
// Puts between static arrays hit like others.
void use_variables();
// The target calls nothing meanwhile.
void hits_without_target();
// Rank 1 has a firehose on memory that rank 0 releases, and polls no sooner than after so long.
void recall_from_deaf(double seconds);
void persistent();
// "pinned" (which is counted), or another network.
void odd_memory(const char* network);
// Many times the memory that there is, used here and there.
void sparse(double seconds, uint64_t seed);

}  // namespace rma_client
