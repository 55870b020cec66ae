// Attaches and publishes segments: agrees on sizes through the job's store, maps the node's memory
// (segment_memory.cpp), and answers queries for other ranks' segments. Called by calls_segment.cpp and
// gasnet1.cpp.
#include "am/segment/segments.hpp"

#include <hydrant/gasnet/barrier.h>

#include "am/job/job.hpp"
#include "am/segment/memory_faults.hpp"
#include "am/segment/neighbourhood.hpp"
#include "am/segment/segment_memory.hpp"
#include "am/segment/segment_size.hpp"
#include "firehose/base/cancellation.hpp"
#include "firehose/base/log.hpp"
#include "firehose/base/thread.hpp"
#include "rdma/exit/fd_passing.hpp"
#include "rdma/shared_files.hpp"

#include <algorithm>
#include <cstdio>
#include <gasnet_config.h>
#include <span>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

namespace hydrant {
namespace {

constexpr uint64_t kAttachNs = 60'000'000'000;
// Number of the first attach's shared descriptor within the node, after those of the transport and of
// barriers. Later attaches, which follow failed ones, count on.
constexpr uint32_t kFirstSegmentsFd = 3;

// The request that every rank publishes before the memory exists.
struct Wish {
  uint64_t size = 0;
  uint64_t minheapoffset = 0;
};

// Cache of other ranks' segments, each queried once. Guarded by Job::bootstrap_mu.
struct Known {
  std::string key;  // key of the latest cards; empty before the first publication
  std::vector<SegmentPlace> places;
  SegmentPlace published;  // this rank's, by publish_segments()
  uint32_t rounds = 0;     // calls of publish_segments()
  uint32_t attaches = 0;   // calls of attach_segments()
};
Known& known() noexcept {
  static Known all;
  return all;
}

// "segment-wish.0": a launcher may keep what was put first under a key, so each round has its own.
struct CardKey {
  CardKey(const char* name, uint32_t round) noexcept {
    snprintf(text, sizeof text, "%s.%u", name, round);
  }
  char text[32];
};

template <typename Card>
Status put_card(const char* key, const Card& card) noexcept {
  return job().bootstrap->put(key, std::as_bytes(std::span(&card, 1)));
}
template <typename Card>
Status get_card(Rank rank, const char* key, Card* card) noexcept {
  size_t bytes = 0;
  const Status status = job().bootstrap->get(rank, key, std::as_writable_bytes(std::span(card, 1)),
                                             &bytes, now_ns() + kAttachNs);
  if (status == Status::kOk && bytes != sizeof(Card))
    return fail(Status::kBroken,
                "the entry '%s' of rank %u in the job's store has an unexpected size of %zu bytes",
                key, rank, bytes);
  return status;
}

Status get_place(Rank rank, const char* key, SegmentPlace* place) noexcept {
  SegmentPlace told;
  const Status status = get_card(rank, key, &told);
  if (status != Status::kOk) return status;
  if (told.size != 0 && !MemoryRange{told.addr, told.size}.valid()) {
    return fail(
        Status::kBroken,
        "the entry '%s' of rank %u in the job's store is no range of addresses: [%#llx, +%llu)",
        key, rank, static_cast<unsigned long long>(told.addr),
        static_cast<unsigned long long>(told.size));
  }
  *place = told;
  return Status::kOk;
}

// Computes the slices of the node's ranks from their requests.
Status lay_out(const Wish& mine, const CardKey& key, std::vector<SegmentSlice>* slices) noexcept {
  const std::vector<Rank>& ranks = job().topology().node_ranks;
  std::vector<uint64_t> sizes;
  for (const Rank rank : ranks) {
    Wish wish;
    if (const Status status = get_card(rank, key.text, &wish); status != Status::kOk) return status;
    if (wish.minheapoffset != mine.minheapoffset) {
      return fail(Status::kBadArg,
                  "minheapoffset is %llu here and %llu on rank %u; it must be the same",
                  static_cast<unsigned long long>(mine.minheapoffset),
                  static_cast<unsigned long long>(wish.minheapoffset), rank);
    }
    sizes.push_back(wish.size);
  }
  return lay_out_slices(ranks, sizes, slices);
}

// Creates one file for the node and maps its slices. With `laid_out` an error, it only tells the other ranks.
Status map_node(Status laid_out, uint32_t round, std::vector<SegmentSlice>* slices) noexcept {
  const JobTopology& place = job().topology();
  int made = -1;
  Status status = laid_out;
  if (status == Status::kOk && place.node_rank == 0) status = make_segment_file(*slices, &made);
  int fd = made;
  // share_fd() holds a fence of the whole job, so a rank that is alone on its node calls it too, and so does
  // a rank that has failed.
  if (place.size > 1)
    status = share_fd(*job().bootstrap, kFirstSegmentsFd + round, status, made, &fd,
                      now_ns() + kAttachNs);
  if (status == Status::kOk) status = map_slices(fd, place.rank, slices);
  if (status == Status::kOk) {
    const SegmentSlice& own = (*slices)[place.node_rank];
    const MemoryRange range{reinterpret_cast<uintptr_t>(own.here), own.size};
    // On failure peers of the node cannot pin this memory, but they have it mapped anyway.
    if (own.size != 0 && announce_shared_file(range, fd, own.start) != Status::kOk)
      log_info("the segment is not announced as shared memory: %s", last_error_text());
  }
  if (fd >= 0 && fd != made) close(fd);
  if (made >= 0) close(made);
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

// Reads the places of the node's segments. Errors: also kResource if a rank has none.
Status read_places(const char* key, std::vector<SegmentPlace>* places) noexcept {
  places->assign(job().size(), SegmentPlace{});
  for (const Rank rank : job().topology().node_ranks) {
    SegmentPlace& place = (*places)[rank];
    if (const Status status = get_place(rank, key, &place); status != Status::kOk) return status;
    if (place.size == 0)
      return fail(Status::kResource, "rank %u has no segment; see that rank's message", rank);
  }
  return Status::kOk;
}

// Publishes this rank's segment and reads those of the neighbours. The fence is the barrier of the attach.
Status exchange_places(const std::vector<SegmentSlice>& slices, const SegmentPlace& mine,
                       uint32_t round) noexcept {
  Job& the_job = job();
  const CardKey key("segment-place", round);
  Status status = put_card(key.text, mine);
  if (status == Status::kOk) status = the_job.bootstrap->fence(now_ns() + kAttachNs);
  // This rank has no memory; the caller reports the reason.
  if (mine.size == 0 || status != Status::kOk) return status;
  std::vector<SegmentPlace> places;
  status = read_places(key.text, &places);
  for (const SegmentSlice& slice : slices) {
    if (status != Status::kOk) return status;
    if (the_job.transport == nullptr || slice.rank == the_job.rank()) continue;
    const SegmentPlace& place = places[slice.rank];
    status = the_job.transport->add_segment(slice.rank, place.addr, place.size, slice.here);
  }
  if (status != Status::kOk) return status;
  known().places = std::move(places);
  known().key = key.text;
  return status;
}

// The maximum of a rank, which every rank publishes.
struct Most {
  uint64_t bytes = 0;
  uint64_t is_asked_for = 0;  // whether GASNET_MAX_SEGSIZE alone decides it
};
constexpr const char* kMostKey = "segment-most";

Most own_most() noexcept {
  return {.bytes = max_local_segment(), .is_asked_for = max_segment_is_asked_for() ? 1u : 0u};
}

// The smallest maximum of the job, and whether GASNET_MAX_SEGSIZE alone decides that of every rank. The first
// call queries the store.
Most least_of_job() noexcept {
  Job& the_job = job();
  static Most least;
  const MutexLock lock(the_job.bootstrap_mu);
  if (least.bytes != 0) return least;
  Most found = own_most();
  for (Rank rank = 0; rank < the_job.size(); ++rank) {
    Most most;
    if (get_card(rank, kMostKey, &most) != Status::kOk) continue;
    found.bytes = std::min(found.bytes, most.bytes);
    found.is_asked_for &= most.is_asked_for;
  }
  least = found;
  return least;
}

Status check_size(uintptr_t size) noexcept {
  if (size == 0 || size % GASNET_PAGESIZE != 0) {
    return fail(Status::kBadArg,
                "invalid segment size of %zu bytes: it must be a multiple of %d, and not 0", size,
                GASNET_PAGESIZE);
  }
  // A size between the two is tried: memory of files and addresses are counted with room to spare.
  if (size > max_attempted_segment()) {
    char why[kMaxSegmentText];
    return fail(Status::kBadArg, "a segment of %zu bytes exceeds the limit of %zu: %s", size,
                static_cast<size_t>(max_local_segment()), explain_max_segment(why, sizeof why));
  }
  return Status::kOk;
}

}  // namespace

Status attach_segments(uintptr_t size, uintptr_t minheapoffset) noexcept {
  Job& the_job = job();
  // This barrier polls and so delivers pending messages of other ranks; the store's fence does not poll.
  gex_Coll_BarrierBlocking(&hydrant_world, 0);
  catch_memory_faults();
  if (the_job.segment_mode == kEverything) {
    the_job.state.store(JobState::kAttached, std::memory_order_release);
    return Status::kOk;
  }
  const MutexLock lock(the_job.bootstrap_mu);
  const uint32_t round = known().attaches++;
  const Status size_status = check_size(size);
  // A rank with an invalid size publishes 0, so that the other ranks do not wait for its memory.
  const Wish wish = {.size = size_status == Status::kOk ? size : 0, .minheapoffset = minheapoffset};
  const CardKey wish_key("segment-wish", round);
  Status status = put_card(wish_key.text, wish);
  if (status == Status::kOk) status = the_job.bootstrap->fence(now_ns() + kAttachNs);
  if (status != Status::kOk) return status;
  // From here on a rank that fails takes part in all that follows: others are in the same fences.
  std::vector<SegmentSlice> slices;
  status = lay_out(wish, wish_key, &slices);
  const Status mapped = map_node(status, round, &slices);
  const std::string shortage = mapped != Status::kOk ? last_error_text() : "";
  SegmentPlace mine;
  if (mapped == Status::kOk && size_status == Status::kOk) {
    mine.addr = reinterpret_cast<uint64_t>(slices[the_job.topology().node_rank].here);
    mine.size = size;
  }
  status = exchange_places(slices, mine, round);
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

Status publish_segments(bool mine_too) noexcept {
  Job& the_job = job();
  catch_memory_faults();
  // As in attach_segments(): a barrier that polls, before the store's fence.
  gex_Coll_BarrierBlocking(&hydrant_world, 0);
  const MutexLock lock(the_job.bootstrap_mu);
  Known& here = known();
  const hydrant_segment* bound = the_job.endpoint.segment;
  if (mine_too && bound != nullptr) {
    here.published = {.addr = reinterpret_cast<uint64_t>(bound->addr), .size = bound->size};
  }
  const CardKey key("segment-bound", here.rounds++);
  Status status = put_card(key.text, here.published);
  if (status == Status::kOk) status = the_job.bootstrap->fence(now_ns() + kAttachNs);
  if (status != Status::kOk) return status;
  here.key = key.text;
  here.places.resize(the_job.size());
  for (const Rank rank : the_job.topology().node_ranks) {
    SegmentPlace& place = here.places[rank];
    if (place.size != 0) continue;
    if (status = get_place(rank, key.text, &place); status != Status::kOk) return status;
  }
  return Status::kOk;
}

Status publish_max_segment() noexcept {
  count_process_limits();
  return put_card(kMostKey, own_most());
}

uintptr_t max_global_segment() noexcept { return least_of_job().bytes; }

uintptr_t max_agreed_segment() noexcept {
  const Most least = least_of_job();
  return least.is_asked_for != 0 ? max_local_segment() : least.bytes;
}

Status find_segment(Rank rank, SegmentPlace* place, bool may_ask) noexcept {
  *place = {};
  Job& the_job = job();
  if (the_job.segment_mode == kEverything) {
    place->size = UINTPTR_MAX;
    return Status::kOk;
  }
  if (rank == the_job.rank()) {
    const hydrant_segment* bound = the_job.endpoint.segment;
    if (bound != nullptr)
      *place = {.addr = reinterpret_cast<uint64_t>(bound->addr), .size = bound->size};
    return Status::kOk;
  }
  const CancellationDisabled guard;
  const MutexLock lock(the_job.bootstrap_mu);
  Known& here = known();
  if (here.key.empty()) return Status::kOk;  // no segment was published
  SegmentPlace& found = here.places[rank];
  if (found.size == 0) {
    if (!may_ask) return Status::kNotReady;
    if (const Status status = get_place(rank, here.key.c_str(), &found); status != Status::kOk)
      return status;
  }
  *place = found;
  return Status::kOk;
}

bool segments_are_known() noexcept {
  const MutexLock lock(job().bootstrap_mu);
  return !known().key.empty();
}

void* address_here(Rank rank, const SegmentPlace& place) noexcept {
  if (rank == job().rank()) return reinterpret_cast<void*>(place.addr);
  if (place.size == 0 || place.size == UINTPTR_MAX || job().transport == nullptr ||
      !neighbourhood().contains(rank))
    return nullptr;
  return job().transport->mapped(rank, place.addr, place.size);
}

}  // namespace hydrant
