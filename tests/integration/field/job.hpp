// Shared by the tables of a job's calls: the job's objects, memory of the other rank, and patterns of data.
#pragma once

#include <gasnet.h>
#include <hydrant/coll.h>
#include <hydrant/persistent.h>
#include <hydrant/waiting.h>

#include "tests/integration/field/field.hpp"

#include <cstddef>
#include <cstring>
#include <gasnet_coll.h>
#include <gasnet_mk.h>
#include <gasnet_ratomic.h>
#include <gasnet_vis.h>

namespace field {

constexpr size_t kSegment = size_t{4} << 20;
constexpr size_t kHeap = size_t{1} << 20;
constexpr size_t kLarge = size_t{160} << 10;

extern gex_Client_t client;
extern gex_EP_t endpoint;
extern gex_TM_t world;
extern gex_Segment_t segment;
extern gex_Rank_t me, other;
extern char* segments[kRanks];  // addresses in their owners
extern char* heaps[kRanks];     // memory outside the segments
alignas(16) extern char source[kLarge], back[kLarge];

// Different bytes in each row and round.
unsigned next_seed();
inline void fill(void* at, size_t bytes, unsigned seed) {
  for (size_t i = 0; i < bytes; ++i)
    static_cast<char*>(at)[i] = static_cast<char>(i * 7 + (i >> 8) + seed);
}
inline bool holds(const void* at, size_t bytes, unsigned seed) {
  for (size_t i = 0; i < bytes; ++i) {
    if (static_cast<const char*>(at)[i] != static_cast<char>(i * 7 + (i >> 8) + seed)) return false;
  }
  return true;
}
// Places of this rank at the other one, in its segment or heap.
inline char* there(size_t offset = 0) { return segments[other] + offset; }
inline char* heap_there(size_t offset = 0) { return heaps[other] + offset; }

struct Rows {
  const Row* first;
  unsigned count;
};
namespace messages {
Rows rows();
void register_handlers();
}  // namespace messages
namespace rma {
Rows rows();
}
namespace vis {
Rows rows();
}
namespace teams {
Rows rows();
}

}  // namespace field
