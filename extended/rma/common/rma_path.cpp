// Computes the settings of the decision table at job start, finds what is mapped here, and chooses the kind
// of messages. Called by transfer() (rma_transfer.cpp).
#include "extended/rma/common/rma_path.hpp"

#include "am/job/job.hpp"
#include "am/message/send.hpp"
#include "am/segment/segments.hpp"
#include "extended/binding/device_memory.hpp"
#include "extended/binding/firehose_binding.hpp"
#include "extended/rma/common/mapped_segments.hpp"
#include "extended/rma/common/rma_thread.hpp"
#include "firehose/base/log.hpp"
#include "firehose/base/trace/tracer.hpp"
#include "rdma/config/job_knobs.hpp"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string_view>

namespace hydrant {
namespace {

// By kind of peer.
constinit PathChoices the_paths[2];
// Kind of each rank; null: all ranks are of the first kind. Never freed, because threads may be using
// it at process exit.
constinit const uint8_t* kind_of = nullptr;

// The depth from `knob`, limited to `most`; the warning names `limit` as the cause.
uint64_t depth_of(JobKnob knob, uint64_t most, const char* limit) noexcept {
  const KnobValue value = read_knob(knob);
  const uint64_t wanted = value.number;
  if (wanted == 0 || wanted <= most) return wanted != 0 ? wanted : most;
  // No warning for the default value.
  if (value.origin == KnobOrigin::kDefault) return most;
  log_warning("%s=%llu exceeds the limit of %s: %llu is used", knob_info(knob).name,
              static_cast<unsigned long long>(wanted), limit,
              static_cast<unsigned long long>(most));
  return most;
}

// Disables all paths before `forced` in the table.
void force(PathChoices& paths, std::string_view forced) noexcept {
  paths.inlined = false;
  if (forced == "mapped") return;
  if (forced == "nic") {
    // Use the adapter with this peer too, if there is an adapter.
    paths.pinned = is_firehose_enabled();
    if (paths.pinned) paths.mapped = paths.cma = paths.maps_files = false;
    return;
  }
  paths.maps_files = paths.maps_files && forced == "firehose";
  paths.mapped = false;
  if (forced == "cma") return;
  // In the table, mappings precede copies by the kernel, which precede pinned memory.
  paths.cma = paths.cma && forced == "firehose" && !paths.pinned;
  if (forced == "firehose") return;
  paths.pinned = false;
  paths.bounce_first = forced == "bounce";
  if (forced == "direct" || forced == "bounce") return;
  // Everything is sent in messages, even to this process itself.
  paths.self = false;
  paths.direct = paths.bounce = false;
  if (forced == "am_medium") paths.am_long[0] = paths.am_long[1] = false;
  if (forced == "am_long") paths.long_above = 0;
}

// Stores the peer's segment for this thread, and for inlined calls of all threads. Segments live as long as
// the job.
void remember_segment(RmaThread& thread, Rank peer) noexcept {
  SegmentAddress place;
  if (find_segment(peer, &place, false) != Status::kOk || place.addr == 0) return;
  const auto start =
      reinterpret_cast<uintptr_t>(job().memory->mapped(peer, place.addr, place.size));
  if (start == 0) return;
  KnownPeer& row = thread.peer(peer);
  row.shift = static_cast<intptr_t>(start - place.addr);
  row.addr = place.addr;
  row.size = place.size;
  if (paths().inlined) show_segment(peer, {place.addr, place.size}, row.shift);
}

}  // namespace

const PathChoices& paths() noexcept { return the_paths[0]; }
const PathChoices& paths(Rank peer) noexcept {
  return the_paths[kind_of != nullptr ? kind_of[peer] : 0];
}

namespace {

// Paths that depend on the transport's capabilities with this kind of peer.
void choose_paths(PathChoices& paths, uint32_t capabilities) noexcept {
  const bool one_sided = (capabilities & Transport::kOneSided) != 0;
  const bool at_once = (capabilities & Transport::kCompletesAtOnce) != 0;
  paths.mapped = (capabilities & Transport::kMapped) != 0;
  paths.cma = one_sided && at_once && knob_number(JobKnob::kCma) != 0;
  paths.pinned = is_firehose_enabled() && (capabilities & Transport::kPinned) != 0;
  paths.maps_files = one_sided && at_once;
  paths.direct = paths.bounce = one_sided && !at_once;
}

// Sets `kind_of`: null if all ranks have the capabilities `first`; else 0 for each rank that has them, and 1
// for those with *second. There are at most two kinds: near and far.
Status find_kinds(const Transport& transport, uint32_t first, uint32_t* second) noexcept {
  delete[] kind_of;
  kind_of = nullptr;
  std::unique_ptr<uint8_t[]> kinds;
  for (Rank rank = 0; rank < job().size(); ++rank) {
    const uint32_t capabilities = transport.peer_capabilities(rank);
    if (capabilities == first) continue;
    if (kinds == nullptr) {
      kinds = std::make_unique<uint8_t[]>(job().size());
      *second = capabilities;
    }
    if (capabilities != *second)
      return fail(
          Status::kUnsupported,
          "the network '%s' has a third kind of peer: capabilities %#x with rank %u, and %#x and "
          "%#x with others. Puts and gets choose between two kinds: "
          "Transport::peer_capabilities() may return two values",
          transport.name(), capabilities, rank, first, *second);
    kinds[rank] = 1;
  }
  kind_of = kinds.release();
  return Status::kOk;
}

}  // namespace

Status choose_paths() noexcept {
  PathChoices paths;
  // Inline copies would skip checks: those of debug clients, of device pointers, and, with firehoses,
  // of released memory that peers still access (settle_exports()); the trace; the counts of HYDRANT_STATS;
  // and a forced path.
  paths.inlined = !job().debug && !is_tracing() && *knob_text(JobKnob::kStats) == '\0' &&
                  find_pointer_query() == nullptr && !is_firehose_enabled() &&
                  knob_choice(JobKnob::kVisPath) == "auto";
  const Transport* transport = job().transport.get();
  paths.am_long[0] = knob_number(JobKnob::kUseLongPuts) != 0;
  paths.am_long[1] = knob_number(JobKnob::kUseLongGets) != 0;
  paths.medium_max = max_medium();
  paths.long_above = std::min<size_t>(knob_number(JobKnob::kMediumLongThreshold), paths.medium_max);
  const uint64_t most =
      transport != nullptr && transport->depth() != 0 ? transport->depth() : UINT64_MAX;
  char limit[64];
  (void)snprintf(limit, sizeof limit, "the transport (%s)",
                 transport != nullptr ? transport->name() : "none");
  paths.depth = depth_of(JobKnob::kNetworkDepth, most, limit);
  const char* nbi_limit = paths.depth == most ? limit : knob_info(JobKnob::kNetworkDepth).name;
  paths.nbi_depth = depth_of(JobKnob::kNbiThrottle, paths.depth, nbi_limit);
  const std::string_view forced = knob_choice(JobKnob::kPath);
  uint32_t capabilities[2] = {};
  if (transport != nullptr) {
    capabilities[0] = transport->peer_capabilities(job().rank());
    const Status status = find_kinds(*transport, capabilities[0], &capabilities[1]);
    if (status != Status::kOk) return status;
  }
  for (const uint32_t kind : {0U, 1U}) {
    the_paths[kind] = paths;
    choose_paths(the_paths[kind], capabilities[kind]);
    if (forced != "auto") force(the_paths[kind], forced);
    the_paths[kind].quick_cma = the_paths[kind].cma && !job().debug;
    the_paths[kind].hits =
        the_paths[kind].pinned && !job().debug && find_pointer_query() == nullptr;
  }
  hide_segments();
  // All memory of this process is mapped, except address 0.
  if (the_paths[0].inlined) show_segment(job().rank(), {1, UINTPTR_MAX}, 0);
  return Status::kOk;
}

bool pinned_puts_come_first(Rank peer) noexcept {
  constexpr uint32_t kNeeded = Transport::kPinned | Transport::kPutsBeforeMessages;
  return (job().transport->peer_capabilities(peer) & kNeeded) == kNeeded;
}

std::byte* mapped_here(RmaThread& thread, Rank peer, uintptr_t remote, size_t bytes) noexcept {
  const KnownPeer& known = thread.peer(peer);
  const uintptr_t offset = remote - known.addr;
  if (offset < known.size && bytes <= known.size - offset) [[likely]]
    return reinterpret_cast<std::byte*>(remote + static_cast<uintptr_t>(known.shift));
  Job& the_job = job();
  if (peer == the_job.rank()) return reinterpret_cast<std::byte*>(remote);
  auto* here = static_cast<std::byte*>(the_job.memory->mapped(peer, remote, bytes));
  if (known.size == 0) remember_segment(thread, peer);
  return here;
}

Path choose_messages(const PathChoices& paths, const Transfer& what) noexcept {
  if (what.bytes <= paths.long_above || !paths.am_long[static_cast<uint32_t>(what.direction)])
    return Path::kAmMedium;
  // A Long needs a destination in a segment, where memory is certain to be mapped.
  const Rank owner = what.is_put() ? what.peer : job().rank();
  const uintptr_t dest = what.is_put() ? what.remote : reinterpret_cast<uintptr_t>(what.local);
  if (job().segment_mode == kSegmentEverything) return Path::kAmMedium;
  return is_in_segment_of(owner, dest, what.bytes) ? Path::kAmLong : Path::kAmMedium;
}

}  // namespace hydrant
