// The loop that bench/miss_count runs under callgrind: misses alone, without a benchmark library or peers.
//
//   miss_loop first OPERATIONS    first pins of memory that fits into the budget
//   miss_loop evict OPERATIONS    misses that evict one region each
//   miss_loop released OPERATIONS misses after each of which the memory is released, as by its allocator
//   miss_loop remote OPERATIONS   misses of a peer's memory that release one region each
//   miss_loop verbs OPERATIONS    misses that evict, over the registrar of libfirehose_ibv
//   miss_loop verbs_bare OPERATIONS  ibv_reg_mr() and ibv_dereg_mr() in place of each
//
// The registrar does nothing, and nothing is watched: the instructions are those of the cache. For verbs the
// fake libibverbs of the tests registers: the difference of the last two is the cost of cache and registrar.
// Prints one JSON object with the cache's counters. Exit status 77: built without verbs.
#include <hydrant/monitor.h>
#include <hydrant/remote_pin.h>

#include "bench/support/domain.hpp"
#include "bench/support/memory.hpp"

#if HYDRANT_HAVE_IBV
#include <hydrant/ibv_registrar.h>

#include "tests/fakes/fake_ibverbs.hpp"

#include <infiniband/verbs.h>
#endif

#include <cstring>
#include <iostream>
#include <string>

namespace {

constexpr size_t kRegionBytes = 64 * hydrant::bench::kKiB;
constexpr uint32_t kCached = 64;            // regions that fit, where others are evicted
constexpr uint64_t kVisited = 4 * kCached;  // in turn: each is evicted before its next visit

struct Loop {
  hydrant_domain_t domain;
  hydrant_remote_t remote;
  std::byte* memory;
  uint64_t regions;
  const hydrant_monitor_t* releasing;  // null: memory is not released
  struct ibv_pd* bare;                 // not null: no cache
};

bool miss_local(const Loop& loop, std::byte* at) {
  const hydrant_pin_t pin = hydrant_pin(loop.domain, at, kRegionBytes, HYDRANT_LOCAL_WRITE);
  return pin.region != nullptr && hydrant_release(pin) == GASNET_OK;
}

#if HYDRANT_HAVE_IBV
bool register_bare(ibv_pd* pd, std::byte* at) {
  constexpr int kWrite = IBV_ACCESS_LOCAL_WRITE;
  ibv_mr* const mr = ibv_reg_mr(pd, at, kRegionBytes, kWrite);
  return mr != nullptr && ibv_dereg_mr(mr) == 0;
}

// A device of the fake, and a registrar over it.
ibv_pd* open_verbs(hydrant_registrar_t* registrar) {
  hydrant::fake_verbs::add_device({});
  ibv_pd* const pd = hydrant::fake_verbs::alloc_pd(hydrant::fake_verbs::open_first());
  if (hydrant_ibv_registrar_create(pd, nullptr, registrar) == GASNET_OK) return pd;
  std::cerr << "hydrant_ibv_registrar_create: " << hydrant_error_text() << '\n';
  std::exit(1);
}
#else
bool register_bare(ibv_pd*, std::byte*) { return false; }
ibv_pd* open_verbs(hydrant_registrar_t*) {
  std::cerr << "miss_loop: built without verbs\n";
  std::exit(77);
}
#endif

struct Answer {
  hydrant_pin_t pin;
};

bool miss_remote(const Loop& loop, std::byte* at) {
  Answer answer{};
  hydrant_remote_call_t call{};
  call.done = [](void* context, hydrant_pin_t pin, const hydrant_remote_outcome_t*) {
    static_cast<Answer*>(context)->pin = pin;
  };
  call.context = &answer;
  hydrant_pin_t pin{};
  const int code = hydrant_remote_pin(loop.remote, 1, reinterpret_cast<uintptr_t>(at), kRegionBytes,
                                      HYDRANT_REMOTE_WRITE, &call, &pin);
  if (code == GASNET_ERR_NOT_READY) (void)hydrant_remote_poll(loop.remote);
  if (pin.region == nullptr) pin = answer.pin;
  return pin.region != nullptr && hydrant_remote_release(pin) == GASNET_OK;
}

}  // namespace

// A C name, so that the script finds the function.
extern "C" uint64_t miss_section(const Loop& loop, uint64_t from, uint64_t operations);
[[gnu::noinline]] uint64_t miss_section(const Loop& loop, uint64_t from, uint64_t operations) {
  uint64_t good = 0;
  for (uint64_t i = from; i < from + operations; ++i) {
    std::byte* at = loop.memory + i % loop.regions * 2 * kRegionBytes;
    const bool done = loop.bare != nullptr ? register_bare(loop.bare, at)
                      : loop.remote != 0   ? miss_remote(loop, at)
                                           : miss_local(loop, at);
    good += done ? 1 : 0;
    if (loop.releasing != nullptr) {
      loop.releasing->invalidate(reinterpret_cast<uintptr_t>(at), kRegionBytes);
    }
  }
  return good;
}

namespace {

hydrant_domain_options_t options(const hydrant_registrar_t* registrar, uint32_t regions) {
  hydrant_domain_options_t options;
  hydrant_domain_options_init(&options);
  options.registrar = registrar;
  options.watch = HYDRANT_WATCH_NONE;
  options.budget_bytes = regions * uint64_t{kRegionBytes};
  options.max_regions = regions;
  return options;
}

// Two ends in one process: a message is delivered before its send returns.
struct Wire {
  hydrant_remote_t ends[2];
  uint32_t from;
};

hydrant_remote_t make_end(hydrant_domain_t domain, uint32_t rank, Wire* wire, Wire* sides) {
  hydrant_messenger_t messenger{};
  messenger.size = sizeof messenger;
  messenger.max_message_bytes = 4096;
  sides[rank].from = rank;
  messenger.user = &sides[rank];
  static Wire* all = wire;
  messenger.send = [](void* user, uint32_t peer, uint32_t lane, void*, const void* message,
                      size_t len) {
    void* reply_to = lane == HYDRANT_LANE_REQUEST ? user : nullptr;
    return hydrant_remote_deliver(all->ends[peer], static_cast<Wire*>(user)->from, message, len,
                                  reply_to);
  };
  hydrant_remote_options_t options;
  hydrant_remote_options_init(&options);
  options.domain = domain;
  options.rank = rank;
  options.ranks = 2;
  options.messenger = &messenger;
  options.flags = HYDRANT_REMOTE_INLINE_DONE;
  options.max_peer_regions = kCached;
  options.merge_bytes = options.stream_bytes = 1;
  hydrant_remote_t end = 0;
  if (hydrant_remote_create(&options, &end) == GASNET_OK) return end;
  std::cerr << "hydrant_remote_create: " << hydrant_error_text() << '\n';
  std::exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string how = argc == 3 ? argv[1] : "";
  const bool is_verbs = how == "verbs" || how == "verbs_bare";
  if (how != "first" && how != "evict" && how != "released" && how != "remote" && !is_verbs) {
    std::cerr << "usage: miss_loop first|evict|released|remote|verbs|verbs_bare OPERATIONS\n";
    return 2;
  }
  const uint64_t operations = std::stoull(argv[2]);
  const uint64_t warm = how == "first" ? 64 : 2 * kVisited;
  Loop loop{0, 0, nullptr, how == "first" ? operations + warm : kVisited, nullptr, nullptr};
  if (how == "released") loop.releasing = hydrant_monitor(HYDRANT_MONITOR_VERSION);
  hydrant_registrar_t registrar = hydrant::bench::noop_registrar();
  if (how == "remote") {
    registrar.key_bytes = 0;
    registrar.pin = [](void*, uintptr_t, size_t, uint32_t, void*) { return GASNET_OK; };
  }
  if (is_verbs) {
    ibv_pd* const pd = open_verbs(&registrar);
    if (how == "verbs_bare") loop.bare = pd;
  }
  const uint64_t fits = how == "evict" || is_verbs ? kCached : loop.regions + 64;
  const hydrant::bench::Domain domain(options(&registrar, static_cast<uint32_t>(fits)));
  const hydrant::bench::Memory memory(loop.regions * 2 * kRegionBytes,
                                      hydrant::bench::PageKind::kReserved);
  loop.domain = domain.get();
  loop.memory = memory.data();
  bool good = hydrant_vouch(domain.get(), memory.data(), memory.bytes()) == GASNET_OK;
  Wire wire{};
  Wire sides[2]{};
  if (how == "remote") {
    for (uint32_t rank : {0u, 1u}) wire.ends[rank] = make_end(domain.get(), rank, &wire, sides);
    loop.remote = wire.ends[0];
  }
  good &= miss_section(loop, 0, warm) == warm;
  const hydrant_stats_t before = domain.stats();
  hydrant_remote_stats_t remote_before{};
  hydrant_remote_stats_t remote_after{};
  remote_before.size = remote_after.size = sizeof remote_before;
  if (loop.remote != 0) hydrant_remote_get_stats(loop.remote, &remote_before);
  good &= miss_section(loop, warm, operations) == operations;
  const hydrant_stats_t after = domain.stats();
  if (loop.remote != 0) hydrant_remote_get_stats(loop.remote, &remote_after);
  std::cout << "{\"good\": " << (good ? "true" : "false") << ", \"operations\": " << operations
            << ", \"misses\": "
            << (loop.remote != 0 ? remote_after.moves - remote_before.moves
                                 : after.misses - before.misses)
            << ", \"evictions\": "
            << (loop.remote != 0 ? remote_after.evictions - remote_before.evictions
                                 : after.evictions - before.evictions)
            << "}\n";
  for (hydrant_remote_t end : wire.ends) {
    if (end != 0) hydrant_remote_destroy(end);
  }
  return good ? 0 : 1;
}
