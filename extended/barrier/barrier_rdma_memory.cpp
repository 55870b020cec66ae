// Allocates, registers and connects the shared states of RdmaBarrier, and writes words to other nodes' shared
// states through PinnedOperations::put(). Called by barriers.cpp at job start; WordWriter::post() is called
// by barrier_rdma.cpp.
#include "extended/barrier/barrier_rdma_memory.hpp"

#include "firehose/base/errno_text.hpp"
#include "firehose/base/log.hpp"
#include "firehose/base/machine/memory_file.hpp"
#include "firehose/base/planted_defect.hpp"
#include "firehose/base/thread.hpp"
#include "firehose/base/uncancelled.hpp"
#include "rdma/bootstrap/fd_passing.hpp"
#include "rdma/config/job_knobs.hpp"
#include "rdma/transport/guarded_memory.hpp"

#include <cerrno>
#include <span>
#include <string_view>
#include <sys/mman.h>
#include <unistd.h>

namespace hydrant {
namespace {

constexpr uint64_t kWaitNs = 60'000'000'000;
// Number of the shared descriptor within the node, after the transport's; those of segments follow.
constexpr uint32_t kSharedMemoryFd = 2;
constexpr const char* kKey = "barrier-board";
constexpr const char* kInstead = "GASNET_BARRIER=AMDISSEM needs no such memory";
constexpr const char* kPurpose = "barriers (GASNET_BARRIER=AMDISSEM needs none)";

// Published in the store: the addresses of a node's shared states, the PutOrder of words that come to it, and
// the exported key.
struct BarrierMemoryAddress {
  static constexpr size_t kMaxBlob = 512;
  uint64_t states[BarrierRdmaMemory::kBarriers] = {};
  uint32_t blob_bytes = 0;
  uint32_t order = 0;
  std::byte blob[kMaxBlob] = {};
};
static_assert(sizeof(BarrierMemoryAddress) <= Bootstrap::kMaxValueBytes);

// True if every rank counts as its own node. The same on all ranks.
bool is_flat(const JobTopology& topology) noexcept {
  return topology.node_count == 1 || knob_choice(JobKnob::kTransport) == "ibv";
}

// This rank's node among the nodes of the barrier.
struct Grouping {
  const JobTopology& topology;
  uint32_t nodes = 1;
  uint32_t node = 0;
  std::vector<Rank> ranks;
  uint32_t index = 0;

  static Grouping of(const JobTopology& topology) {
    if (is_flat(topology)) {
      return {.topology = topology,
              .nodes = topology.size,
              .node = topology.rank,
              .ranks = {topology.rank},
              .index = 0};
    }
    return {.topology = topology,
            .nodes = topology.node_count,
            .node = topology.node,
            .ranks = topology.node_ranks,
            .index = topology.node_rank};
  }
  Rank leader(uint64_t of_node) const {
    return is_flat(topology) ? static_cast<Rank>(of_node) : topology.leaders[of_node];
  }
  Rank target(uint32_t round) const { return leader((node + (uint64_t{1} << round)) % nodes); }
  Rank source(uint32_t round) const {
    return leader((uint64_t{node} + nodes - (uint64_t{1} << round)) % nodes);
  }
};

size_t page_bytes() noexcept { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }
size_t whole_pages(size_t bytes) noexcept {
  return (bytes + page_bytes() - 1) / page_bytes() * page_bytes();
}

// Completion of a write. No thread waits for it, and the transport itself detects a lost peer.
void note_failure(Completion&, Status status) noexcept {
  if (status == Status::kOk) return;
  static constinit RateLimit limit(RateLimit::kSecond);
  log_warning(limit, "a barrier's word for another node was not written (%s)", status_name(status));
}
// Writes share this completion, because it has no state.
constinit Completion common_completion = {.done = note_failure};

}  // namespace

uint32_t BarrierRdmaMemory::nodes(const JobTopology& topology) {
  return Grouping::of(topology).nodes;
}

std::string BarrierRdmaMemory::obstacle(const Bootstrap& bootstrap, Transport* transport) {
  const JobTopology& topology = bootstrap.topology();
  if (transport == nullptr) return "the job has one rank";
  if (!is_flat(topology) && topology.leaders.size() != topology.node_count)
    return std::string("the launcher (") + bootstrap.name() +
           ") does not report the first rank of each node";
  const Grouping grouping = Grouping::of(topology);
  for (uint32_t round = 0; round < RdmaBarrier::rounds_of(grouping.nodes); ++round) {
    const Rank rank = grouping.target(round);
    if ((transport->peer_capabilities(rank) & Transport::kPinned) == 0)
      return std::string(transport->name()) + " cannot write to pinned memory of rank " +
             std::to_string(rank);
  }
  PinnedOperations* const pinned = transport->pinned();
  if (pinned == nullptr) return std::string(transport->name()) + " writes no pinned memory";
  return pinned->put_order() != PutOrder::kRelaxed || has_defect(Defect::kRelaxedWords)
             ? ""
             : "a word could be seen before puts that have completed (HYDRANT_IBV_ORDER)";
}

BarrierRdmaMemory::~BarrierRdmaMemory() {
  for (const Target& target : targets_) {
    if (!target.key.empty()) registrar_->drop_import(target.key.data());
  }
  if (!key_.empty())
    (void)registrar_->unpin({reinterpret_cast<uintptr_t>(memory_), bytes_}, key_.data());
  if (memory_ != nullptr && !release_guarded(memory_)) (void)munmap(memory_, bytes_);
}

size_t BarrierRdmaMemory::state_offset(uint32_t which) const noexcept {
  return which * BarrierRdmaState::bytes(ranks_here_);
}

Status BarrierRdmaMemory::map_memory(size_t bytes) noexcept {
  int fd = -1;
  // Shared: a fork must not copy registered pages.
  int flags = MAP_SHARED | MAP_FIXED | MAP_ANONYMOUS;
  Status status = Status::kOk;
  if (!is_flat(bootstrap_.topology())) {
    flags = MAP_SHARED | MAP_FIXED;
    int made = -1;
    if (bootstrap_.topology().node_rank == 0) {
      made = make_memory_file("hydrant barriers", bytes);
      if (made < 0) status = refuse_memory_file(kPurpose, bytes);
    }
    status = share_fd(bootstrap_, kSharedMemoryFd, status, made, &fd, now_ns() + kWaitNs);
    if (made >= 0) uncancelled::close(made);
  }
  std::byte* start = nullptr;
  if (status == Status::kOk) {
    status = reserve_guarded(bytes, page_bytes(), GuardSize::kRoomy,
                             {.what = "shared memory of barriers"}, &start);
    if (status != Status::kOk) (void)add_context(status, "%s", kInstead);
  }
  memory_ = start;
  bytes_ = bytes;
  if (status == Status::kOk &&
      mmap(start, bytes, PROT_READ | PROT_WRITE, flags, fd, 0) == MAP_FAILED)
    status = fail(Status::kResource, "cannot map %zu bytes for barriers: %s; %s", bytes,
                  errno_text(errno), kInstead);
  if (fd >= 0) uncancelled::close(fd);
  return status;
}

Status BarrierRdmaMemory::register_memory(size_t bytes) noexcept {
  const RegistrarTraits& traits = registrar_->traits();
  const MemoryRange range{reinterpret_cast<uintptr_t>(memory_), bytes};
  if (!traits.exports || traits.export_bytes > BarrierMemoryAddress::kMaxBlob ||
      bytes % traits.granule_bytes != 0 || range.addr % traits.granule_bytes != 0)
    return fail(Status::kUnsupported,
                "%s pins units of %zu bytes with key blobs of %u bytes; barriers need %zu bytes "
                "and blobs of at most %zu; %s",
                traits.name, traits.granule_bytes, traits.export_bytes, bytes,
                BarrierMemoryAddress::kMaxBlob, kInstead);
  key_.resize(traits.key_bytes);
  const Status status =
      registrar_->pin(range, Access::kLocalWrite | Access::kRemoteWrite, key_.data());
  if (status == Status::kOk) return status;
  key_.clear();
  const std::string why = last_error_text();
  return fail(status, "cannot pin the memory for barriers (%zu bytes): %s; %s", bytes, why.c_str(),
              kInstead);
}

Status BarrierRdmaMemory::publish_memory(size_t bytes) noexcept {
  const MemoryRange range{reinterpret_cast<uintptr_t>(memory_), bytes};
  BarrierMemoryAddress address;
  size_t blob_bytes = sizeof address.blob;
  const Status status = registrar_->export_key(range, key_.data(), address.blob, &blob_bytes);
  if (status != Status::kOk) {
    const std::string why = last_error_text();
    return fail(status, "cannot export the memory for barriers (%zu bytes): %s; %s", bytes,
                why.c_str(), kInstead);
  }
  address.blob_bytes = static_cast<uint32_t>(blob_bytes);
  address.order = static_cast<uint32_t>(pinned_.put_order());
  for (uint32_t which = 0; which < kBarriers; ++which)
    address.states[which] = range.addr + state_offset(which);
  return bootstrap_.put(kKey, std::as_bytes(std::span(&address, 1)));
}

Status BarrierRdmaMemory::make() noexcept {
  const Grouping grouping = Grouping::of(bootstrap_.topology());
  ranks_here_ = static_cast<uint32_t>(grouping.ranks.size());
  const size_t bytes = whole_pages(state_offset(kBarriers));
  Status status = map_memory(bytes);
  if (status != Status::kOk) return status;
  registrar_ = pinned_.make_registrar();
  if (registrar_ == nullptr) {
    const std::string why = last_error_text();
    return fail(Status::kUnsupported, "barriers cannot pin memory: %s; %s", why.c_str(), kInstead);
  }
  const bool is_first = grouping.index == 0;
  reads_words_ = pinned_.keyless_bytes() < sizeof(uint64_t);
  if (is_first || reads_words_) status = register_memory(bytes);
  return status == Status::kOk && is_first ? publish_memory(bytes) : status;
}

Status BarrierRdmaMemory::connect() noexcept {
  const Grouping grouping = Grouping::of(bootstrap_.topology());
  Status status = Status::kOk;
  bool is_ordered = pinned_.put_order() == PutOrder::kOrdered;
  for (uint32_t round = 0; round < RdmaBarrier::rounds_of(grouping.nodes); ++round) {
    Target& target = targets_.emplace_back();
    target.rank = grouping.target(round);
    BarrierMemoryAddress address;
    size_t bytes = 0;
    status = bootstrap_.get(target.rank, kKey, std::as_writable_bytes(std::span(&address, 1)),
                            &bytes, now_ns() + kWaitNs);
    if (status != Status::kOk)
      return add_context(
          status,
          "barriers with rank %u, by RDMA (HYDRANT_TRANSPORT and GASNET_BARRIER have "
          "to be the same on all ranks)",
          target.rank);
    if (bytes != sizeof address || address.blob_bytes > sizeof address.blob)
      return fail(
          Status::kBroken,
          "the barrier entry of rank %u in the job's store has an unexpected size of %zu bytes",
          target.rank, bytes);
    for (uint32_t which = 0; which < kBarriers; ++which)
      target.states[which] = address.states[which];
    is_ordered &= address.order == static_cast<uint32_t>(PutOrder::kOrdered);
    target.key.resize(registrar_->traits().key_bytes);
    status = registrar_->import_key(address.blob, address.blob_bytes, target.key.data());
    if (status != Status::kOk) {
      target.key.clear();
      return status;
    }
  }
  if (!is_ordered) return make_late_writers();
  is_plain_ = !reads_words_;
  return status;
}

Status BarrierRdmaMemory::make_late_writers() noexcept {
  for (uint32_t which = 0; which < kBarriers; ++which) {
    void* const state = memory_ + state_offset(which);
    late_writers_[which].reset(
        new (std::nothrow) LateWordWriter(writers_[which], *static_cast<BarrierRdmaState*>(state)));
    if (late_writers_[which] == nullptr) return fail(Status::kResource, "no memory for barriers");
  }
  return Status::kOk;
}

RdmaBarrier::Config BarrierRdmaMemory::config(uint32_t which) {
  const Grouping grouping = Grouping::of(bootstrap_.topology());
  void* shared = memory_ + state_offset(which);
  RdmaBarrier::Config config{.nodes = grouping.nodes,
                             .ranks = grouping.ranks,
                             .index = grouping.index,
                             .sources = {},
                             .shared = static_cast<BarrierRdmaState*>(shared),
                             .writer = &writers_[which],
                             .sleeping = &transport_.sleeping()};
  for (uint32_t round = 0; round < RdmaBarrier::rounds_of(grouping.nodes); ++round)
    config.sources.push_back(grouping.source(round));
  return config;
}

[[gnu::always_inline]] inline Status BarrierRdmaMemory::WordWriter::put_from(
    PinnedOperations::Pinned source, uint32_t parity, uint32_t round, uint64_t word,
    Completion& completion) noexcept {
  const Target& target = owner->targets_[round];
  const uint64_t addr = target.states[which] + BarrierRdmaState::word_offset(parity, round);
  const Status status = owner->pinned_.put(target.rank, {.addr = addr, .key = target.key.data()},
                                           source, sizeof word, &completion);
  if (status == Status::kOk) [[likely]]
    failures.note_success();
  else
    failures.note(target.rank, status, now_ns(), word);
  return status;
}

Status BarrierRdmaMemory::WordWriter::put(uint32_t parity, uint32_t round, uint64_t word,
                                          Completion& completion) noexcept {
  if (!owner->reads_words_)
    return put_from({.addr = reinterpret_cast<uintptr_t>(&word), .key = nullptr}, parity, round,
                    word, completion);
  void* const state = owner->memory_ + owner->state_offset(which);
  std::atomic<uint64_t>& place = static_cast<BarrierRdmaState*>(state)->sources[parity][round];
  place.store(word, std::memory_order_relaxed);
  return put_from({.addr = reinterpret_cast<uintptr_t>(&place), .key = owner->key_.data()}, parity,
                  round, word, completion);
}

Status BarrierRdmaMemory::WordWriter::post(uint32_t parity, uint32_t round,
                                           uint64_t word) noexcept {
  if (owner->is_plain_) [[likely]]
    return put_from({.addr = reinterpret_cast<uintptr_t>(&word), .key = nullptr}, parity, round,
                    word, common_completion);
  LateWordWriter* const late = owner->late_writers_[which].get();
  return late != nullptr ? late->post(parity, round, word)
                         : put(parity, round, word, common_completion);
}

BarrierRdmaMemory::LateWordWriter::LateWordWriter(WordWriter& writer,
                                                  BarrierRdmaState& state) noexcept
    : writer_(writer) {
  for (uint32_t parity = 0; parity < 2; ++parity) {
    for (uint32_t round = 0; round < BarrierRdmaState::kRounds; ++round) {
      sent_[parity][round].done = end;
      sent_[parity][round].under_way = &state.under_way[parity][round];
    }
  }
}

// The rank holds the barrier's lock: no other one posts meanwhile.
Status BarrierRdmaMemory::LateWordWriter::post(uint32_t parity, uint32_t round,
                                               uint64_t word) noexcept {
  Sent& sent = sent_[parity][round];
  if (sent.under_way->load(std::memory_order_acquire) != 0) return Status::kNotReady;
  sent.under_way->store(1, std::memory_order_relaxed);
  const Status status = writer_.put(parity, round, word, sent);
  if (status != Status::kOk) sent.under_way->store(0, std::memory_order_relaxed);
  return status;
}

void BarrierRdmaMemory::LateWordWriter::end(Completion& completion, Status status) noexcept {
  static_cast<Sent&>(completion).under_way->store(0, std::memory_order_release);
  note_failure(completion, status);
}

}  // namespace hydrant
