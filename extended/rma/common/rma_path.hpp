// The decision table for the path of a put or get, which transfer() follows (rma_transfer.cpp). See
// put_get.md; decisions/0020-put-get.md has the measurements behind the thresholds.
//
//   location of the memory                          path        complete at return
//   this rank                                       self        yes
//   a rank of this node, mapped here                mapped      yes
//     in a memory file that is mapped on use        firehose    yes            (rma_mapped.hpp)
//   a rank whose memory the kernel copies (CMA)     cma         yes
//   a rank across a network between pinned memory  (rma_pinned.hpp)
//     with a firehose                               firehose    no
//     without one, little data                      in_move     no
//     without one, more data                        rendezvous  no
//   a rank across a network with one-sided calls:
//     a get; a put whose source stays unchanged     direct      no
//     a put whose source may change                 bounce      no
//   any other, or the above has no room:
//     large, and in the segment                     am_long     no
//     else                                          am_medium   no
//
// HYDRANT_PATH forces one path for all operations that it supports; other operations use the later rows
// of the table.
#pragma once

#include <hydrant/rma.h>

#include "extended/rma/common/transfer.hpp"

#include <cstddef>
#include <cstdint>

namespace hydrant {

enum class Path : uint32_t {
  kSelf = HYDRANT_PATH_SELF,
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

// Settings for the decision, constant once the job is wired.
struct PathChoices {
  bool self = true;  // this and the following: the path is allowed
  bool mapped = false;
  bool cma = false;
  bool quick_cma = false;  // `cma`, and no debug client: put_by_cma() may skip the checks
  bool pinned = false;
  bool hits = false;        // ... and blocking calls may use the fast path of hits
  bool maps_files = false;  // for ranks of this node (rma_mapped.hpp)
  bool direct = false;
  bool bounce = false;
  bool am_long[2] = {false, false};  // puts, gets
  bool inlined = true;               // inline functions in the caller may copy
  bool bounce_first = false;         // bounce even if the source does not change
  size_t long_above = 0;             // bytes
  size_t medium_max = 0;
  uint64_t depth = 1;      // limit of a thread's pieces under way
  uint64_t nbi_depth = 1;  // the same for implicit (NBI) operations
};
// Settings for this peer. There are at most two kinds of peers (Transport::peer_capabilities()).
const PathChoices& paths(Rank peer) noexcept;
// Settings that are equal for both kinds: `am_long`, `inlined` and all below.
const PathChoices& paths() noexcept;
// Errors: kUnsupported: the transport has a third kind of peers.
Status choose_paths() noexcept;

// True if puts between pinned memory of this rank and `peer` arrive before messages that are sent
// later. False if the two use different transports.
bool pinned_puts_come_first(Rank peer) noexcept;

// Address of [remote, remote+bytes) of `peer` in this process; null if it is not mapped.
class RmaThread;
std::byte* mapped_here(RmaThread& thread, Rank peer, uintptr_t remote, size_t bytes) noexcept;

// For operations that the network cannot execute: the kind of Active Messages.
Path choose_messages(const PathChoices& paths, const Transfer& what) noexcept;

}  // namespace hydrant
