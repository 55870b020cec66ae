#include "am/segments.hpp"

#include <hydrant/gasnet/barrier.h>

#include "am/job.hpp"
#include "am/neighbourhood.hpp"
#include "am/segment_size.hpp"
#include "firehose/base/errno_text.hpp"
#include "firehose/base/log.hpp"
#include "firehose/base/thread.hpp"
#include "rdma/node_channel.hpp"
#include "rdma/shared_files.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <gasnet_config.h>
#include <span>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

namespace hydrant {
namespace {

constexpr uint64_t kAttachNs = 60'000'000'000;
// The second descriptor that the ranks of a node share; the first is the transport's.
constexpr uint32_t kSegmentsFd = 2;
constexpr uint64_t kHugePage = uint64_t{2} << 20;

// What every rank says before and after its memory exists.
struct Wish {
  uint64_t size = 0;
  uint64_t minheapoffset = 0;
};

// What this process knows of others' segments; asked for once each. Under Job::bootstrap_mu.
struct Known {
  std::string key;  // of the cards that hold the latest: nothing was published while it is empty
  std::vector<SegmentPlace> places;
  SegmentPlace published;  // of this rank, by publish_segments()
  uint32_t rounds = 0;     // of publish_segments()
};
Known& known() noexcept {
  static Known all;
  return all;
}

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
    return fail(Status::kBroken, "the card '%s' of rank %u has %zu bytes", key, rank, bytes);
  return status;
}

// Where the slices of the node's ranks begin; the last entry is the end.
Status lay_out(const Wish& mine, std::vector<uint64_t>* starts) noexcept {
  starts->assign(1, 0);
  for (const Rank rank : job().place().node_ranks) {
    Wish wish;
    if (const Status status = get_card(rank, "segment-wish", &wish); status != Status::kOk)
      return status;
    if (wish.minheapoffset != mine.minheapoffset) {
      return fail(Status::kBadArg,
                  "minheapoffset is %llu here and %llu on rank %u; it must be the same",
                  static_cast<unsigned long long>(mine.minheapoffset),
                  static_cast<unsigned long long>(wish.minheapoffset), rank);
    }
    starts->push_back((starts->back() + wish.size + kHugePage - 1) & ~(kHugePage - 1));
  }
  return Status::kOk;
}

// More than there is would have the kernel look for somebody to kill.
Status make_memory(uint64_t bytes, int* fd) noexcept {
  if (const uint64_t available = available_memory(); bytes > available) {
    return fail(
        Status::kResource,
        "the segments of this host need %llu bytes, and %llu are available; ask for less, or "
        "set GASNET_MAX_SEGSIZE",
        static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(available));
  }
  *fd = memfd_create("hydrant segments", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  // Nobody who maps it can take pages away from under others.
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  if (*fd < 0 || ftruncate(*fd, static_cast<off_t>(bytes)) != 0 ||
      fcntl(*fd, F_ADD_SEALS, kSeals) != 0) {
    return fail(Status::kResource, "no memory file of %llu bytes for the segments: %s",
                static_cast<unsigned long long>(bytes), errno_text(errno));
  }
  return Status::kOk;
}

// Reserves this rank's slice, so that touching it cannot fail.
Status reserve(int fd, uint64_t start, uint64_t bytes) noexcept {
  int result = 0;
  do {
    result = fallocate(fd, 0, static_cast<off_t>(start), static_cast<off_t>(bytes));
  } while (result != 0 && errno == EINTR);
  if (result == 0) return Status::kOk;
  const int error = errno;
  return fail(
      Status::kResource,
      "a segment of %llu bytes was asked for, and %llu are available (%s); ask for less, or set "
      "GASNET_MAX_SEGSIZE",
      static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(available_memory()),
      errno_text(error));
}

// One file for the node, its slices reserved, mapped whole.
Status map_node(const std::vector<uint64_t>& starts, uint64_t size, std::byte** base) noexcept {
  const JobPlace& place = job().place();
  const uint64_t bytes = starts.back();
  int made = -1;
  Status status = Status::kOk;
  if (place.node_rank == 0) status = make_memory(bytes, &made);
  int fd = made;
  // Also where this rank is alone on its node: others are not, and it holds a fence of the whole job.
  if (status == Status::kOk && place.size > 1) {
    status = share_fd(*job().bootstrap, kSegmentsFd, made, &fd, now_ns() + kAttachNs);
  }
  if (status == Status::kOk) status = reserve(fd, starts[place.node_rank], size);
  if (status == Status::kOk) {
    void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (mapped == MAP_FAILED) {
      status = fail(Status::kResource, "the node's segments (%llu bytes) cannot be mapped: %s",
                    static_cast<unsigned long long>(bytes), errno_text(errno));
    }
    *base = static_cast<std::byte*>(mapped);
  }
  if (status == Status::kOk && size != 0) {
    const auto own = reinterpret_cast<uintptr_t>(*base) + starts[place.node_rank];
    // Without it this memory cannot be pinned for peers of the node: they have it mapped anyway.
    if (announce_shared_file({own, size}, fd, starts[place.node_rank]) != Status::kOk)
      log_info("the segment is not announced as shared memory: %s", last_error_text());
  }
  if (fd >= 0 && fd != made) close(fd);
  if (made >= 0) close(made);
  return status;
}

// Tells where the slice is, and learns it of the neighbours. The fence is attach's barrier.
Status exchange_places(const std::vector<uint64_t>& starts, std::byte* base,
                       const SegmentPlace& mine) noexcept {
  Job& the_job = job();
  Status status = put_card("segment-place", mine);
  if (status == Status::kOk) status = the_job.bootstrap->fence(now_ns() + kAttachNs);
  // Without memory there is nothing to map, and the reason is known.
  if (mine.size == 0 || status != Status::kOk) return status;
  known().places.assign(the_job.size(), SegmentPlace{});
  known().key = "segment-place";
  const std::vector<Rank>& ranks = the_job.place().node_ranks;
  for (size_t i = 0; i < ranks.size() && status == Status::kOk; ++i) {
    SegmentPlace& place = known().places[ranks[i]];
    status = get_card(ranks[i], "segment-place", &place);
    if (status == Status::kOk && place.size == 0) {
      status =
          fail(Status::kResource, "rank %u found no memory for its segment; it says why", ranks[i]);
    }
    if (status == Status::kOk && the_job.transport != nullptr && ranks[i] != the_job.rank()) {
      status = the_job.transport->add_segment(ranks[i], place.addr, place.size, base + starts[i]);
    }
  }
  return status;
}

Status check_size(uintptr_t size) noexcept {
  if (size == 0 || size % GASNET_PAGESIZE != 0) {
    return fail(Status::kBadArg, "a segment of %zu bytes; it must be a multiple of %d, and not 0",
                size, GASNET_PAGESIZE);
  }
  if (size > max_local_segment()) {
    return fail(Status::kBadArg, "a segment of %zu bytes; the most is %zu (GASNET_MAX_SEGSIZE)",
                size, static_cast<size_t>(max_local_segment()));
  }
  return Status::kOk;
}

}  // namespace

Status attach_segments(uintptr_t size, uintptr_t minheapoffset) noexcept {
  Job& the_job = job();
  // Whoever still waits for a message of this rank gets it: this barrier polls, the store's does not.
  gex_Coll_BarrierBlocking(&hydrant_world, 0);
  if (the_job.segment_mode == kEverything) {
    the_job.state.store(JobState::kAttached, std::memory_order_release);
    return Status::kOk;
  }
  const MutexLock lock(the_job.bootstrap_mu);
  const Status size_status = check_size(size);
  // Whoever has asked for what cannot be says so before the others wait for its memory.
  Wish wish = {.size = size_status == Status::kOk ? size : 0, .minheapoffset = minheapoffset};
  Status status = put_card("segment-wish", wish);
  if (status == Status::kOk) status = the_job.bootstrap->fence(now_ns() + kAttachNs);
  std::vector<uint64_t> starts;
  if (status == Status::kOk) status = lay_out(wish, &starts);
  if (status != Status::kOk) return status;
  std::byte* base = nullptr;
  Status mapped = map_node(starts, wish.size, &base);
  const std::string shortage = mapped != Status::kOk ? last_error_text() : "";
  SegmentPlace mine;
  if (mapped == Status::kOk && size_status == Status::kOk) {
    mine.addr = reinterpret_cast<uint64_t>(base + starts[the_job.place().node_rank]);
    mine.size = size;
  }
  status = exchange_places(starts, base, mine);
  if (size_status != Status::kOk) return check_size(size);
  if (mapped != Status::kOk) return fail(mapped, "%s", shortage.c_str());
  if (status != Status::kOk) return status;
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
  // Whoever still waits for a message of this rank gets it: this barrier polls, the store's does not.
  gex_Coll_BarrierBlocking(&hydrant_world, 0);
  const MutexLock lock(the_job.bootstrap_mu);
  Known& here = known();
  const hydrant_segment* bound = the_job.endpoint.segment;
  if (mine_too && bound != nullptr) {
    here.published = {.addr = reinterpret_cast<uint64_t>(bound->addr), .size = bound->size};
  }
  char key[32];
  snprintf(key, sizeof key, "segment-bound.%u", here.rounds++);
  Status status = put_card(key, here.published);
  if (status == Status::kOk) status = the_job.bootstrap->fence(now_ns() + kAttachNs);
  if (status != Status::kOk) return status;
  here.key = key;
  here.places.resize(the_job.size());
  for (const Rank rank : the_job.place().node_ranks) {
    SegmentPlace& place = here.places[rank];
    if (place.size != 0) continue;
    if (status = get_card(rank, key, &place); status != Status::kOk) return status;
  }
  return Status::kOk;
}

Status publish_max_segment() noexcept {
  const uint64_t most = max_local_segment();
  return put_card("segment-most", most);
}

uintptr_t max_global_segment() noexcept {
  Job& the_job = job();
  static uint64_t least = 0;
  const MutexLock lock(the_job.bootstrap_mu);
  if (least != 0) return least;
  uint64_t found = max_local_segment();
  for (Rank rank = 0; rank < the_job.size(); ++rank) {
    uint64_t most = 0;
    if (get_card(rank, "segment-most", &most) != Status::kOk) continue;
    found = std::min(found, most);
  }
  least = found;
  return least;
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
  const MutexLock lock(the_job.bootstrap_mu);
  Known& here = known();
  if (here.key.empty()) return Status::kOk;  // nobody has said anything
  SegmentPlace& found = here.places[rank];
  if (found.size == 0) {
    if (!may_ask) return Status::kNotReady;
    if (const Status status = get_card(rank, here.key.c_str(), &found); status != Status::kOk)
      return status;
  }
  *place = found;
  return Status::kOk;
}

void* address_here(Rank rank, const SegmentPlace& place) noexcept {
  if (rank == job().rank()) return reinterpret_cast<void*>(place.addr);
  if (place.size == 0 || place.size == UINTPTR_MAX || job().transport == nullptr ||
      !neighbourhood().contains(rank))
    return nullptr;
  return job().transport->mapped(rank, place.addr, place.size);
}

}  // namespace hydrant
