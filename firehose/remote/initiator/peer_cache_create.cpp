// Creates a peer's cache at its first use: a domain whose registrar registers no memory (RemoteRegistrar).
// Requests are in peer_cache.cpp.
#include "firehose/cache/domain_registry.hpp"
#include "firehose/remote/initiator/peer_cache.hpp"

#include <cstdio>
#include <cstring>
#include <new>
#include <utility>

namespace hydrant {

namespace {

// Room for ids that senders have taken, and may put back, beside the listed ones.
constexpr size_t kMaxInTransit = 4096;
// The lease before the peer has sent one: the peer decides.
constexpr uint64_t kUnknownLease = uint64_t{1} << 46;

constexpr size_t align_up(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

}  // namespace

// The domain's registrar: registers no memory, and returns unpinned firehoses to the peer.
class PeerCache::RemoteRegistrar final : public Registrar {
 public:
  explicit RemoteRegistrar(PeerCache& peer) noexcept : peer_(peer) {
    const RegistrarTraits& local = peer.channel_.domain().registrar().traits();
    traits_.name = "remote";
    traits_.key_bytes = static_cast<uint32_t>(peer.id_offset_ + sizeof(uint64_t));
    traits_.granule_bytes = local.granule_bytes;
    traits_.max_region_bytes = peer.channel_.config().max_region_bytes;
    traits_.max_regions = peer.channel_.config().max_peer_regions;
    traits_.asynchronous = true;
  }

  const RegistrarTraits& traits() const noexcept override { return traits_; }
  Status pin(MemoryRange, Access, std::byte*) noexcept override {
    return fail_literal(Status::kNotReady,
                        "memory of a peer is requested from the peer, not registered");
  }
  UnpinResult unpin(MemoryRange, const std::byte* key) noexcept override {
    peer_.channel_.domain().registrar().drop_import(key);
    uint64_t id = 0;
    std::memcpy(&id, key + peer_.id_offset_, sizeof id);
    peer_.add_release(id);
    return UnpinResult::kDone;
  }

 private:
  PeerCache& peer_;
  RegistrarTraits traits_;
};

Status PeerCache::create(RemoteChannel& channel, RemoteCompletions& completions, uint32_t peer,
                         std::unique_ptr<PeerCache>* out) noexcept {
  // Claims the place first: if there is none, each pin of such a peer comes here, and must cost no more than
  // that.
  const uint64_t handle = claim_domain_handle(DomainOwner::kPeer);
  if (handle == 0) {
    return fail(Status::kResource,
                "this process has caches of the memory of %u peers already, in all its ends: that "
                "is the limit; reach rank %u by messages",
                kMaxDomains - kMaxClientDomains, peer);
  }
  out->reset(new (std::nothrow) PeerCache(channel, completions, peer));
  const Status status = *out != nullptr ? (*out)->make_domain(handle)
                                        : fail(Status::kResource,
                                               "the system has no memory for the cache of rank %u: "
                                               "free memory, or raise ulimit -v",
                                               peer);
  if (status != Status::kOk) {
    out->reset();
    abandon_domain_handle(handle);
  }
  return status;
}

Status PeerCache::make_domain(uint64_t handle) noexcept HYDRANT_NO_TSA {
  const RemoteConfig& config = channel_.config();
  const DomainConfig& local = channel_.domain().config();
  id_offset_ = align_up(channel_.domain().registrar().traits().key_bytes, sizeof(uint64_t));
  DomainConfig mine;
  (void)snprintf(mine.name, sizeof mine.name, "%.20s.%u", config.name, peer_);
  mine.mode = HYDRANT_MODE_REGION;
  mine.watch = HYDRANT_WATCH_CLIENT;
  mine.is_remote = true;
  mine.budget_bytes = kUnknownLease;
  mine.max_regions = config.max_peer_regions;
  mine.max_region_bytes = config.max_region_bytes;
  mine.granule_bytes = local.granule_bytes;
  mine.merge_bytes = config.merge_bytes;
  mine.stream_bytes = config.stream_bytes <= 1 ? 0 : config.stream_bytes;
  mine.thread_table_bytes = local.thread_table_bytes;
  mine.wait_warn_ns = local.wait_warn_ns;
  const uint32_t slots = Domain::slots_for(mine.max_regions);
  std::unique_ptr<Registrar> requester(new (std::nothrow) RemoteRegistrar(*this));
  CachePolicies policies;
  if (requester == nullptr || !policies.complete(requester->traits(), slots) ||
      !released_.map(size_t{2} * slots + kMaxInTransit)) {
    return fail(
        Status::kResource,
        "the system has no memory for the cache of rank %u: free memory, or raise ulimit -v",
        peer_);
  }
  std::unique_ptr<Domain> domain(
      new (std::nothrow) Domain(mine, std::move(requester), std::move(policies), handle));
  Status status = domain != nullptr ? domain->set_up()
                                    : fail(Status::kResource,
                                           "the system has no memory for the cache of rank %u: "
                                           "free memory, or raise ulimit -v",
                                           peer_);
  if (status != Status::kOk) return status;
  domain_ = domain.get();
  handle_ = handle;
  add_to_fork_list(*domain);
  publish_domain(std::move(domain));
  return Status::kOk;
}

PeerCache::~PeerCache() {
  if (domain_ == nullptr) return;
  std::unique_ptr<Domain> domain(withdraw_domain(handle_));
  if (domain == nullptr) return;
  domain->shut_down(true);
  forget_domain(std::move(domain));
}

}  // namespace hydrant
