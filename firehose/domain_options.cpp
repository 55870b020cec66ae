#include "firehose/domain_options.hpp"

#include "firehose/base/config.hpp"
#include "firehose/base/machine_limits.hpp"
#include "firehose/registrars/c_registrar.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <unistd.h>

namespace hydrant {
namespace {

constexpr uint64_t kMostRegions = uint64_t{1} << 22;
constexpr size_t kLargestBucket = size_t{1} << 40;

// The option if it was given, else what the environment or the table says.
uint64_t or_knob(uint64_t option, Knob knob) noexcept {
  return option != 0 ? option : knob_number(knob);
}

Status check_granule(const DomainConfig& config, const RegistrarTraits& traits) noexcept {
  if (!std::has_single_bit(config.granule_bytes) || config.granule_bytes > kLargestBucket ||
      config.granule_bytes % traits.granule_bytes != 0) {
    return fail(
        Status::kBadArg,
        "bucket_bytes = %zu is not a power of two from the registrar's granule of %zu bytes up",
        config.granule_bytes, traits.granule_bytes);
  }
  return Status::kOk;
}

}  // namespace

Status read_options(const hydrant_domain_options_t* given,
                    hydrant_domain_options_t* options) noexcept {
  // `mode` is the last field without which an options struct says nothing.
  constexpr size_t kLeast = offsetof(hydrant_domain_options_t, mode) + sizeof(uint32_t);
  if (given == nullptr || given->size < kLeast || given->size > 4096) {
    return fail(Status::kBadArg, "options.size is %zu; start from hydrant_domain_options_init()",
                given == nullptr ? 0 : given->size);
  }
  hydrant_domain_options_init_sized(options, sizeof *options);
  std::memcpy(options, given, std::min(given->size, sizeof *options));
  if (options->mode > HYDRANT_MODE_PAGE) {
    return fail(Status::kBadArg, "options.mode = %u is no HYDRANT_MODE_*", options->mode);
  }
  if (options->watch > HYDRANT_WATCH_NONE) {
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
    constexpr const char* kNames[] = {"auto", "uring",
                                      "mlock"};  // in the order of the knob's choices
    return make_registrar(kNames[std::min<uint64_t>(knob_number(Knob::kRegistrar), 2)], out);
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
  config->mode = options.mode;
  config->watch = options.watch;
  // A key layout of the environment's choosing would surprise the client: knobs only fill what is open.
  if (options.mode == HYDRANT_MODE_DEFAULT) {
    const bool page = traits.key_bytes == 0 && knob_number(Knob::kMode) != 0;
    config->mode = page ? HYDRANT_MODE_PAGE : HYDRANT_MODE_REGION;
  }
  if (options.watch == HYDRANT_WATCH_DEFAULT) config->watch = HYDRANT_WATCH_CLIENT;
  config->eager =
      static_cast<Access>(or_knob(options.eager_access, Knob::kEagerAccess)) & traits.supported;
  const uint64_t machine = default_budget_bytes(traits.max_charge_bytes);
  const uint64_t budget = or_knob(options.budget_bytes, Knob::kBudget);
  config->budget_bytes = budget != 0 ? budget : machine;
  const uint64_t regions = or_knob(options.max_regions, Knob::kMaxRegions);
  config->max_regions = static_cast<uint32_t>(
      std::min({regions != 0 ? regions : 65536, traits.max_regions, kMostRegions}));
  if (options.max_regions > kMostRegions) {
    return fail(Status::kBadArg, "options.max_regions = %llu is more than %llu",
                static_cast<unsigned long long>(options.max_regions),
                static_cast<unsigned long long>(kMostRegions));
  }
  const uint64_t largest = or_knob(options.max_region_bytes, Knob::kMaxRegionSize);
  config->max_region_bytes = static_cast<size_t>(
      std::min<uint64_t>(largest != 0 ? largest : SIZE_MAX, traits.max_region_bytes));
  const size_t page =
      std::max<size_t>(traits.granule_bytes, static_cast<size_t>(sysconf(_SC_PAGESIZE)));
  const uint64_t bucket = or_knob(options.bucket_bytes, Knob::kBucket);
  config->granule_bytes =
      config->mode == HYDRANT_MODE_PAGE && bucket != 0 ? static_cast<size_t>(bucket) : page;
  // Larger than a quarter of the budget, and what is merged can hardly be replaced.
  config->merge_bytes = static_cast<size_t>(or_knob(options.merge_bytes, Knob::kMerge));
  if (options.merge_bytes == 0) {
    config->merge_bytes = std::min<size_t>(config->merge_bytes, config->budget_bytes / 4 + 1);
  }
  config->thread_table_bytes = static_cast<size_t>(
      std::max<uint64_t>(std::bit_floor(knob_number(Knob::kThreadTable)), 8192));
  const uint64_t warn = knob_number(Knob::kWaitWarn);
  config->wait_warn_ns = warn != 0 ? warn : UINT64_MAX / 2;  // 0: never
  return check_granule(*config, traits);
}

}  // namespace hydrant
