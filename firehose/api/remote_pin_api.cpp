// Implements the C functions of include/hydrant/remote_pin.h, and keeps the handles of the ends. Each
// function checks and converts its arguments and makes one call: step 4 of "Tour: a put".
#include "firehose/base/cancellation.hpp"
#include "firehose/base/config/knobs.hpp"
#include "firehose/base/log.hpp"
#include "firehose/cache/domain_registry.hpp"
#include "firehose/pin/failure_texts.hpp"
#include "firehose/pin/pin_handle.hpp"
#include "firehose/remote/initiator/remote_hit.hpp"
#include "firehose/remote/remote_pin_service.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <new>
#include <pthread.h>

using namespace hydrant;

namespace {

constexpr uint32_t kMaxEnds = 64;
constexpr uint32_t kMaxRanks = 65536;
constexpr size_t kAbsurdSize = 4096;
constexpr uint64_t kGiB = uint64_t{1} << 30;

// A handle is a place and a generation.
struct EndEntry {
  std::atomic<uint64_t> handle{0};
  std::atomic<RemotePinService*> end{nullptr};
  uint32_t generation = 0;
  bool claimed = false;
};
EndEntry g_ends[kMaxEnds];  // generation, claimed: guarded by g_mu
Mutex g_mu;
pthread_once_t g_once = PTHREAD_ONCE_INIT;

// A forked child is no rank and must not send to the peers. Its copies of the ends are leaked.
void forget_in_child() {
  g_mu.reset_in_child();
  for (EndEntry& entry : g_ends) entry.handle.store(0, std::memory_order_relaxed);
}

void install_fork_handler() { pthread_atfork(nullptr, nullptr, &forget_in_child); }

RemotePinService* find_end(uint64_t handle) noexcept {
  const EndEntry& entry = g_ends[handle % kMaxEnds];
  if (handle != 0 && entry.handle.load(std::memory_order_acquire) == handle) [[likely]]
    return entry.end.load(std::memory_order_relaxed);
  (void)fail(Status::kNotInit, "%#llx is no live end of remote pins: %s",
             static_cast<unsigned long long>(handle),
             handle == 0 ? "none was created" : "it was destroyed, or this process was forked off");
  return nullptr;
}

uint64_t claim() noexcept {
  pthread_once(&g_once, &install_fork_handler);
  MutexLock lock(g_mu);
  for (uint32_t i = 0; i < kMaxEnds; ++i) {
    EndEntry& entry = g_ends[i];
    if (entry.claimed) continue;
    entry.claimed = true;
    ++entry.generation;
    return uint64_t{entry.generation} * kMaxEnds + i;
  }
  return 0;
}

void unclaim(uint64_t handle) noexcept {
  MutexLock lock(g_mu);
  g_ends[handle % kMaxEnds].claimed = false;
}

Status check_messenger(const hydrant_messenger_t* messenger) noexcept {
  if (messenger == nullptr) {
    return fail(Status::kBadArg, "options.messenger is NULL; an end needs a way to send");
  }
  if (messenger->size < sizeof *messenger) {
    return fail(Status::kBadArg,
                "options.messenger->size is %zu, want sizeof(hydrant_messenger_t) = %zu",
                messenger->size, sizeof *messenger);
  }
  if (messenger->send == nullptr) {
    return fail(Status::kBadArg, "options.messenger->send is NULL; it is required");
  }
  if (messenger->max_message_bytes < HYDRANT_REMOTE_MIN_MESSAGE_BYTES) {
    return fail(Status::kBadArg,
                "options.messenger->max_message_bytes = %zu is less than "
                "HYDRANT_REMOTE_MIN_MESSAGE_BYTES = %u",
                messenger->max_message_bytes, HYDRANT_REMOTE_MIN_MESSAGE_BYTES);
  }
  return Status::kOk;
}

Status read_options(const hydrant_remote_options_t* given, hydrant_remote_options_t* out) noexcept {
  if (given == nullptr) {
    return fail(Status::kBadArg, "options is NULL; start from hydrant_remote_options_init()");
  }
  if (given->size < offsetof(hydrant_remote_options_t, flags) || given->size > kAbsurdSize) {
    return fail(Status::kBadArg, "options.size is %zu; start from hydrant_remote_options_init()",
                given->size);
  }
  *out = {};
  std::memcpy(out, given, std::min(given->size, sizeof *out));
  const Status status = check_messenger(out->messenger);
  if (status != Status::kOk) return status;
  if (out->ranks == 0 || out->ranks > kMaxRanks) {
    return fail(Status::kBadArg, "options.ranks = %u; an end knows 1 to %u ranks", out->ranks,
                kMaxRanks);
  }
  if (out->rank >= out->ranks) {
    return fail(Status::kBadArg,
                "options.rank = %u is none of the %u ranks, which are 0 to %u; raise options.ranks",
                out->rank, out->ranks, out->ranks - 1);
  }
  constexpr uint32_t kFlags = HYDRANT_REMOTE_INLINE_DONE | HYDRANT_REMOTE_INLINE_REMOTE;
  if ((out->flags & ~kFlags) != 0) {
    return fail(Status::kBadArg,
                "options.flags = %#x has bits beyond HYDRANT_REMOTE_INLINE_* (%#x)", out->flags,
                kFlags);
  }
  if (out->base_percent > 100) {
    return fail(Status::kBadArg,
                "options.base_percent = %u is more than the limit of 100: lower it",
                out->base_percent);
  }
  return Status::kOk;
}

// Chooses the bytes that peers may keep pinned here: at most the domain's own budget.
Status choose_peer_budget(const hydrant_remote_options_t& options, const DomainConfig& domain,
                          RemoteConfig* config) noexcept {
  const size_t granule = domain.granule_bytes;
  uint64_t budget = options.budget_bytes;
  if (budget != 0 && budget < granule) {
    return fail(Status::kBadArg,
                "options.budget_bytes = %llu is less than the %zu bytes that domain %s pins at "
                "least: peers would get nothing; 0 is half of the domain's budget",
                static_cast<unsigned long long>(budget), granule, domain.name);
  }
  if (budget == 0) budget = knob_number(Knob::kRemoteBudget);
  if (budget != 0 && budget < granule) {
    static RateLimit once(RateLimit::kOnce);
    log_warning(once,
                "domain %s: FIREHOSE_REMOTE_BUDGET=%llu is less than %zu bytes, the least that can "
                "be pinned for a peer; using the default, half of the domain's budget",
                domain.name, static_cast<unsigned long long>(budget), granule);
    budget = 0;
  }
  if (budget == 0) budget = std::max<uint64_t>(domain.budget_bytes / 2, granule);
  config->budget_bytes = std::min(budget, domain.budget_bytes);
  return Status::kOk;
}

Status make_config(const hydrant_remote_options_t& options, const DomainConfig& domain,
                   RemoteConfig* config) noexcept {
  (void)snprintf(config->name, sizeof config->name, "%.31s",
                 options.name != nullptr ? options.name : domain.name);
  config->rank = options.rank;
  config->ranks = options.ranks;
  config->flags = options.flags;
  // NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker): read_options() has looked
  config->messenger = *options.messenger;
  config->remote = options.remote;
  config->room = options.room;
  config->user = options.user;
  const Status status = choose_peer_budget(options, domain, config);
  if (status != Status::kOk) return status;
  const uint64_t firehoses = or_knob(options.max_firehoses, Knob::kRemoteFirehoses);
  config->max_firehoses = static_cast<uint32_t>(
      std::min<uint64_t>(firehoses != 0 ? firehoses : domain.max_regions, uint64_t{1} << 22));
  config->base_percent = static_cast<uint32_t>(or_knob(options.base_percent, Knob::kRemoteBase));
  const uint64_t zombies = or_knob(options.zombie_bytes, Knob::kRemoteZombies);
  config->zombie_bytes = zombies != 0 ? zombies : config->budget_bytes / 4;
  config->max_peer_regions = static_cast<uint32_t>(std::min<uint64_t>(
      or_knob(options.max_peer_regions, Knob::kRemotePeerRegions), uint64_t{1} << 20));
  config->max_region_bytes = options.max_region_bytes != 0 ? options.max_region_bytes : kGiB;
  config->merge_bytes = static_cast<size_t>(or_knob(options.merge_bytes, Knob::kRemoteMerge));
  config->stream_bytes = static_cast<size_t>(or_knob(options.stream_bytes, Knob::kRemoteStream));
  return Status::kOk;
}

// The cache of a peer's memory, made at need.
PeerCache* find_peer(uint64_t handle, uint32_t peer, Status* status) noexcept {
  RemotePinService* end = find_end(handle);
  *status = Status::kNotInit;
  if (end == nullptr) return nullptr;
  PeerCache* found = end->known_peer(peer);
  if (found != nullptr) [[likely]]
    return found;
  const CancellationDisabled guard;
  *status = end->peer(peer, &found);
  return found;
}

// True for access rights that allow access by peers.
bool is_for_others(uint32_t access) noexcept {
  return (access & (HYDRANT_REMOTE_READ | HYDRANT_REMOTE_WRITE)) != 0;
}

Status check_peer_access(uint32_t access) noexcept {
  if (access > bits(Access::kAll)) {
    return fail_unknown_access(access);
  }
  if (is_for_others(access)) return Status::kOk;
  return fail(Status::kBadArg,
              "access %#x is of no use to this process, whose memory it is not: ask for "
              "HYDRANT_REMOTE_READ (%#x), HYDRANT_REMOTE_WRITE (%#x) or both",
              access, HYDRANT_REMOTE_READ, HYDRANT_REMOTE_WRITE);
}

Status check_call(const hydrant_remote_call_t& call, size_t max_args) noexcept {
  constexpr uint32_t kFlags = HYDRANT_REMOTE_CALL | HYDRANT_REMOTE_CALL_ANYWAY;
  if ((call.flags & ~kFlags) != 0) {
    return fail(Status::kBadArg, "call.flags = %#x has bits beyond HYDRANT_REMOTE_CALL* (%#x)",
                call.flags, kFlags);
  }
  if (call.make_args != nullptr) return Status::kOk;
  if (call.args_len != 0 && call.args == nullptr) {
    return fail(Status::kBadArg, "call.args is NULL, and args_len %zu", call.args_len);
  }
  if (call.args_len > max_args) {
    return fail(Status::kBadArg,
                "%zu bytes of arguments; a move has room for %zu (hydrant_remote_max_args): raise "
                "the messenger's max_message_bytes, or send the rest by messages of your own",
                call.args_len, max_args);
  }
  return Status::kOk;
}

template <class Pin>
hydrant_pin_t look(uint64_t handle, uint32_t peer, uint32_t access, Pin pin) noexcept {
  Status status = Status::kOk;
  const PeerCache* found = find_peer(handle, peer, &status);
  if (found == nullptr) return failed_pin(status);
  status = check_peer_access(access);
  const RegionSlot* slot = nullptr;
  if (status == Status::kOk) status = pin(*found, static_cast<Access>(access), &slot);
  return status == Status::kOk ? make_pin(slot) : failed_pin(status);
}

}  // namespace

hydrant_pin_t hydrant::try_remote_hit(hydrant_remote_t handle, uint32_t peer, uintptr_t addr,
                                      size_t len, uint32_t access) noexcept {
  const RemotePinService* end = find_end(handle);
  const PeerCache* known = end != nullptr ? end->known_peer(peer) : nullptr;
  if (known == nullptr) return {};
  const RegionSlot* slot =
      hold_without_context(known->domain_handle(), addr, addr + len - 1, access);
  return slot != nullptr ? make_pin(slot) : hydrant_pin_t{};
}

bool hydrant::has_remote_end(const Domain& domain) noexcept {
  MutexLock lock(g_mu);
  for (const EndEntry& entry : g_ends) {
    if (entry.handle.load(std::memory_order_acquire) != 0 &&
        &entry.end.load(std::memory_order_relaxed)->domain() == &domain)
      return true;
  }
  return false;
}

extern "C" {

void hydrant_remote_options_init_sized(hydrant_remote_options_t* options, size_t size) {
  std::memset(options, 0, std::min(size, sizeof *options));
  options->size = size;
}

int hydrant_remote_create(const hydrant_remote_options_t* given, hydrant_remote_t* remote) {
  const CancellationDisabled guard;
  if (remote == nullptr) return to_c(fail(Status::kBadArg, "remote is NULL"));
  hydrant_remote_options_t options{};
  Status status = read_options(given, &options);
  if (status != Status::kOk) return to_c(status);
  Domain* domain = find_domain(options.domain);
  if (domain == nullptr) return GASNET_ERR_NOT_INIT;
  RemoteConfig config;
  status = make_config(options, domain->config(), &config);
  if (status != Status::kOk) return to_c(status);
  std::unique_ptr<RemotePinService> end(new (std::nothrow) RemotePinService(config, *domain));
  if (end == nullptr)
    return to_c(fail(
        Status::kResource,
        "the system has no memory for an end of remote pins: free memory, or raise ulimit -v"));
  status = end->set_up();
  if (status != Status::kOk) return to_c(status);
  const uint64_t handle = claim();
  if (handle == 0) {
    return to_c(fail(Status::kResource,
                     "an end of remote pins cannot be created: %u are live, which is the limit of "
                     "a process; destroy one",
                     kMaxEnds));
  }
  EndEntry& entry = g_ends[handle % kMaxEnds];
  entry.end.store(end.release(), std::memory_order_relaxed);
  entry.handle.store(handle, std::memory_order_release);
  *remote = handle;
  return GASNET_OK;
}

int hydrant_remote_destroy(hydrant_remote_t remote) {
  const CancellationDisabled guard;
  RemotePinService* end = find_end(remote);
  if (end == nullptr) return GASNET_ERR_NOT_INIT;
  end->shut_down();
  {
    MutexLock lock(g_mu);  // has_remote_end() may be looking at it
    g_ends[remote % kMaxEnds].handle.store(0, std::memory_order_release);
  }
  delete end;
  unclaim(remote);
  return GASNET_OK;
}

int hydrant_remote_deliver(hydrant_remote_t remote, uint32_t from, const void* message, size_t len,
                           void* reply_to) {
  const CancellationDisabled guard;
  RemotePinService* end = find_end(remote);
  return end != nullptr ? to_c(end->deliver(from, message, len, reply_to)) : GASNET_ERR_NOT_INIT;
}

int hydrant_remote_poll(hydrant_remote_t remote) {
  RemotePinService* end = find_end(remote);
  return end != nullptr ? end->poll() : -GASNET_ERR_NOT_INIT;
}

int hydrant_remote_peer_gone(hydrant_remote_t remote, uint32_t peer) {
  const CancellationDisabled guard;
  RemotePinService* end = find_end(remote);
  return end != nullptr ? to_c(end->peer_gone(peer)) : GASNET_ERR_NOT_INIT;
}

int hydrant_remote_pin(hydrant_remote_t remote, uint32_t peer, uintptr_t addr, size_t len,
                       uint32_t access, const hydrant_remote_call_t* call, hydrant_pin_t* pin) {
  if (pin == nullptr) [[unlikely]]
    return to_c(fail(Status::kBadArg, "pin is NULL"));
  Status status = Status::kOk;
  PeerCache* found = find_peer(remote, peer, &status);
  if (found == nullptr) return to_c(status);
  const RegionSlot* slot = nullptr;
  if (is_for_others(access)) [[likely]]
    slot = hold_without_context(found->domain_handle(), addr, addr + len - 1, access);
  if (slot != nullptr) [[likely]] {
    *pin = make_pin(slot);
    return GASNET_OK;
  }
  const CancellationDisabled guard;
  pin->region = nullptr;
  pin->hold = GASNET_ERR_NOT_READY;
  status = check_peer_access(access);
  if (status != Status::kOk) return to_c(status);
  const hydrant_remote_call_t nothing{};
  if (call == nullptr) call = &nothing;
  status = check_call(*call, find_end(remote)->max_args());
  if (status != Status::kOk) return to_c(status);
  status = found->pin({addr, len}, static_cast<Access>(access), *call, &slot);
  if (status == Status::kOk && slot != nullptr) *pin = make_pin(slot);
  return to_c(status);
}

hydrant_pin_t hydrant_try_remote_pin(hydrant_remote_t remote, uint32_t peer, uintptr_t addr,
                                     size_t len, uint32_t access) {
  return look(remote, peer, access,
              [&](const PeerCache& of, Access need, const RegionSlot** out) noexcept {
                *out = hold_without_context(of.domain_handle(), addr, addr + len - 1, bits(need));
                if (*out != nullptr) return Status::kOk;
                return of.domain().pin({addr, len}, need, Domain::MissPolicy::kHitOnly, out);
              });
}

hydrant_pin_t hydrant_partial_remote_pin(hydrant_remote_t remote, uint32_t peer, uintptr_t addr,
                                         size_t len, uint32_t access) {
  const CancellationDisabled guard;
  return look(remote, peer, access,
              [&](const PeerCache& of, Access need, const RegionSlot** out) noexcept {
                return of.domain().pin_partial({addr, len}, need, out);
              });
}

int hydrant_remote_release(hydrant_pin_t pin) {
#if !HYDRANT_TICKETS
  if (pin.region != nullptr && drop_without_context(RegionSlot::from_public(pin.region))) [[likely]]
    return GASNET_OK;
#endif
  return hydrant_release(pin);
}

size_t hydrant_remote_max_args(hydrant_remote_t remote) {
  const RemotePinService* end = find_end(remote);
  return end != nullptr ? end->max_args() : 0;
}

int hydrant_remote_prefetch(hydrant_remote_t remote, uint32_t peer, uintptr_t addr, size_t len,
                            uint32_t access) {
  hydrant_pin_t pin{};
  const int code = hydrant_remote_pin(remote, peer, addr, len, access, nullptr, &pin);
  if (code == GASNET_OK && pin.region != nullptr) return hydrant_remote_release(pin);
  return code;
}

int hydrant_remote_evict(hydrant_remote_t remote, uint32_t peer, uintptr_t addr, size_t len) {
  const CancellationDisabled guard;
  RemotePinService* end = find_end(remote);
  if (end == nullptr) return GASNET_ERR_NOT_INIT;
  PeerCache* found = end->known_peer(peer);
  if (found == nullptr) return to_c(end->check_peer(peer));  // no pin was ever requested from it
  found->evict({addr, len});
  return GASNET_OK;
}

int hydrant_remote_await_room(hydrant_remote_t remote, uint32_t peer, uintptr_t addr, size_t len,
                              uint32_t access, uint32_t flags) {
  const CancellationDisabled guard;
  Status status = Status::kOk;
  PeerCache* found = find_peer(remote, peer, &status);
  if (found == nullptr) return to_c(status);
  status = check_peer_access(access);
  const MemoryRange range{addr, len};
  if (status == Status::kOk && (len == 0 || !range.valid())) {
    status = fail(Status::kBadArg, "[%#zx, +%zu) is no range to wait for",
                  static_cast<size_t>(addr), len);
  }
  if (status == Status::kOk && (flags & ~HYDRANT_REMOTE_REPLY_AT_ONCE) != 0) {
    status = fail(Status::kBadArg, "flags = %#x has bits beyond HYDRANT_REMOTE_REPLY_AT_ONCE (%#x)",
                  flags, HYDRANT_REMOTE_REPLY_AT_ONCE);
  }
  if (status != Status::kOk) return to_c(status);
  return to_c(found->await_room(range, static_cast<Access>(access),
                                (flags & HYDRANT_REMOTE_REPLY_AT_ONCE) != 0));
}

int hydrant_remote_quiet(hydrant_remote_t remote) {
  const CancellationDisabled guard;
  RemotePinService* end = find_end(remote);
  return end != nullptr ? to_c(end->quiet()) : GASNET_ERR_NOT_INIT;
}

int hydrant_remote_get_stats(hydrant_remote_t remote, hydrant_remote_stats_t* stats) {
  const CancellationDisabled guard;
  RemotePinService* end = find_end(remote);
  if (end == nullptr) return GASNET_ERR_NOT_INIT;
  if (stats == nullptr || stats->size < sizeof(size_t)) {
    return to_c(fail(Status::kBadArg, "stats is NULL, or its size is not set"));
  }
  end->read_stats(stats);
  return GASNET_OK;
}

}  // extern "C"
