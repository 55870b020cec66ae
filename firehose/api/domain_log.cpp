// Logs a domain's configuration when it is created and its statistics when it is destroyed
// (HYDRANT_LOG=info). pin_cache_api.cpp calls both functions.
#include "firehose/api/domain_log.hpp"

#include "firehose/base/access_names.hpp"
#include "firehose/base/config/config_grammar.hpp"
#include "firehose/base/log.hpp"

namespace hydrant {
namespace {

constexpr size_t kSizeText = 32;

constexpr unsigned long long number(uint64_t n) { return n; }

const char* watch_name(uint32_t watch) {
  return watch == HYDRANT_WATCH_AUTO ? "auto" : watch == HYDRANT_WATCH_NONE ? "none" : "client";
}

}  // namespace

void log_domain_start(const Domain& domain) noexcept {
  if (!log_enabled(LogLevel::kInfo)) return;
  const DomainConfig& config = domain.config();
  const RegistrarTraits& traits = domain.registrar().traits();
  char budget[kSizeText];
  char largest[kSizeText];
  char merge[kSizeText];
  char stream[kSizeText];
  const bool unlimited = config.max_region_bytes == SIZE_MAX;
  log_info(
      "domain %s: registrar %s, keys of %u bytes; %s mode, granule %zu bytes, merging up to %s, "
      "streams up to %s; "
      "budget %s, %u regions, largest region %s; watch=%s%s, eager access %s",
      config.name, traits.name, traits.key_bytes,
      config.mode == HYDRANT_MODE_PAGE ? "page" : "region", config.granule_bytes,
      format_size_rounded(config.merge_bytes, merge, sizeof merge),
      format_size_rounded(config.stream_bytes, stream, sizeof stream),
      format_size_rounded(config.budget_bytes, budget, sizeof budget), config.max_regions,
      format_size_rounded(unlimited ? UINT64_MAX : config.max_region_bytes, largest,
                          sizeof largest),
      watch_name(config.watch),
      config.unpin_before_release ? " (only what waits for unpin: arenas and announced memory)"
                                  : "",
      AccessNames(config.eager).text());
}

void log_domain_end(Domain& domain) noexcept {
  if (!log_enabled(LogLevel::kInfo)) return;
  hydrant_stats_t s{};
  s.size = sizeof s;
  domain.read_stats(&s);
  log_info(
      "domain %s ends: %llu hits, %llu refills (%llu asked the kernel), %llu misses, %llu not "
      "ready, %llu refusals, %llu "
      "waits; %llu pins, %llu failed; %llu unpins, %llu failed; %llu evictions, %llu merges, %llu "
      "invalidations, %llu retries, %llu fences; %llu regions of %llu bytes and %llu holds are "
      "left; read ahead %llu bytes, %llu of them unused",
      domain.config().name, number(s.hits), number(s.refills), number(s.checked_hits),
      number(s.misses), number(s.not_ready), number(s.refusals), number(s.waits), number(s.pins),
      number(s.pin_failures), number(s.unpins), number(s.unpin_failures), number(s.evictions),
      number(s.merges), number(s.invalidations), number(s.retries), number(s.fences),
      number(s.regions + s.dead_regions), number(s.pinned_bytes), number(s.live_holds),
      number(s.extended_bytes), number(s.wasted_bytes));
}

}  // namespace hydrant
