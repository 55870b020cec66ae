// Implements firehose_init and firehose_fini: checks the client, computes its limits, and creates and
// destroys the domain.
#include "firehose/base/cancellation.hpp"
#include "firehose/base/config/config_grammar.hpp"
#include "firehose/base/config/knobs.hpp"
#include "firehose/base/log.hpp"
#include "firehose/base/quiet_write.hpp"
#include "firehose/base/status.hpp"
#include "firehose/gasnet_compat/firehose_state.hpp"

#include <algorithm>
#include <bit>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <memory>
#include <new>
#include <unistd.h>

namespace hydrant {
namespace {

constexpr uint64_t kMaxRegions = uint64_t{1} << 22;  // hydrant_domain_options_t::max_regions

size_t page_bytes() noexcept { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

// Rejects a client that was compiled with another version of the headers, or whose files disagree.
void check_client(const hydrant_fh_client_t* client) noexcept {
  if (client == nullptr || client->size != sizeof *client ||
      (client->shape >> 24) != HYDRANT_FH_ABI) {
    compat_fatal(
        "firehose_init: the client was compiled with another version of firehose.h than this "
        "library: its hydrant_fh_client_t is version %u of %zu bytes, ours version %u of %zu; "
        "compile the client again",
        client == nullptr ? 0 : client->shape >> 24, client == nullptr ? 0 : client->size,
        HYDRANT_FH_ABI, sizeof *client);
  }
  if (client->api_version >> 8 != 1) {
    compat_fatal("firehose_init: the client wants firehose API %#x, this is 0x101",
                 client->api_version);
  }
  const uint32_t key_end = client->client_offset + client->client_bytes;
  const bool sizes_fit = client->client_bytes <= HYDRANT_FH_MAX_CLIENT_BYTES &&
                         client->region_bytes >= sizeof(uintptr_t) + sizeof(size_t) &&
                         client->region_bytes <= 2 * HYDRANT_FH_MAX_ALIGN &&
                         client->client_offset <= client->region_bytes &&
                         key_end <= client->region_bytes &&
                         client->shape == HYDRANT_FH_SHAPE(client->mode, client->client_bytes);
  const bool mode_fits = client->mode == HYDRANT_MODE_REGION ||
                         (client->mode == HYDRANT_MODE_PAGE && client->client_bytes == 0);
  const bool sends = client->nodes != 0;
  const bool remote_fits = !sends || (client->node < client->nodes && client->send != nullptr &&
                                      client->remote != nullptr && client->make_args != nullptr &&
                                      client->completed != nullptr);
  if (!sizes_fit || !mode_fits || !remote_fits || client->move == nullptr) {
    compat_fatal(
        "firehose_init: the client's sizes do not fit together: mode %u, shape %#x, "
        "firehose_client_t of %u bytes at %u in a firehose_region_t of %u, node %u of %u; are all "
        "its "
        "files compiled with the same firehose_fwd.h?",
        client->mode, client->shape, client->client_bytes, client->client_offset,
        client->region_bytes, client->node, client->nodes);
  }
}

size_t choose_bucket(const hydrant_fh_client_t& client) noexcept {
  const size_t bucket = client.bucket_bytes == 0 ? page_bytes() : client.bucket_bytes;
  if (!std::has_single_bit(bucket) || bucket < page_bytes()) {
    compat_fatal(
        "firehose_init: FH_BUCKET_SIZE is %zu; it must be a power of two and at least a page "
        "(%zu)",
        bucket, page_bytes());
  }
  return bucket;
}

// The prepinned regions in the form that the pin cache takes.
struct Prepinned {
  std::unique_ptr<hydrant_range_t[]> ranges;
  std::unique_ptr<const void*[]> keys;
  size_t count = 0;
  uint64_t bytes = 0;
};

Prepinned read_prepinned(const hydrant_fh& fh, const void* regions, size_t n) noexcept {
  Prepinned list;
  if (n == 0) return list;
  list.ranges.reset(new (std::nothrow) hydrant_range_t[n]);
  list.keys.reset(new (std::nothrow) const void*[n]);
  if (list.ranges == nullptr || list.keys == nullptr) compat_fatal("firehose_init: out of memory");
  const auto* at = static_cast<const std::byte*>(regions);
  for (size_t i = 0; i < n; ++i, at += fh.client.region_bytes) {
    hydrant_range_t range{};
    std::memcpy(&range.addr, at, sizeof range.addr);
    std::memcpy(&range.len, at + sizeof range.addr, sizeof range.len);
    if (range.addr % fh.bucket != 0 || range.len % fh.bucket != 0) {
      compat_fatal(
          "firehose_init: prepinned region %zu, [%#zx, +%zu), is not made of whole buckets of "
          "%zu bytes",
          i, static_cast<size_t>(range.addr), range.len, fh.bucket);
    }
    if (range.len == 0) continue;
    list.ranges[list.count] = range;
    list.keys[list.count++] = at + fh.client.client_offset;
    list.bytes += range.len;
  }
  return list;
}

// The domain counts prepinned regions too, and in page mode each bucket as one. 0: its own default.
uint64_t choose_max_regions(const hydrant_fh& fh, const Prepinned& prepinned) noexcept {
  const CompatLimits& limits = fh.limits;
  if (fh.client.mode == HYDRANT_MODE_PAGE) {
    if (limits.victim_bytes == 0) return kMaxRegions;
    const uint64_t bytes = limits.victim_bytes + limits.remote_bytes + prepinned.bytes;
    return std::min(bytes / fh.bucket, kMaxRegions);
  }
  if (limits.victim_regions == 0) return 0;
  return std::min(limits.victim_regions + limits.remote_regions + prepinned.count, kMaxRegions);
}

void create_domain(hydrant_fh& fh, const Prepinned& prepinned) noexcept {
  const hydrant_registrar_t functions = fh.registrar.registrar_functions(fh.limits.region_bytes);
  hydrant_domain_options_t options;
  hydrant_domain_options_init(&options);
  options.name = "firehose";
  options.registrar = &functions;
  options.mode = fh.client.mode;
  options.watch = HYDRANT_WATCH_CLIENT;
  options.stream_bytes = 1;  // a client's callbacks get only ranges that its calls name
  const uint64_t victims = fh.limits.victim_bytes;  // 0: the library follows the machine
  options.budget_bytes = victims == 0 ? 0 : victims + fh.limits.remote_bytes;
  options.max_regions = choose_max_regions(fh, prepinned);
  options.max_region_bytes = fh.limits.region_bytes;
  options.bucket_bytes =
      fh.bucket;  // also in region mode: no FIREHOSE_MODE of the environment then
  options.prepinned = prepinned.ranges.get();
  options.prepinned_keys = fh.client.client_bytes == 0 ? nullptr : prepinned.keys.get();
  options.prepinned_count = prepinned.count;
  options.prepinned_access = kCompatAccess;
  if (hydrant_domain_create(&options, &fh.domain) != GASNET_OK) {
    compat_fatal("firehose_init: %s", hydrant_error_text());
  }
}

void start_remote(hydrant_fh& fh, const CompatRequest& request) noexcept {
  hydrant_stats_t stats{};
  stats.size = sizeof stats;
  CompatPeerLimits limits;
  if (hydrant_get_stats(fh.domain, &stats) != GASNET_OK ||
      split_for_peers(request, fh.limits, stats.budget_bytes, fh.client.nodes - 1, &limits) !=
          Status::kOk) {
    compat_fatal("firehose_init: %s", last_error_text());
  }
  fh.remote.reset(new (std::nothrow) CompatRemote(fh, limits));
  if (fh.remote == nullptr) compat_fatal("firehose_init: out of memory");
}

void print_limits(const hydrant_fh& fh) noexcept {
  char m[24];
  char victim[24];
  char region[24];
  compat_print(
      "init: %s mode, buckets of %zu, key of %u bytes, M %s%s, MAXVICTIM_M %s, MAXVICTIM_R %llu, "
      "MAXREGION_SIZE %s (0: as the machine allows)",
      fh.client.mode == HYDRANT_MODE_PAGE ? "page" : "region", fh.bucket, fh.client.client_bytes,
      format_size(fh.limits.m_bytes, m, sizeof m),
      (fh.flags & kCompatLocalOnly) != 0 ? " (prepinned)"
      : fh.remote != nullptr             ? " (for peers)"
                                         : " (for peers, unused)",
      format_size(fh.limits.victim_bytes, victim, sizeof victim),
      static_cast<unsigned long long>(fh.limits.victim_regions),
      format_size(fh.limits.region_bytes, region, sizeof region));
}

void print_summary(hydrant_fh& fh) noexcept {
  hydrant_stats_t stats{};
  stats.size = sizeof stats;
  if (hydrant_get_stats(fh.domain, &stats) != GASNET_OK) return;
  const auto number = [](uint64_t n) { return static_cast<unsigned long long>(n); };
  compat_print(
      "fini: %llu hits, %llu misses, %llu pins, %llu unpins, %llu evictions, %llu held now, "
      "%llu bytes pinned in %zu pieces",
      number(stats.hits + stats.refills), number(stats.misses), number(stats.pins),
      number(stats.unpins), number(stats.evictions), number(stats.live_holds),
      number(stats.pinned_bytes), fh.registrar.pinned_ranges());
  fh.registrar.log_pinned(64);
  if (fh.remote != nullptr) fh.remote->print_summary();
}

void fill_limits(const hydrant_fh& fh, hydrant_fh_limits_t* answer) noexcept {
  *answer = hydrant_fh_limits_t{};
  if (fh.remote != nullptr) {
    answer->remote_pin_bytes = static_cast<size_t>(fh.remote->limits().pin_bytes);
    answer->remote_regions = static_cast<size_t>(fh.remote->limits().regions);
  }
  answer->local_regions = static_cast<size_t>(fh.limits.local_regions);
  answer->local_pin_bytes = static_cast<size_t>(
      fh.client.mode == HYDRANT_MODE_PAGE ? fh.limits.victim_bytes : fh.limits.region_bytes);
  if (answer->local_pin_bytes != 0) return;
  // The client sets no limit: uses the one that the domain has chosen.
  hydrant_stats_t stats{};
  stats.size = sizeof stats;
  if (hydrant_get_stats(fh.domain, &stats) == GASNET_OK)
    answer->local_pin_bytes = stats.budget_bytes;
}

}  // namespace

void create_compat_domain(hydrant_fh& fh, size_t max_regions, size_t max_region_size,
                          const void* prepinned, size_t num_prepinned) noexcept {
  const Prepinned list = read_prepinned(fh, prepinned, num_prepinned);
  fh.prepinned_bytes = list.bytes;
  const CompatRequest request = {.page_mode = fh.client.mode == HYDRANT_MODE_PAGE,
                                 .local_only = (fh.flags & kCompatLocalOnly) != 0,
                                 .max_bytes = fh.max_pinnable,
                                 .max_regions = max_regions,
                                 .max_region_bytes = max_region_size,
                                 .prepinned_bytes = list.bytes,
                                 .prepinned_regions = list.count,
                                 .bucket_bytes = fh.bucket,
                                 .victim_ratio = fh.client.victim_ratio,
                                 .sends = fh.client.nodes != 0,
                                 .warns = fh.client.node == 0};
  if (compute_compat_limits(request, read_compat_environment(), &fh.limits) != Status::kOk) {
    compat_fatal("firehose_init: %s", last_error_text());
  }
  if (!request.local_only && !request.sends && request.warns) {
    log_warning(
        "firehose_init: the client's firehose_fwd.h gives no way to send, so that there are no "
        "remote "
        "pins; M (%llu bytes) stays unused. FIREHOSE_INIT_FLAG_LOCAL_ONLY gives it to local pins",
        static_cast<unsigned long long>(fh.limits.m_bytes));
  }
  create_domain(fh, list);
  if (!request.local_only && fh.client.nodes > 1) start_remote(fh, request);
  if (fh.verbose) print_limits(fh);
}

void compat_print(const char* format, ...) noexcept {
  char text[1000];
  const int head = std::snprintf(text, sizeof text, "firehose: ");
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text + head, sizeof text - static_cast<size_t>(head) - 1, format, arguments);
  va_end(arguments);
  const size_t length = std::strlen(text);
  text[length] = '\n';
  (void)write_quietly(STDERR_FILENO, text, length + 1);
}

}  // namespace hydrant

using namespace hydrant;

hydrant_fh_t* hydrant_fh_init(hydrant_fh_t* before, const hydrant_fh_client_t* client,
                              uintptr_t max_pinnable_memory, size_t max_regions,
                              size_t max_region_size, const void* prepinned, size_t num_prepinned,
                              uint32_t flags, hydrant_fh_limits_t* limits) {
  const CancellationDisabled guard;
  check_call_rules(CompatCall::kWaits, "firehose_init");
  if (before != nullptr && before->domain == 0) {
    compat_fatal(
        "firehose_init after firehose_fini: the first firehose_init must have been given "
        "FIREHOSE_INIT_FLAG_MAY_REINIT");
  }
  if (before != nullptr) compat_fatal("firehose_init: called twice without firehose_fini");
  check_client(client);
  const size_t bucket = choose_bucket(*client);
  if (num_prepinned != 0 && prepinned == nullptr) {
    compat_fatal("firehose_init: %zu prepinned regions, but the list is NULL", num_prepinned);
  }
  auto* fh = new (std::nothrow) hydrant_fh(*client, bucket);
  if (fh == nullptr) compat_fatal("firehose_init: out of memory");
  fh->flags = flags;
  fh->max_pinnable = max_pinnable_memory;
  fh->verbose = knob_number(Knob::kGasnetVerbose) != 0;
  create_compat_domain(*fh, max_regions, max_region_size, prepinned, num_prepinned);
  fill_limits(*fh, limits);
  return fh;
}

hydrant_fh_t* hydrant_fh_fini(hydrant_fh_t* fh) {
  const CancellationDisabled guard;
  check_call_rules(CompatCall::kWaits, "firehose_fini");
  if (fh == nullptr || fh->domain == 0)
    compat_fatal("firehose_fini: not between firehose_init and firehose_fini");
  if (fh->verbose) print_summary(*fh);
  const bool unpin = (fh->flags & kCompatUnpinOnFini) != 0;
  fh->remote.reset();
  const int status =
      hydrant_domain_destroy(fh->domain, unpin ? HYDRANT_FINI_UNPIN : HYDRANT_FINI_KEEP);
  if (status != GASNET_OK) compat_fatal("firehose_fini: %s", hydrant_error_text());
  if ((fh->flags & kCompatMayReinit) != 0) {
    delete fh;
    return nullptr;
  }
  // Stays, so that a later call is explained; its shape fits no client.
  fh->domain = 0;
  fh->client.shape = 0;
  return fh;
}

void hydrant_fh_get_params(const hydrant_fh_t* fh, double victim_ratio,
                           uintptr_t max_pinnable_memory, uintptr_t* m, uintptr_t* max_victim) {
  const CancellationDisabled guard;
  CompatLimits limits;
  if (fh != nullptr && fh->domain != 0 && fh->max_pinnable == max_pinnable_memory) {
    limits = fh->limits;
  } else if (split_compat_memory(max_pinnable_memory, victim_ratio, read_compat_environment(),
                                 false, &limits.m_bytes, &limits.victim_bytes) != Status::kOk) {
    compat_fatal("firehose_get_params: %s", last_error_text());
  }
  *m = limits.m_bytes;
  *max_victim = limits.victim_bytes;
}
