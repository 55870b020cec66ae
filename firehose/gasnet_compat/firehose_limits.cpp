// Computes M, MAXVICTIM and R from GASNet's environment variables and the arguments of firehose_init, and
// divides M among the peers. firehose_init.cpp calls it.
#include "firehose/gasnet_compat/firehose_limits.hpp"

#include "firehose/base/config/config_grammar.hpp"
#include "firehose/base/config/knobs.hpp"
#include "firehose/base/log.hpp"

#include <algorithm>

namespace hydrant {
namespace {

// Below these GASNet refuses to start (LOCAL_ONLY, region mode). Fewer work here, with more misses.
constexpr uint64_t kFewBytes = uint64_t{16} << 20;
constexpr uint64_t kFewRegions = 32;

CompatSetting read_setting(Knob knob) noexcept {
  const KnobValue value = read_knob(knob);
  return {value.number, value.origin == KnobOrigin::kEnvironment};
}

uint64_t round_down(uint64_t bytes, uint64_t bucket_bytes) noexcept {
  return bytes & ~(bucket_bytes - 1);
}

uint64_t share(uint64_t whole, double ratio) noexcept {
  return static_cast<uint64_t>(static_cast<double>(whole) * ratio);
}

// Names of a pair of settings for texts, what they count, and the argument of firehose_init that bounds them.
struct PairNames {
  const char* first;
  const char* second;
  const char* unit;
  const char* argument;
};
constexpr PairNames kBytePair{"GASNET_FIREHOSE_M", "GASNET_FIREHOSE_MAXVICTIM_M", "bytes",
                              "max_pinnable_memory"};
constexpr PairNames kRegionPair{"GASNET_FIREHOSE_R", "GASNET_FIREHOSE_MAXVICTIM_R", "regions",
                                "max_regions"};

// If one of a pair of settings is given, the other is what remains of the whole.
Status derive_pair(const PairNames& names, uint64_t whole, const CompatSetting& given_first,
                   const CompatSetting& given_second, bool warns, uint64_t* first,
                   uint64_t* second) noexcept {
  if (given_first.given && given_second.given) {
    *first = given_first.number;
    *second = given_second.number;
    // A client without a limit (whole == 0) leaves it to the variables.
    if (warns && whole != 0 && (*first > whole || *second > whole - *first)) {
      log_warning(
          "%s and %s together are more than the %llu %s that the client said can be pinned (%s of "
          "firehose_init); set one of them only, or both lower",
          names.first, names.second, static_cast<unsigned long long>(whole), names.unit,
          names.argument);
    }
    return Status::kOk;
  }
  const CompatSetting& given = given_first.given ? given_first : given_second;
  if (whole != 0 && given.number > whole) {
    return fail(Status::kBadArg,
                "%s is %llu %s, more than the %llu that the client said can be pinned (%s of "
                "firehose_init); set it lower, or set both %s and %s",
                given_first.given ? names.first : names.second,
                static_cast<unsigned long long>(given.number), names.unit,
                static_cast<unsigned long long>(whole), names.argument, names.first, names.second);
  }
  const uint64_t rest = whole == 0 ? 0 : whole - given.number;
  *first = given_first.given ? given.number : rest;
  *second = given_first.given ? rest : given.number;
  return Status::kOk;
}

Status split_bytes(const CompatRequest& request, const CompatEnvironment& environment,
                   CompatLimits* limits) noexcept {
  if (request.prepinned_bytes > request.max_bytes && request.max_bytes != 0) {
    return fail(Status::kBadArg,
                "%llu bytes are prepinned, but max_pinnable_memory is %llu bytes; prepin less, or "
                "pass more",
                static_cast<unsigned long long>(request.prepinned_bytes),
                static_cast<unsigned long long>(request.max_bytes));
  }
  if (request.local_only && !environment.m.given && !environment.max_victim_m.given) {
    limits->m_bytes = request.prepinned_bytes;
    limits->victim_bytes = request.max_bytes == 0 ? 0 : request.max_bytes - request.prepinned_bytes;
    return Status::kOk;
  }
  return split_compat_memory(request.max_bytes, request.victim_ratio, environment, request.warns,
                             &limits->m_bytes, &limits->victim_bytes);
}

// The largest region: the variable, bounded by the client, in whole buckets.
Status choose_region_bytes(const CompatRequest& request, const CompatEnvironment& environment,
                           CompatLimits* limits) noexcept {
  uint64_t bytes = environment.max_region_size.number;
  if (bytes == 0) bytes = request.max_region_bytes;
  if (request.max_region_bytes != 0 && bytes > request.max_region_bytes) {
    if (request.warns) {
      log_warning(
          "GASNET_FIREHOSE_MAXREGION_SIZE is cut to the client's max_region_size, %llu bytes",
          static_cast<unsigned long long>(request.max_region_bytes));
    }
    bytes = request.max_region_bytes;
  }
  if (limits->victim_bytes != 0 && (bytes == 0 || bytes > limits->victim_bytes)) {
    bytes = limits->victim_bytes;
  }
  limits->region_bytes = round_down(bytes, request.bucket_bytes);
  if (bytes != 0 && limits->region_bytes == 0) {
    return fail(Status::kBadArg,
                "the largest region, %llu bytes, is smaller than a bucket, %llu bytes; raise "
                "max_region_size "
                "of firehose_init or GASNET_FIREHOSE_MAXREGION_SIZE",
                static_cast<unsigned long long>(bytes),
                static_cast<unsigned long long>(request.bucket_bytes));
  }
  return Status::kOk;
}

// Without settings, regions are divided as the bytes are. If there are too few to address all bytes, an
// explicit GASNET_FIREHOSE_MAXREGION_SIZE=0 lets the regions grow first; if they are still too few, both
// shares are cut.
uint64_t proportional_regions(const CompatRequest& request, const CompatEnvironment& environment,
                              uint64_t available, CompatLimits* limits) noexcept {
  const uint64_t m = limits->m_bytes - std::min(limits->m_bytes, request.prepinned_bytes);
  const bool grow = environment.max_region_size.given && environment.max_region_size.number == 0;
  for (int pass = 0; pass < 2; ++pass) {
    const uint64_t r = m / limits->region_bytes;
    const uint64_t victims = limits->victim_bytes / limits->region_bytes;
    limits->remote_regions = r;
    if (r + victims <= available) return victims;
    const double ratio = static_cast<double>(available) / static_cast<double>(r + victims);
    if (!grow || pass == 1) {
      limits->remote_regions = share(r, ratio);
      return share(victims, ratio);
    }
    const uint64_t wanted = share(limits->region_bytes, 1 / ratio) + request.bucket_bytes - 1;
    limits->region_bytes = std::min(round_down(wanted, request.bucket_bytes),
                                    round_down(limits->victim_bytes, request.bucket_bytes));
  }
  return 0;  // not reached: the second pass returns
}

Status split_regions(const CompatRequest& request, const CompatEnvironment& environment,
                     CompatLimits* limits) noexcept {
  const bool any = environment.r.given || environment.max_victim_r.given;
  if (request.max_regions == 0 && !any) return Status::kOk;
  if (request.max_regions != 0 && request.max_regions <= request.prepinned_regions) {
    return fail(Status::kBadArg,
                "%llu regions are prepinned, but max_regions is %llu, which leaves none for other "
                "pins; prepin fewer, or pass more",
                static_cast<unsigned long long>(request.prepinned_regions),
                static_cast<unsigned long long>(request.max_regions));
  }
  const uint64_t available =
      request.max_regions == 0 ? 0 : request.max_regions - request.prepinned_regions;
  if (any) {
    const Status status =
        derive_pair(kRegionPair, available, environment.r, environment.max_victim_r, request.warns,
                    &limits->remote_regions, &limits->victim_regions);
    if (status != Status::kOk) return status;
  } else {
    const bool simple =
        request.local_only || limits->region_bytes == 0 || limits->victim_bytes == 0;
    limits->victim_regions =
        simple ? available : proportional_regions(request, environment, available, limits);
  }
  if (available != 0 && limits->victim_regions == 0) {
    return fail(Status::kBadArg,
                "%llu regions are too few for local pins beside those of %llu bytes "
                "for peers; pass LOCAL_ONLY, or set GASNET_FIREHOSE_MAXVICTIM_R",
                static_cast<unsigned long long>(available),
                static_cast<unsigned long long>(limits->m_bytes));
  }
  return Status::kOk;
}

// The number of regions that may all have the largest size; GASNet promises exactly this to the client.
uint64_t promised_regions(const CompatLimits& limits) noexcept {
  if (limits.victim_bytes == 0 || limits.region_bytes == 0) return limits.victim_regions;
  const uint64_t by_bytes = limits.victim_bytes / limits.region_bytes;
  return limits.victim_regions == 0 ? by_bytes : std::min(limits.victim_regions, by_bytes);
}

Status check_enough(const CompatRequest& request, const CompatEnvironment& environment,
                    const CompatLimits& limits) noexcept {
  const bool limited = request.max_bytes != 0 || environment.max_victim_m.given;
  if (limited && limits.victim_bytes < request.bucket_bytes) {
    return fail(Status::kBadArg,
                "MAXVICTIM is %llu bytes, less than a bucket of %llu bytes; raise "
                "max_pinnable_memory or GASNET_FIREHOSE_MAXVICTIM_M, or prepin less",
                static_cast<unsigned long long>(limits.victim_bytes),
                static_cast<unsigned long long>(request.bucket_bytes));
  }
  if (limited && limits.victim_bytes < kFewBytes) {
    log_info("firehose: MAXVICTIM of %llu bytes is below GASNet's minimum of 16 MiB",
             static_cast<unsigned long long>(limits.victim_bytes));
  }
  if (limits.victim_regions != 0 && limits.victim_regions < kFewRegions) {
    log_info("firehose: MAXVICTIM_R of %llu is below GASNet's minimum of 32",
             static_cast<unsigned long long>(limits.victim_regions));
  }
  return Status::kOk;
}

}  // namespace

CompatEnvironment read_compat_environment() noexcept {
  // Only for the region size an explicit zero has a meaning of its own.
  CompatEnvironment environment = {.m = read_setting(Knob::kGasnetM),
                                   .max_victim_m = read_setting(Knob::kGasnetMaxVictimM),
                                   .r = read_setting(Knob::kGasnetR),
                                   .max_victim_r = read_setting(Knob::kGasnetMaxVictimR),
                                   .max_region_size = read_setting(Knob::kGasnetMaxRegionSize)};
  for (CompatSetting* setting :
       {&environment.m, &environment.max_victim_m, &environment.r, &environment.max_victim_r}) {
    setting->given = setting->given && setting->number != 0;
  }
  return environment;
}

Status split_compat_memory(uint64_t max_bytes, double victim_ratio,
                           const CompatEnvironment& environment, bool warns, uint64_t* m_bytes,
                           uint64_t* victim_bytes) noexcept {
  if (environment.m.given || environment.max_victim_m.given) {
    return derive_pair(kBytePair, max_bytes, environment.m, environment.max_victim_m, warns,
                       m_bytes, victim_bytes);
  }
  *victim_bytes = share(max_bytes, victim_ratio);
  *m_bytes = max_bytes - *victim_bytes;
  return Status::kOk;
}

Status compute_compat_limits(const CompatRequest& request, const CompatEnvironment& environment,
                             CompatLimits* limits) noexcept {
  *limits = CompatLimits{};
  const bool peers = request.sends && !request.local_only;
  if (request.page_mode && (request.max_regions != 0 || request.max_region_bytes != 0)) {
    return fail(Status::kBadArg,
                "a FIREHOSE_PAGE client passes 0 for max_regions and max_region_size, "
                "not %llu and %llu",
                static_cast<unsigned long long>(request.max_regions),
                static_cast<unsigned long long>(request.max_region_bytes));
  }
  Status status = split_bytes(request, environment, limits);
  if (status != Status::kOk) return status;
  limits->victim_bytes = round_down(limits->victim_bytes, request.bucket_bytes);
  if (!request.page_mode) {
    status = choose_region_bytes(request, environment, limits);
    if (status == Status::kOk) status = split_regions(request, environment, limits);
    if (status != Status::kOk) return status;
    limits->local_regions = promised_regions(*limits);
  }
  const uint64_t free_m = limits->m_bytes - std::min(limits->m_bytes, request.prepinned_bytes);
  limits->remote_bytes = peers ? round_down(free_m, request.bucket_bytes) : 0;
  if (!peers) limits->remote_regions = 0;
  return check_enough(request, environment, *limits);
}

Status split_for_peers(const CompatRequest& request, const CompatLimits& limits,
                       uint64_t domain_bytes, uint32_t peers, CompatPeerLimits* of_one) noexcept {
  const bool unlimited = limits.victim_bytes == 0 && limits.remote_bytes == 0;
  *of_one = CompatPeerLimits{};
  of_one->budget_bytes =
      unlimited ? share(domain_bytes, 1 - request.victim_ratio) : limits.remote_bytes;
  const uint64_t quota = round_down(of_one->budget_bytes / peers, request.bucket_bytes);
  if (quota == 0 && request.prepinned_bytes != 0 && !unlimited) {
    return fail(Status::kBadArg,
                "M is %llu bytes, and %llu bytes are prepinned, which count as part of it: what is "
                "left gives each of %u peers less than a bucket of %llu bytes; raise "
                "max_pinnable_memory or GASNET_FIREHOSE_M, prepin less, or pass LOCAL_ONLY",
                static_cast<unsigned long long>(limits.m_bytes),
                static_cast<unsigned long long>(request.prepinned_bytes), peers,
                static_cast<unsigned long long>(request.bucket_bytes));
  }
  if (quota == 0) {
    return fail(Status::kBadArg,
                "M is %llu bytes, of which each of %u peers has less than a bucket of %llu bytes; "
                "raise max_pinnable_memory or GASNET_FIREHOSE_M, or pass LOCAL_ONLY",
                static_cast<unsigned long long>(of_one->budget_bytes), peers,
                static_cast<unsigned long long>(request.bucket_bytes));
  }
  const uint64_t largest = limits.region_bytes;
  of_one->pin_bytes = largest == 0 ? quota : std::min(largest, quota);
  if (request.page_mode) {
    of_one->max_firehoses = quota / request.bucket_bytes;
    return Status::kOk;
  }
  of_one->regions = quota / of_one->pin_bytes;
  // A firehose on a small part of a region keeps all of it pinned: so many never keep more than M, and
  // MAXVICTIM stays for local pins whatever peers do. (A region that is larger than a quota breaks this.)
  if (largest != 0 && largest <= quota) of_one->max_firehoses = of_one->regions;
  if (limits.remote_regions == 0) return Status::kOk;
  const uint64_t by_count = limits.remote_regions / peers;
  if (by_count == 0) {
    return fail(Status::kBadArg,
                "R is %llu regions, less than one for each of %u peers; raise max_regions or "
                "GASNET_FIREHOSE_R, or pass LOCAL_ONLY",
                static_cast<unsigned long long>(limits.remote_regions), peers);
  }
  of_one->regions = std::min(of_one->regions, by_count);
  of_one->max_firehoses =
      of_one->max_firehoses == 0 ? by_count : std::min(of_one->max_firehoses, by_count);
  return Status::kOk;
}

}  // namespace hydrant
