// Checks a client's options, chooses the registrar, and derives the domain's configuration from options,
// knobs and limits of the machine. hydrant_domain_create() (pin_cache_api.cpp) calls it.
#include "firehose/api/domain_options.hpp"

#include "firehose/base/config/knobs.hpp"
#include "firehose/base/log.hpp"
#include "firehose/base/machine/machine_limits.hpp"
#include "firehose/registrars/c_registrar.hpp"
#include "firehose/registrars/charge/memlock.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <unistd.h>

namespace hydrant {
namespace {

constexpr uint64_t kRegionLimit = uint64_t{1} << 22;
constexpr size_t kLargestBucket = size_t{1} << 40;
constexpr size_t kCrowdedMerge = size_t{256} << 20;

// Requires: all other sizes are known. 0 if the client announces only the memory that it has pinned: it may
// not know of more. 0 if memory must be unpinned before its release: no memory may be registered beside a
// request just before that. 0 by default if unpin() ends locks of the program: the program may yet lock the
// memory beside a request.
size_t choose_stream(const hydrant_domain_options_t& options, const RegistrarTraits& traits,
                     const DomainConfig& config) noexcept {
  if (config.mode == HYDRANT_MODE_PAGE || config.watch == HYDRANT_WATCH_NONE) return 0;
  if (config.watch == HYDRANT_WATCH_CLIENT && options.stream_bytes == 0) return 0;
  if (config.unpin_before_release) return 0;
  if (traits.shares_locks_with_program && options.stream_bytes == 0 &&
      read_knob(Knob::kStream).origin == KnobOrigin::kDefault)
    return 0;
  const size_t most = std::min({static_cast<size_t>(or_knob(options.stream_bytes, Knob::kStream)),
                                config.merge_bytes, config.max_region_bytes});
  return most > config.granule_bytes ? most : 0;
}

// Names the setting that determines the size of a granule or bucket.
const char* source_of_granule(const hydrant_domain_options_t& options,
                              const DomainConfig& config) noexcept {
  const bool is_bucket = config.mode == HYDRANT_MODE_PAGE;
  if (is_bucket && options.bucket_bytes != 0) return "options.bucket_bytes";
  return is_bucket && knob_number(Knob::kBucket) != 0 ? "FIREHOSE_BUCKET"
                                                      : "the registrar's granule_bytes";
}

Status check_granule(const hydrant_domain_options_t& options, const DomainConfig& config,
                     const RegistrarTraits& traits) noexcept {
  if (!std::has_single_bit(config.granule_bytes) || config.granule_bytes > kLargestBucket ||
      config.granule_bytes % traits.granule_bytes != 0) {
    return fail(
        Status::kBadArg,
        "%s = %zu is not a power of two from the registrar's granule of %zu up to %zu bytes",
        source_of_granule(options, config), config.granule_bytes, traits.granule_bytes,
        kLargestBucket);
  }
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  if (config.unpin_before_release && config.watch != HYDRANT_WATCH_CLIENT &&
      config.granule_bytes > page) {
    return fail(
        Status::kBadArg,
        "%s = %zu: registrar %s must unpin before memory goes away, but what is beside pinned "
        "memory in a granule or bucket may go away earlier: only %zu is allowed, or take "
        "HYDRANT_WATCH_CLIENT for options.watch",
        source_of_granule(options, config), config.granule_bytes, traits.name, page);
  }
  return Status::kOk;
}

// Knobs only fill what the client leaves open: a key layout from the environment would surprise it.
uint32_t choose_mode(const hydrant_domain_options_t& options, const RegistrarTraits& traits,
                     const char* domain) noexcept {
  if (options.mode != HYDRANT_MODE_DEFAULT) return options.mode;
  if (knob_number(Knob::kMode) == 0) return HYDRANT_MODE_REGION;
  if (traits.key_bytes == 0) return HYDRANT_MODE_PAGE;
  static RateLimit once(RateLimit::kOnce);
  log_warning(
      once,
      "domain %s: FIREHOSE_MODE=page does not apply, because registrar %s has keys and only "
      "the program can ask for one key per bucket (options.mode)",
      domain, traits.name);
  return HYDRANT_MODE_REGION;
}

// The size in bytes that ranges are rounded out to.
size_t choose_granule(const hydrant_domain_options_t& options, const RegistrarTraits& traits,
                      const DomainConfig& config) noexcept {
  const size_t page =
      std::max<size_t>(traits.granule_bytes, static_cast<size_t>(sysconf(_SC_PAGESIZE)));
  const uint64_t bucket = or_knob(options.bucket_bytes, Knob::kBucket);
  if (bucket == 0 || bucket == page) return page;
  if (config.mode == HYDRANT_MODE_PAGE) return static_cast<size_t>(bucket);
  static RateLimit once(RateLimit::kOnce);
  log_warning(once,
              "domain %s: %s = %llu has no effect in region mode (options.mode, FIREHOSE_MODE)",
              config.name, options.bucket_bytes != 0 ? "options.bucket_bytes" : "FIREHOSE_BUCKET",
              static_cast<unsigned long long>(bucket));
  return page;
}

MemlockUse use_of_memlock(const RegistrarTraits& traits) noexcept {
  const ChargeScope scope = traits.charge_scope;
  return scope == ChargeScope::kProcess || scope == ChargeScope::kUser ? MemlockUse::kCharged
                                                                       : MemlockUse::kFree;
}

// Takes the default budget, and the limit that must be raised for a larger one.
void take_default(const BudgetDecision& machine, const RegistrarTraits& traits,
                  DomainConfig* config) noexcept {
  config->budget_bytes = machine.bytes;
  const bool is_floor = machine.decided_by == BudgetReason::kFloor;
  const bool is_charged = use_of_memlock(traits) == MemlockUse::kCharged;
  if (machine.decided_by == BudgetReason::kMemlock || (is_floor && is_charged)) {
    const MemlockLimit limit = read_memlock_limit();
    // The default is one page where the share of memlock is less.
    if (!is_floor || MemlockShare::of(limit.usable_bytes()) < machine.bytes)
      config->memlock_bytes = limit.bytes;
  }
  const bool is_of_registrar =
      machine.decided_by == BudgetReason::kRegistrar ||
      (is_floor && !config->memlock_bytes && traits.max_charge_bytes < machine.bytes);
  if (!is_of_registrar) return;
  config->memlock_bytes = traits.memlock_bytes;
  if (!traits.memlock_bytes) config->registrar_bytes = traits.max_charge_bytes;
}

// Requires: the granule is known.
Status choose_budget(const hydrant_domain_options_t& options, const RegistrarTraits& traits,
                     DomainConfig* config) noexcept {
  const BudgetDecision machine = default_budget(traits.max_charge_bytes, use_of_memlock(traits));
  const uint64_t wanted_bytes = or_knob(options.budget_bytes, Knob::kBudget);
  if (wanted_bytes == 0) {
    take_default(machine, traits, config);
    return Status::kOk;
  }
  config->budget_bytes = wanted_bytes;
  if (wanted_bytes >= config->granule_bytes) return Status::kOk;
  if (options.budget_bytes != 0) {
    return fail(Status::kBadArg,
                "options.budget_bytes = %llu is less than one %s of %zu bytes: nothing could be "
                "pinned",
                static_cast<unsigned long long>(wanted_bytes),
                config->mode == HYDRANT_MODE_PAGE ? "bucket" : "granule", config->granule_bytes);
  }
  static RateLimit once(RateLimit::kOnce);
  log_warning(once,
              "domain %s: FIREHOSE_BUDGET=%llu is less than %zu bytes, the least that can be "
              "pinned; using the default of %llu",
              config->name, static_cast<unsigned long long>(wanted_bytes), config->granule_bytes,
              static_cast<unsigned long long>(machine.bytes));
  take_default(machine, traits, config);
  return Status::kOk;
}

}  // namespace

Status read_options(const hydrant_domain_options_t* given,
                    hydrant_domain_options_t* options) noexcept {
  // `mode` is the last field that an options struct must have.
  constexpr size_t kMin = offsetof(hydrant_domain_options_t, mode) + sizeof(uint32_t);
  if (given == nullptr || given->size < kMin || given->size > 4096) {
    return given == nullptr
               ? fail(Status::kBadArg, "options is NULL; start from hydrant_domain_options_init()")
               : fail(Status::kBadArg,
                      "options.size is %zu; start from hydrant_domain_options_init()", given->size);
  }
  hydrant_domain_options_init_sized(options, sizeof *options);
  std::memcpy(options, given, std::min(given->size, sizeof *options));
  if (options->mode > HYDRANT_MODE_PAGE) {
    return fail(Status::kBadArg,
                "options.mode = %u is neither HYDRANT_MODE_REGION nor HYDRANT_MODE_PAGE",
                options->mode);
  }
  if (options->watch > HYDRANT_WATCH_AUTO) {
    return fail(Status::kBadArg, "options.watch = %u is no HYDRANT_WATCH_*", options->watch);
  }
  if (options->address_kind != HYDRANT_ADDRESS_HOST) {
    return fail(
        Status::kUnsupported,
        "addresses of kind %u (device memory) cannot be pinned by this version: host memory only",
        options->address_kind);
  }
  if ((options->eager_access | options->prepinned_access) > HYDRANT_ACCESS_ALL) {
    return fail(Status::kBadArg,
                "options.eager_access = %#x, prepinned_access = %#x: unknown rights",
                options->eager_access, options->prepinned_access);
  }
  if (options->prepinned_count != 0 && options->prepinned == nullptr) {
    return fail(Status::kBadArg, "options.prepinned is NULL, prepinned_count is %zu",
                options->prepinned_count);
  }
  return Status::kOk;
}

Status choose_registrar(const hydrant_domain_options_t& options, NamedRegistrar* out) noexcept {
  if (options.registrar == nullptr) {
    const char* name = options.registrar_name;
    if (name != nullptr) return make_registrar(name, out);
    // In the order of the knob's choices.
    constexpr const char* kNames[] = {"auto", "uring", "mlock", "ibv"};
    return make_registrar(kNames[std::min<uint64_t>(knob_number(Knob::kRegistrar), 3)], out);
  }
  if (options.registrar_name != nullptr) {
    return fail(Status::kBadArg, "options.registrar and registrar_name \"%s\" exclude each other",
                options.registrar_name);
  }
  Status status = Status::kOk;
  out->registrar = make_c_registrar(options.registrar, &status);
  return status;
}

Status make_config(const hydrant_domain_options_t& options, const RegistrarTraits& traits,
                   DomainConfig* config) noexcept {
  std::strncpy(config->name, options.name != nullptr ? options.name : traits.name,
               sizeof config->name - 1);
  config->mode = choose_mode(options, traits, config->name);
  config->watch = options.watch;
  if (options.watch == HYDRANT_WATCH_DEFAULT) {
    config->watch = knob_number(Knob::kWatch) == 0 ? HYDRANT_WATCH_AUTO : HYDRANT_WATCH_NONE;
  }
  config->unpin_before_release = traits.unpin_before_release;
  config->wants_unmap_reports = traits.wants_unmap_reports;
  config->eager =
      static_cast<Access>(or_knob(options.eager_access, Knob::kEagerAccess)) & traits.supported;
  config->granule_bytes = choose_granule(options, traits, *config);
  Status status = check_granule(options, *config, traits);
  if (status == Status::kOk) status = choose_budget(options, traits, config);
  if (status != Status::kOk) return status;
  const uint64_t regions = or_knob(options.max_regions, Knob::kMaxRegions);
  config->max_regions = static_cast<uint32_t>(
      std::min({regions != 0 ? regions : 65536, traits.max_regions, kRegionLimit}));
  if (options.max_regions > kRegionLimit) {
    return fail(Status::kBadArg,
                "options.max_regions = %llu is more than the limit of %llu: lower it",
                static_cast<unsigned long long>(options.max_regions),
                static_cast<unsigned long long>(kRegionLimit));
  }
  const uint64_t largest = or_knob(options.max_region_bytes, Knob::kMaxRegionSize);
  config->max_region_bytes = static_cast<size_t>(
      std::min<uint64_t>(largest != 0 ? largest : SIZE_MAX, traits.max_region_bytes));
  // Regions larger than a quarter of the budget could hardly be replaced.
  config->merge_bytes = static_cast<size_t>(or_knob(options.merge_bytes, Knob::kMerge));
  if (options.merge_bytes == 0) {
    config->merge_bytes = std::min<size_t>(config->merge_bytes, config->budget_bytes / 4 + 1);
  }
  config->crowded_merge_bytes = config->merge_bytes;
  if (options.merge_bytes == 0 && read_knob(Knob::kMerge).origin == KnobOrigin::kDefault)
    config->crowded_merge_bytes = std::max(config->merge_bytes, kCrowdedMerge);
  config->stream_bytes = choose_stream(options, traits, *config);
  config->thread_table_bytes = static_cast<size_t>(
      std::max<uint64_t>(std::bit_floor(knob_number(Knob::kThreadTable)), 8192));
  const uint64_t warn = knob_number(Knob::kWaitWarn);
  config->wait_warn_ns = warn != 0 ? warn : UINT64_MAX / 2;  // 0: never
  return Status::kOk;
}

}  // namespace hydrant
