// Attaches and publishes segments: agrees on sizes through the job's store, maps the node's memory
// (segment_memory.cpp), and answers queries for other ranks' segments. Called by calls_segment.cpp and
// gasnet1.cpp.
#include "am/segment/segments.hpp"

#include <hydrant/gasnet/barrier.h>
#include <hydrant/gasnet/coll1.h>

#include "am/call/thread_state.hpp"
#include "am/job/endpoints.hpp"
#include "am/job/job.hpp"
#include "am/job/resolve.hpp"
#include "am/progress/waiting.hpp"
#include "am/segment/memory_faults.hpp"
#include "am/segment/neighbourhood.hpp"
#include "am/segment/segment_memory.hpp"
#include "am/segment/segment_size.hpp"
#include "am/segment/shared_segments.hpp"
#include "firehose/base/log.hpp"
#include "firehose/base/thread.hpp"
#include "firehose/base/uncancelled.hpp"
#include "rdma/bootstrap/fd_passing.hpp"
#include "rdma/transport/shared_files.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <gasnet_config.h>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace hydrant {
namespace {

constexpr uint64_t kAttachNs = 60'000'000'000;
// Number of the first attach's shared descriptor within the node, after those of the transport and of
// barriers. Later attaches, which follow failed ones, count on.
constexpr uint32_t kFirstSegmentsFd = 3;

// The request that every rank publishes before the memory exists.
struct SegmentRequest {
  uint64_t size = 0;
  uint64_t minheapoffset = 0;
};

// Cache of other ranks' segments. Handlers look here while a fence holds Job::bootstrap_mu, which is taken
// after this mutex.
struct Known {
  Mutex mu;
  // The key of the attached segments in the store; empty before the attach.
  std::string key HYDRANT_GUARDED_BY(mu);
  // By endpoint, then by rank; empty until a segment of such an endpoint is known.
  std::array<std::vector<SegmentAddress>, GASNET_MAXEPS> addresses HYDRANT_GUARDED_BY(mu);
};
Known& known() noexcept {
  static Known all;
  return all;
}

// A key such as "segment-wish.0": a launcher may keep the first value of a key, so each round has its own
// key.
struct ValueKey {
  ValueKey(const char* name, uint32_t round) noexcept {
    snprintf(text, sizeof text, "%s.%u", name, round);
  }
  char text[32];
};

template <typename Value>
Status put_value(const char* key, const Value& value) noexcept {
  const MutexLock lock(job().bootstrap_mu);
  return job().bootstrap->put(key, std::as_bytes(std::span(&value, 1)));
}
template <typename Value>
Status get_value(Rank rank, const char* key, Value* value) noexcept {
  const MutexLock lock(job().bootstrap_mu);
  size_t bytes = 0;
  const Status status = job().bootstrap->get(rank, key, std::as_writable_bytes(std::span(value, 1)),
                                             &bytes, now_ns() + kAttachNs);
  if (status == Status::kOk && bytes != sizeof(Value))
    return fail(Status::kBroken,
                "the entry '%s' of rank %u in the job's store has an unexpected size of %zu bytes",
                key, rank, bytes);
  return status;
}

constinit std::atomic<bool> g_polls_in_fence{false};

// The fence after the barrier of an attach. A rank that is still in that barrier may need a message that this
// rank's network has kept, or room for its reply to this rank. No rank needs its requests to be served: their
// handlers might wait for room in a rank that polls no more.
Status fence_after_barrier() noexcept {
  const MutexLock lock(job().bootstrap_mu);
  g_polls_in_fence.store(true, std::memory_order_relaxed);
  const Status status = job().bootstrap->fence_and_poll(now_ns() + kAttachNs,
                                                        []() noexcept { (void)poll_replies(); });
  g_polls_in_fence.store(false, std::memory_order_relaxed);
  return status;
}

Status get_segment_address(Rank rank, const char* key, SegmentAddress* address) noexcept {
  SegmentAddress entry;
  const Status status = get_value(rank, key, &entry);
  if (status != Status::kOk) return status;
  if (entry.size != 0 && !MemoryRange{entry.addr, entry.size}.valid()) {
    return fail(
        Status::kBroken,
        "the entry '%s' of rank %u in the job's store is no range of addresses: [%#llx, +%llu)",
        key, rank, static_cast<unsigned long long>(entry.addr),
        static_cast<unsigned long long>(entry.size));
  }
  *address = entry;
  return Status::kOk;
}

// Computes the slices of the node's ranks from their requests.
Status lay_out(const SegmentRequest& mine, const ValueKey& key,
               std::vector<SegmentSlice>* slices) noexcept {
  const std::vector<Rank>& ranks = job().topology().node_ranks;
  std::vector<uint64_t> sizes;
  for (const Rank rank : ranks) {
    SegmentRequest request;
    if (const Status status = get_value(rank, key.text, &request); status != Status::kOk)
      return status;
    if (request.minheapoffset != mine.minheapoffset) {
      return fail(Status::kBadArg,
                  "minheapoffset is %llu here and %llu on rank %u; it must be the same",
                  static_cast<unsigned long long>(mine.minheapoffset),
                  static_cast<unsigned long long>(request.minheapoffset), rank);
    }
    sizes.push_back(request.size);
  }
  return lay_out_slices(ranks, sizes, slices);
}

// Creates one file for the node and maps its slices. If `laid_out` is an error, only reports it to the other
// ranks.
Status map_node(Status laid_out, uint32_t round, std::vector<SegmentSlice>* slices) noexcept {
  const JobTopology& topology = job().topology();
  int made = -1;
  Status status = laid_out;
  if (status == Status::kOk && topology.node_rank == 0) status = make_segment_file(*slices, &made);
  int fd = made;
  // share_fd() holds a fence of the whole job, so a rank that is alone on its node calls it too, and so
  // does a rank that has failed.
  if (topology.size > 1) {
    const MutexLock lock(job().bootstrap_mu);
    status = share_fd(*job().bootstrap, kFirstSegmentsFd + round, status, made, &fd,
                      now_ns() + kAttachNs);
  }
  if (status == Status::kOk) status = map_slices(fd, topology.rank, slices);
  if (status == Status::kOk) {
    const SegmentSlice& own = (*slices)[topology.node_rank];
    const MemoryRange range{reinterpret_cast<uintptr_t>(own.here), own.size};
    // On failure peers of the node cannot pin this memory, but they have it mapped anyway.
    if (own.size != 0 && announce_shared_file(range, fd, own.start) != Status::kOk)
      log_info("the segment is not announced as shared memory: %s", last_error_text());
  }
  if (fd >= 0 && fd != made) uncancelled::close(fd);
  if (made >= 0) uncancelled::close(made);
  return status;
}

// Unmaps what map_node() has mapped: the file's memory is free when no rank maps it.
void unmap_node(std::vector<SegmentSlice>* slices) noexcept {
  for (const SegmentSlice& slice : *slices) {
    const MemoryRange range{reinterpret_cast<uintptr_t>(slice.here), slice.size};
    if (slice.here != nullptr && slice.rank == job().rank()) (void)forget_shared_file(range);
  }
  unmap_slices(slices);
}

// Reads the addresses of the node's segments. Errors: also kResource if a rank has none.
Status read_addresses(const char* key, std::vector<SegmentAddress>* addresses) noexcept {
  addresses->assign(job().size(), SegmentAddress{});
  for (const Rank rank : job().topology().node_ranks) {
    SegmentAddress& address = (*addresses)[rank];
    if (const Status status = get_segment_address(rank, key, &address); status != Status::kOk)
      return status;
    if (address.size == 0)
      return fail(Status::kResource, "rank %u has no segment; see that rank's message", rank);
  }
  return Status::kOk;
}

// Publishes this rank's segment and reads those of the neighbours. The fence is the barrier of the attach.
Status exchange_addresses(const std::vector<SegmentSlice>& slices, const SegmentAddress& mine,
                          uint32_t round) noexcept {
  Job& the_job = job();
  const ValueKey key("segment-place", round);
  Status status = put_value(key.text, mine);
  if (status == Status::kOk) {
    const MutexLock lock(the_job.bootstrap_mu);
    status = the_job.bootstrap->fence(now_ns() + kAttachNs);
  }
  // This rank has no memory; the caller reports the reason.
  if (mine.size == 0 || status != Status::kOk) return status;
  std::vector<SegmentAddress> addresses;
  status = read_addresses(key.text, &addresses);
  for (const SegmentSlice& slice : slices) {
    if (status != Status::kOk) return status;
    if (the_job.transport == nullptr || slice.rank == the_job.rank()) continue;
    const SegmentAddress& address = addresses[slice.rank];
    status = the_job.memory->add_segment(slice.rank, address.addr, address.size, slice.here);
  }
  if (status != Status::kOk) return status;
  Known& here = known();
  const MutexLock lock(here.mu);
  here.addresses[0] = std::move(addresses);
  here.key = key.text;
  return status;
}

// The maximum of a rank, which every rank publishes.
struct SegmentLimit {
  uint64_t bytes = 0;
  uint64_t is_asked_for = 0;  // whether GASNET_MAX_SEGSIZE alone decides it
};
constexpr const char* kLimitKey = "segment-most";

SegmentLimit own_limit() noexcept {
  return {.bytes = max_local_segment(), .is_asked_for = max_segment_is_asked_for() ? 1u : 0u};
}

// The smallest maximum of the job, and whether GASNET_MAX_SEGSIZE alone decides that of every rank. The first
// call queries the store.
SegmentLimit limit_of_job() noexcept {
  constinit static Mutex mutex;
  static SegmentLimit smallest;
  {
    const MutexLock lock(mutex);
    if (smallest.bytes != 0) return smallest;
  }
  SegmentLimit found = own_limit();
  if (is_store_busy()) return found;
  for (Rank rank = 0; rank < job().size(); ++rank) {
    SegmentLimit limit;
    if (get_value(rank, kLimitKey, &limit) != Status::kOk) continue;
    found.bytes = std::min(found.bytes, limit.bytes);
    found.is_asked_for &= limit.is_asked_for;
  }
  const MutexLock lock(mutex);
  smallest = found;
  return smallest;
}

Status check_size(uintptr_t size) noexcept {
  if (size == 0 || size % GASNET_PAGESIZE != 0) {
    return fail(Status::kBadArg,
                "invalid segment size of %zu bytes: it must be a multiple of %d, and not 0", size,
                GASNET_PAGESIZE);
  }
  // A size between the two maxima is attempted, because the limits of file size and address space are
  // counted with a reserve.
  if (size > max_attempted_segment()) {
    char why[kMaxSegmentText];
    return fail(Status::kBadArg, "a segment of %zu bytes exceeds the limit of %zu: %s", size,
                static_cast<size_t>(max_local_segment()), explain_max_segment(why, sizeof why));
  }
  return Status::kOk;
}

}  // namespace

bool is_store_busy() noexcept {
  return handler_depth != 0 && g_polls_in_fence.load(std::memory_order_relaxed);
}

Status attach_segments(uintptr_t size, uintptr_t minheapoffset) noexcept {
  Job& the_job = job();
  // This barrier polls and so delivers pending messages of other ranks; the fences deliver no requests.
  gex_Coll_BarrierBlocking(&hydrant_world, 0);
  catch_memory_faults();
  if (the_job.segment_mode == kSegmentEverything) {
    the_job.state.store(JobState::kAttached, std::memory_order_release);
    return Status::kOk;
  }
  constinit static std::atomic<uint32_t> attaches{0};
  const uint32_t round = attaches.fetch_add(1, std::memory_order_relaxed);
  const Status size_status = check_size(size);
  // A rank with an invalid size publishes 0, so that the other ranks do not wait for its memory.
  const SegmentRequest request = {.size = size_status == Status::kOk ? size : 0,
                                  .minheapoffset = minheapoffset};
  const ValueKey request_key("segment-wish", round);
  Status status = put_value(request_key.text, request);
  if (status == Status::kOk) status = fence_after_barrier();
  if (status != Status::kOk) return status;
  // From here on a rank that fails still takes part in all fences, because the other ranks wait in them.
  std::vector<SegmentSlice> slices;
  status = lay_out(request, request_key, &slices);
  const Status mapped = map_node(status, round, &slices);
  const std::string shortage = mapped != Status::kOk ? last_error_text() : "";
  SegmentAddress mine;
  if (mapped == Status::kOk && size_status == Status::kOk) {
    mine.addr = reinterpret_cast<uint64_t>(slices[the_job.topology().node_rank].here);
    mine.size = size;
  }
  status = exchange_addresses(slices, mine, round);
  if (size_status != Status::kOk || mapped != Status::kOk || status != Status::kOk) {
    const std::string trouble = last_error_text();
    unmap_node(&slices);
    if (size_status != Status::kOk) return check_size(size);
    return mapped != Status::kOk ? fail(mapped, "%s", shortage.c_str())
                                 : fail(status, "%s", trouble.c_str());
  }
  the_job.segment = {.client = &the_job.client,
                     .flags = 0,
                     .addr = reinterpret_cast<void*>(mine.addr),
                     .size = size,
                     .cdata = nullptr};
  the_job.endpoint.segment = &the_job.segment;
  the_job.state.store(JobState::kAttached, std::memory_order_release);
  return Status::kOk;
}

namespace {

// A member of a team publishes this of one endpoint.
struct PublishedSegment {
  SegmentAddress address;
  uint32_t endpoint = 0;
  uint32_t count = 0;  // in a member's first entry: the number of its entries
  SegmentKey key;
};

using PublishedSegments = std::unique_ptr<PublishedSegment[]>;

PublishedSegments new_entries(size_t count) noexcept {
  PublishedSegments made(new (std::nothrow) PublishedSegment[count]);
  if (made == nullptr)
    fatal("gex_EP_PublishBoundSegment: no memory for the segments of %zu endpoints", count);
  return made;
}

// Writes an entry for each endpoint with a segment, and returns their number.
uint32_t describe_segments(std::span<const gex_EP_t> endpoints,
                           PublishedSegment* entries) noexcept {
  uint32_t count = 0;
  for (const gex_EP_t endpoint : endpoints) {
    const hydrant_segment* bound = endpoint->segment;
    if (bound == nullptr) continue;
    PublishedSegment& entry = entries[count++];
    entry.address = {.addr = reinterpret_cast<uint64_t>(bound->addr), .size = bound->size};
    entry.endpoint = endpoint->index;
    entry.key = key_of_segment(entry.address.addr, entry.address.size);
  }
  return count;
}

// Enters a member's entry, and maps its memory.
void learn_segment(Rank rank, const PublishedSegment& entry) noexcept {
  const SegmentAddress& address = entry.address;
  if (entry.endpoint >= GASNET_MAXEPS || !MemoryRange{address.addr, address.size}.valid())
    fatal("rank %u published an invalid segment [%#llx, +%llu) of endpoint %u", rank,
          static_cast<unsigned long long>(address.addr),
          static_cast<unsigned long long>(address.size), entry.endpoint);
  map_segment(rank, address.addr, address.size, entry.key);
  Known& here = known();
  const MutexLock lock(here.mu);
  std::vector<SegmentAddress>& of_ranks = here.addresses[entry.endpoint];
  if (of_ranks.empty()) of_ranks.resize(job().size());
  of_ranks[rank] = address;
}

}  // namespace

void publish_segments(gex_TM_t tm, std::span<const gex_EP_t> endpoints) noexcept {
  catch_memory_faults();
  const PublishedSegments mine = new_entries(GASNET_MAXEPS);
  mine[0].count = describe_segments(endpoints, mine.get());
  constexpr int kFlags = GASNET_COLL_IN_MYSYNC | GASNET_COLL_OUT_MYSYNC;
  // Most members have one entry or none, so the number of entries travels with the first of them.
  const PublishedSegments first = new_entries(tm->size);
  gasnet_coll_gather_all(tm, first.get(), mine.get(), sizeof(PublishedSegment), kFlags);
  uint32_t most = 1;
  for (Rank member = 0; member < tm->size; ++member) most = std::max(most, first[member].count);
  const size_t others = std::min<size_t>(most, GASNET_MAXEPS) - 1;
  const PublishedSegments rest = new_entries(tm->size * others);
  if (others != 0)
    gasnet_coll_gather_all(tm, rest.get(), mine.get() + 1, sizeof(PublishedSegment) * others,
                           kFlags);
  for (Rank member = 0; member < tm->size; ++member) {
    const size_t count = std::min<size_t>(first[member].count, GASNET_MAXEPS);
    if (count == 0) continue;
    const Rank rank = jobrank_of(*tm, member);
    learn_segment(rank, first[member]);
    for (size_t i = 0; i + 1 < count; ++i) learn_segment(rank, rest[member * others + i]);
  }
}

Status publish_max_segment() noexcept {
  const Status status = count_process_limits();
  if (status != Status::kOk && job().segment_mode != kSegmentEverything) return status;
  return put_value(kLimitKey, own_limit());
}

uintptr_t max_global_segment() noexcept { return limit_of_job().bytes; }

uintptr_t max_agreed_segment() noexcept {
  const SegmentLimit smallest = limit_of_job();
  return smallest.is_asked_for != 0 ? max_local_segment() : smallest.bytes;
}

Status find_segment(Rank rank, SegmentAddress* address, bool may_ask, uint32_t endpoint) noexcept {
  *address = {};
  Job& the_job = job();
  if (the_job.segment_mode == kSegmentEverything && endpoint == 0) {
    address->size = UINTPTR_MAX;
    return Status::kOk;
  }
  if (rank == the_job.rank()) {
    const MemoryRange bound = bound_memory(endpoint);
    *address = {.addr = bound.addr, .size = bound.len};
    return Status::kOk;
  }
  Known& here = known();
  const MutexLock lock(here.mu);
  std::vector<SegmentAddress>& of_ranks = here.addresses[endpoint];
  if (of_ranks.empty()) return Status::kOk;  // no segment was published
  SegmentAddress& found = of_ranks[rank];
  if (found.size == 0 && endpoint == 0 && !here.key.empty()) {
    if (!may_ask) return Status::kNotReady;
    if (const Status status = get_segment_address(rank, here.key.c_str(), &found);
        status != Status::kOk)
      return status;
  }
  *address = found;
  return Status::kOk;
}

bool is_in_segment_of(Rank rank, uintptr_t addr, size_t bytes) noexcept {
  if (rank == job().rank()) return is_in_bound_memory(addr, bytes);
  SegmentAddress primordial;
  if (find_segment(rank, &primordial) != Status::kOk) return false;
  if (primordial.holds(addr, bytes)) return true;
  Known& here = known();
  const MutexLock lock(here.mu);
  for (const std::vector<SegmentAddress>& of_ranks : here.addresses) {
    if (!of_ranks.empty() && of_ranks[rank].holds(addr, bytes)) return true;
  }
  return false;
}

bool segments_are_known() noexcept {
  Known& here = known();
  const MutexLock lock(here.mu);
  return std::any_of(here.addresses.begin(), here.addresses.end(),
                     [](const std::vector<SegmentAddress>& of_ranks) { return !of_ranks.empty(); });
}

void* mapped_address(Rank rank, const SegmentAddress& address) noexcept {
  if (rank == job().rank()) return reinterpret_cast<void*>(address.addr);
  if (address.size == 0 || address.size == UINTPTR_MAX || job().transport == nullptr ||
      !neighbourhood().contains(rank))
    return nullptr;
  return job().memory->mapped(rank, address.addr, address.size);
}

}  // namespace hydrant
