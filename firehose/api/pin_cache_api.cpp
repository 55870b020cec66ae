// Implements the C functions of include/hydrant/pin_cache.h, except the two of hit_path.cpp. Each checks and
// converts its arguments and makes one call.
#include "firehose/api/domain_log.hpp"
#include "firehose/api/domain_options.hpp"
#include "firehose/base/cancellation.hpp"
#include "firehose/base/config/knobs.hpp"
#include "firehose/base/machine/stay_loaded.hpp"
#include "firehose/cache/domain_registry.hpp"
#include "firehose/cache/policy/reuse_admission.hpp"
#include "firehose/hit/asymmetric_fence.hpp"
#include "firehose/pin/failure_texts.hpp"
#include "firehose/pin/pin_handle.hpp"
#include "firehose/registrars/added_registrars.hpp"
#include "firehose/registrars/uring/uring_registrar.hpp"
#include "firehose/remote/remote_pin_service.hpp"

#include <algorithm>
#include <cstring>
#include <new>

using namespace hydrant;

namespace {

MemoryRange to_range(const void* addr, size_t len) {
  return {reinterpret_cast<uintptr_t>(addr), len};
}

Status check_access(uint32_t access) {
  if (access <= bits(Access::kAll)) return Status::kOk;
  return fail_unknown_access(access);
}

// Runs `pin` on the handle's domain and returns the pin, or a failed one.
template <class Pin>
hydrant_pin_t answer(hydrant_domain_t handle, uint32_t access, Pin pin) {
  Domain* domain = find_domain(handle);
  if (domain == nullptr) return failed_pin(Status::kNotInit);
  Status status = check_access(access);
  const RegionSlot* slot = nullptr;
  if (status == Status::kOk) status = pin(*domain, static_cast<Access>(access), &slot);
  return status == Status::kOk ? make_pin(slot) : failed_pin(status);
}

// The domain and region of a live pin; null, with a text, otherwise.
Domain* domain_of_pin(hydrant_pin_t pin, MemoryRange* range, const std::byte** key) {
  const RegionSlot* slot = RegionSlot::from_public(pin.region);
  Domain* domain = slot != nullptr ? domain_of(slot) : nullptr;
  if (domain != nullptr && domain->describe(slot, range, key)) return domain;
  (void)fail(Status::kNotInit,
             "this pin is not live, or has several parts: use it before its release, and "
             "hydrant_pin_parts() for pins of several parts");
  return nullptr;
}

Status add_prepinned(Domain& domain, const hydrant_domain_options_t& options) {
  const uint32_t access =
      options.prepinned_access != 0 ? options.prepinned_access : HYDRANT_ACCESS_ALL;
  for (size_t i = 0; i < options.prepinned_count; ++i) {
    const hydrant_range_t range = options.prepinned[i];
    const void* key = options.prepinned_keys != nullptr ? options.prepinned_keys[i] : nullptr;
    if (key == nullptr && domain.registrar().traits().key_bytes != 0) {
      return fail(Status::kBadArg, "options.prepinned_keys has no key for prepinned range %zu", i);
    }
    const Status status =
        domain.add_prepinned({range.addr, range.len}, static_cast<Access>(access), key);
    if (status != Status::kOk) return add_context(status, "prepinned range %zu", i);
  }
  return Status::kOk;
}

Status choose_policies(const hydrant_domain_options_t& options, const RegistrarTraits& traits,
                       const DomainConfig& config, CachePolicies* policies) {
  if (options.policy != nullptr) {
    policies->replacement = make_client_policy(*options.policy);
    if (policies->replacement == nullptr) return Status::kBadArg;
  }
  const bool by_reuse = knob_number(Knob::kAdmission) != 0;
  if (by_reuse) policies->admission.reset(new (std::nothrow) ReuseAdmission);
  // Slots beyond max_regions are used too, so room for all of them.
  if (by_reuse == (policies->admission != nullptr) &&
      policies->complete(traits, Domain::slots_for(config.max_regions)))
    return Status::kOk;
  return fail(Status::kResource,
              "the system has no memory for the policies of a domain: free memory, or raise "
              "ulimit -v");
}

Status create(const hydrant_domain_options_t& options, uint64_t handle) {
  NamedRegistrar named;
  Status status = choose_registrar(options, &named);
  if (status != Status::kOk) return status;
  DomainConfig config;
  config.uring = named.uring;
  status = make_config(options, named.registrar->traits(), &config);
  if (status != Status::kOk) return status;
  CachePolicies policies;
  status = choose_policies(options, named.registrar->traits(), config, &policies);
  if (status != Status::kOk) return status;
  VictimPolicy& replacement = *policies.replacement;
  std::unique_ptr<Domain> domain(
      new (std::nothrow) Domain(config, std::move(named.registrar), std::move(policies), handle));
  if (domain == nullptr)
    return fail(Status::kResource,
                "the system has no memory for a domain: free memory, or raise ulimit -v");
  status = domain->set_up();
  if (status != Status::kOk) return status;
  add_to_fork_list(*domain);
  if (config.watch != HYDRANT_WATCH_CLIENT) status = domain->start_watching();
  if (status == Status::kOk) status = add_prepinned(*domain, options);
  if (status != Status::kOk) {
    domain->stop_watching();
    remove_from_fork_list(*domain);
    return status;
  }
  // From here on no step can fail.
  domain->registrar().adopt();
  replacement.adopt();
  log_domain_start(*domain);
  publish_domain(std::move(domain));
  return status;
}

}  // namespace

extern "C" {

const char* hydrant_error_text(void) { return last_error_text(); }
const char* hydrant_status_name(int status) { return status_name(static_cast<Status>(status)); }
void hydrant_set_error_text(const char* text) {
  (void)fail(Status::kOk, "%s", text != nullptr ? text : "");
}

void hydrant_domain_options_init_sized(hydrant_domain_options_t* options, size_t size) {
  std::memset(options, 0, std::min(size, sizeof *options));
  options->size = size;
}

int hydrant_domain_create(const hydrant_domain_options_t* given, hydrant_domain_t* domain) {
  const CancellationDisabled guard;
  if (domain == nullptr) return to_c(fail(Status::kBadArg, "domain is NULL"));
  hydrant_domain_options_t options;
  Status status = read_options(given, &options);
  if (status != Status::kOk) return to_c(status);
  stay_loaded();
  asymmetric_fence::setup();
  const uint64_t handle = claim_domain_handle();
  if (handle == 0) {
    return to_c(fail(Status::kResource,
                     "a domain cannot be created: %u are live, which is the limit of a process; "
                     "destroy one, or share one",
                     kMaxClientDomains));
  }
  status = create(options, handle);
  if (status != Status::kOk) {
    abandon_domain_handle(handle);
    return to_c(status);
  }
  *domain = handle;
  return GASNET_OK;
}

int hydrant_domain_destroy(hydrant_domain_t handle, uint32_t flags) {
  const CancellationDisabled guard;
  if (flags > HYDRANT_FINI_KEEP)
    return to_c(fail(Status::kBadArg,
                     "flags = %#x is none of HYDRANT_FINI_UNPIN and HYDRANT_FINI_KEEP", flags));
  const Domain* found = find_domain(handle);
  if (found != nullptr && has_remote_end(*found)) {
    return to_c(fail(Status::kBadArg,
                     "domain %s serves an end of remote pins: hydrant_remote_destroy() comes first",
                     found->config().name));
  }
  std::unique_ptr<Domain> domain(withdraw_domain(handle));
  if (domain == nullptr) return GASNET_ERR_NOT_INIT;
  log_domain_end(*domain);
  domain->shut_down(flags == HYDRANT_FINI_UNPIN);
  forget_domain(std::move(domain));
  return GASNET_OK;
}

hydrant_pin_t hydrant_try_pin(hydrant_domain_t domain, const void* addr, size_t len,
                              uint32_t access) {
  return answer(domain, access, [&](Domain& d, Access need, const RegionSlot** out) {
    return d.pin(to_range(addr, len), need, Domain::MissPolicy::kHitOnly, out);
  });
}

hydrant_pin_t hydrant_pin_wait(hydrant_domain_t domain, const void* addr, size_t len,
                               uint32_t access, uint64_t timeout_ns) {
  return answer(domain, access, [&](Domain& d, Access need, const RegionSlot** out) {
    return d.pin_until(to_range(addr, len), need, timeout_ns, out);
  });
}

hydrant_pin_t hydrant_partial_pin(hydrant_domain_t domain, const void* addr, size_t len,
                                  uint32_t access) {
  const CancellationDisabled guard;
  return answer(domain, access, [&](Domain& d, Access need, const RegionSlot** out) {
    return d.pin_partial(to_range(addr, len), need, out);
  });
}

int hydrant_pin_async(hydrant_domain_t handle, const void* addr, size_t len, uint32_t access,
                      hydrant_pinned_fn done, void* context) {
  const CancellationDisabled guard;
  Domain* domain = find_domain(handle);
  if (domain == nullptr) return GASNET_ERR_NOT_INIT;
  if (done == nullptr) return to_c(fail(Status::kBadArg, "done is NULL"));
  const Status status = check_access(access);
  if (status != Status::kOk) return to_c(status);
  return to_c(domain->pin_async(to_range(addr, len), static_cast<Access>(access), done, context));
}

int hydrant_pin_many(hydrant_domain_t handle, const hydrant_range_t* ranges, size_t n,
                     uint32_t access, hydrant_pin_t* pins) {
  const CancellationDisabled guard;
  Domain* domain = find_domain(handle);
  if (domain == nullptr) return GASNET_ERR_NOT_INIT;
  if (n == 0) return GASNET_OK;
  if (ranges == nullptr || pins == nullptr)
    return to_c(fail(Status::kBadArg, "ranges or pins is NULL"));
  Status status = check_access(access);
  if (status != Status::kOk) return to_c(status);
  std::unique_ptr<const RegionSlot*[]> slots(new (std::nothrow) const RegionSlot*[n]);
  if (slots == nullptr) return to_c(fail(Status::kResource, "no memory for %zu pins", n));
  status = domain->pin_many(ranges, n, static_cast<Access>(access), slots.get());
  for (size_t i = 0; status == Status::kOk && i < n; ++i) pins[i] = make_pin(slots[i]);
  return to_c(status);
}

int hydrant_release_many(const hydrant_pin_t* pins, size_t n) {
  if (n != 0 && pins == nullptr) return to_c(fail(Status::kBadArg, "pins is NULL"));
  int first = GASNET_OK;
  for (size_t i = 0; i < n; ++i) {
    const int status = hydrant_release(pins[i]);
    if (first == GASNET_OK) first = status;
  }
  return first;
}

size_t hydrant_pin_parts(hydrant_pin_t pin, size_t i, hydrant_region_t* part) {
  const CancellationDisabled guard;
  const RegionSlot* slot = RegionSlot::from_public(pin.region);
  Domain* domain = slot != nullptr ? domain_of(slot) : nullptr;
  if (domain != nullptr) return domain->parts(slot, i, part);
  if (part != nullptr) *part = {};
  return 0;
}

uint32_t hydrant_pin_key_bytes(hydrant_pin_t pin) {
  const RegionSlot* slot = RegionSlot::from_public(pin.region);
  Domain* domain = slot != nullptr ? domain_of(slot) : nullptr;
  return domain != nullptr ? domain->registrar().traits().key_bytes : 0;
}

int hydrant_invalidate(hydrant_domain_t handle, const void* addr, size_t len) {
  const CancellationDisabled guard;
  Domain* domain = find_domain(handle);
  return domain == nullptr ? GASNET_ERR_NOT_INIT : to_c(domain->invalidate(to_range(addr, len)));
}

int hydrant_coverage(hydrant_domain_t handle, const void* addr, size_t len, uint32_t* coverage) {
  const CancellationDisabled guard;
  Domain* domain = find_domain(handle);
  if (domain == nullptr) return GASNET_ERR_NOT_INIT;
  if (coverage == nullptr) return to_c(fail(Status::kBadArg, "coverage is NULL"));
  return to_c(domain->coverage(to_range(addr, len), coverage));
}

const char* hydrant_coverage_name(uint32_t coverage) {
  constexpr const char* kNames[] = {"none", "client", "vouched", "arena", "checked", "watched"};
  return coverage < std::size(kNames) ? kNames[coverage] : "(unknown coverage)";
}

int hydrant_vouch(hydrant_domain_t handle, const void* addr, size_t len) {
  const CancellationDisabled guard;
  Domain* domain = find_domain(handle);
  return domain == nullptr ? GASNET_ERR_NOT_INIT : to_c(domain->vouch(to_range(addr, len), true));
}

int hydrant_unvouch(hydrant_domain_t handle, const void* addr, size_t len) {
  const CancellationDisabled guard;
  Domain* domain = find_domain(handle);
  return domain == nullptr ? GASNET_ERR_NOT_INIT : to_c(domain->vouch(to_range(addr, len), false));
}

int hydrant_poll(hydrant_domain_t handle) {
  Domain* domain = find_domain(handle);
  return domain == nullptr ? -GASNET_ERR_NOT_INIT : domain->poll();
}

int hydrant_flush(hydrant_domain_t handle) {
  const CancellationDisabled guard;
  Domain* domain = find_domain(handle);
  if (domain == nullptr) return GASNET_ERR_NOT_INIT;
  domain->flush();
  return GASNET_OK;
}

int hydrant_export_key(hydrant_pin_t pin, void* blob, size_t* len) {
  const CancellationDisabled guard;
  MemoryRange range;
  const std::byte* key = nullptr;
  Domain* domain = domain_of_pin(pin, &range, &key);
  if (domain == nullptr) return GASNET_ERR_NOT_INIT;
  if (blob == nullptr || len == nullptr) return to_c(fail(Status::kBadArg, "blob or len is NULL"));
  return to_c(domain->registrar().export_key(range, key, static_cast<std::byte*>(blob), len));
}

int hydrant_import_key(hydrant_domain_t handle, const void* blob, size_t len, void* key) {
  const CancellationDisabled guard;
  Domain* domain = find_domain(handle);
  if (domain == nullptr) return GASNET_ERR_NOT_INIT;
  if (blob == nullptr || key == nullptr) return to_c(fail(Status::kBadArg, "blob or key is NULL"));
  return to_c(domain->registrar().import_key(static_cast<const std::byte*>(blob), len,
                                             static_cast<std::byte*>(key)));
}

int hydrant_implicit_key(hydrant_domain_t handle, uint32_t access, void* key) {
  const CancellationDisabled guard;
  Domain* domain = find_domain(handle);
  if (domain == nullptr) return GASNET_ERR_NOT_INIT;
  const Status status =
      key != nullptr ? check_access(access) : fail(Status::kBadArg, "key is NULL");
  if (status != Status::kOk) return to_c(status);
  return to_c(
      domain->registrar().implicit_key(static_cast<Access>(access), static_cast<std::byte*>(key)));
}

int hydrant_get_stats(hydrant_domain_t handle, hydrant_stats_t* stats) {
  const CancellationDisabled guard;
  Domain* domain = find_domain(handle);
  if (domain == nullptr) return GASNET_ERR_NOT_INIT;
  if (stats == nullptr) return to_c(fail(Status::kBadArg, "stats is NULL"));
  if (stats->size < sizeof(size_t) || stats->size > 4096) {
    return to_c(fail(Status::kBadArg, "set stats.size to sizeof(hydrant_stats_t) first"));
  }
  domain->read_stats(stats);
  // Fields of a newer header are zero, not what the caller's memory had.
  if (stats->size > sizeof *stats)
    std::memset(reinterpret_cast<char*>(stats) + sizeof *stats, 0, stats->size - sizeof *stats);
  return GASNET_OK;
}

int hydrant_registrar_add(const char* name, hydrant_registrar_open_fn open) {
  return to_c(add_registrar(name, open));
}

const char* hydrant_registrar_name(hydrant_domain_t handle) {
  Domain* domain = find_domain(handle);
  return domain == nullptr ? "" : domain->registrar().traits().name;
}

uint32_t hydrant_key_bytes(hydrant_domain_t handle) {
  Domain* domain = find_domain(handle);
  return domain == nullptr ? 0 : domain->registrar().traits().key_bytes;
}

int hydrant_uring_move(hydrant_pin_t pin, const void* addr, size_t len, int fd, uint64_t offset,
                       int to_file) {
  const CancellationDisabled guard;
  const RegionSlot* slot = RegionSlot::from_public(pin.region);
  Domain* domain = slot != nullptr ? domain_of(slot) : nullptr;
  if (domain == nullptr) return to_c(fail_pin_released());
  UringRegistrar* uring = domain->config().uring;
  if (uring == nullptr) {
    return to_c(fail(Status::kUnsupported,
                     "registrar %s cannot move data: take the uring registrar",
                     domain->registrar().traits().name));
  }
  if (len == 0)
    return to_c(fail(Status::kBadArg, "0 bytes cannot be moved: pass a length of 1 or more"));
  const MemoryRange wanted = to_range(addr, len);
  const size_t parts = domain->parts(slot, 0, nullptr);
  if (parts == 0) return to_c(fail_pin_released());
  size_t moved = 0;
  for (size_t i = 0; i < parts && wanted.valid(); ++i) {
    hydrant_region_t part;
    domain->parts(slot, i, &part);
    const uintptr_t from = std::max(part.addr, wanted.addr);
    const uintptr_t last = std::min(part.addr + part.len - 1, wanted.last());
    if (from > last) continue;
    const Status status =
        uring->move(static_cast<const std::byte*>(part.key), {from, last - from + 1}, fd,
                    offset + (from - wanted.addr), to_file != 0);
    if (status != Status::kOk) return to_c(status);
    moved += last - from + 1;
  }
  if (moved != 0 && moved == len) return GASNET_OK;
  return to_c(fail(Status::kBadArg, "[%#zx, +%zu) is not inside the pin: move what was pinned",
                   wanted.addr, len));
}

}  // extern "C"
