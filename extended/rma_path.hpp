// The decision table: which way a put or get goes. Docs: put_get.md; how the
// thresholds were measured: decisions/0020-put-get.md.
//
//   who has the memory                              path        the copy is over at return
//   this rank                                       self        yes
//   a rank of this node, mapped here                mapped      yes
//     in a memory file that is mapped meanwhile     firehose    yes            (rma_mapped.hpp)
//   a rank whose memory the kernel copies (CMA)     cma         yes
//   a rank across a network between pinned memory  (rma_pinned.hpp)
//     there is a firehose                           firehose    no
//     there is none, and little data                in_move     no
//     there is none                                 rendezvous  no
//   a rank across a network with one-sided calls:
//     a get; a put whose source stays as it is      direct      no
//     a put whose source does not                   bounce      no
//   any other, or no room in the above:
//     large, and in the segment                     am_long     no
//     else                                          am_medium   no
//
// HYDRANT_PATH names one of them that is taken wherever it can carry the operation; what it cannot carry
// goes down the table from there.
#pragma once

#include <hydrant/rma.h>

#include "extended/rma.hpp"

#include <cstddef>
#include <cstdint>

namespace hydrant {

enum class Path : uint32_t {
  kSelf = HYDRANT_PATH_SELF,
  kInlined = HYDRANT_PATH_INLINED,
  kMapped = HYDRANT_PATH_MAPPED,
  kCma = HYDRANT_PATH_CMA,
  kFirehose = HYDRANT_PATH_FIREHOSE,
  kInMove = HYDRANT_PATH_IN_MOVE,
  kRendezvous = HYDRANT_PATH_RENDEZVOUS,
  kDirect = HYDRANT_PATH_DIRECT,
  kBounce = HYDRANT_PATH_BOUNCE,
  kAmMedium = HYDRANT_PATH_AM_MEDIUM,
  kAmLong = HYDRANT_PATH_AM_LONG,
};
static_assert(HYDRANT_PATH_COUNT == HYDRANT_RMA_PATHS);
static_assert(HYDRANT_PATH_MAPPED == HYDRANT_RMA_MAPPED);

// What decides, beside the operation itself: read once, when the job is wired up.
struct Paths {
  bool self = true;  // each: may be taken
  bool mapped = false;
  bool cma = false;
  bool pinned = false;
  bool hits = false;  // ... and callers of blocking ones need no more checks than those of a hit
  bool maps_files = false;  // of the ranks of this node (rma_mapped.hpp)
  bool direct = false;
  bool bounce = false;
  bool am_long[2] = {false, false};  // puts, gets
  bool inlined = true;               // callers may decide for themselves
  bool bounce_first = false;         // also where the source stays as it is
  size_t long_above = 0;             // bytes
  size_t medium_max = 0;
  uint64_t depth = 1;      // pieces of a thread under way
  uint64_t nbi_depth = 1;  // the same, without events
};
// Towards this peer: two kinds of peers there are at most, where the transport is two.
const Paths& paths(Rank peer) noexcept;
// What does not depend on the peer: all below `inlined`.
const Paths& paths() noexcept;
void choose_paths() noexcept;

// Whether what is put between pinned memory of this rank and `peer` is there before a message that is sent
// later: not where the two go by different transports.
bool pinned_puts_come_first(Rank peer) noexcept;

// Where [remote, remote+bytes) of `peer` is mapped in this process; null if it is not.
class RmaThread;
std::byte* mapped_here(RmaThread& thread, Rank peer, uintptr_t remote, size_t bytes) noexcept;

// For what is not self and not mapped. Cost: no call, some loads and compares.
Path choose_path(const Paths& paths, const Transfer& what) noexcept;
// For what the network cannot take: Active Messages of which kind.
Path choose_messages(const Paths& paths, const Transfer& what) noexcept;

}  // namespace hydrant
