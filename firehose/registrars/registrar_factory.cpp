// Creates and probes the registrars that ship with libfirehose. Domain creation and hydrant-info call it.
#include "firehose/registrars/registrar_factory.hpp"

#include "firehose/base/log.hpp"
#include "firehose/registrars/mlock_registrar.hpp"

#include <cstdio>
#include <cstring>
#include <utility>

namespace hydrant {
namespace {

Status make_uring(NamedRegistrar* out) noexcept {
  auto status = Status::kOk;
  std::unique_ptr<UringRegistrar> uring = make_uring_registrar({}, &status);
  if (uring == nullptr) return status;
  out->uring = uring.get();
  out->registrar = std::move(uring);
  return Status::kOk;
}

Status make_mlock(NamedRegistrar* out) noexcept {
  auto status = Status::kOk;
  std::unique_ptr<Registrar> mlock = make_mlock_registrar(&status);
  if (mlock == nullptr) return status;
  out->uring = nullptr;
  out->registrar = std::move(mlock);
  return Status::kOk;
}

Status make_auto(NamedRegistrar* out) noexcept {
  if (make_uring(out) == Status::kOk) return Status::kOk;
  char why[512];
  std::snprintf(why, sizeof why, "%s", last_error_text());
  const Status status = make_mlock(out);
  if (status != Status::kOk) return add_context(status, "uring does not work either: %s", why);
  log_warning("registrar uring is unusable, using mlock instead (pages may still move): %s", why);
  return status;
}

using Make = Status (*)(NamedRegistrar*) noexcept;
struct Entry {
  const char* name;
  Make make;
};
constexpr Entry kEntries[] = {{"uring", &make_uring}, {"mlock", &make_mlock}};
static_assert(std::size(kEntries) == kShippedRegistrars);

}  // namespace

Status make_registrar(const char* name, NamedRegistrar* out) noexcept {
  if (name == nullptr)
    return fail(Status::kBadArg,
                "the registrar's name is a null pointer: pass uring, mlock or auto");
  if (std::strcmp(name, "auto") == 0) return make_auto(out);
  for (const Entry& entry : kEntries) {
    if (std::strcmp(name, entry.name) == 0) return entry.make(out);
  }
  return fail(Status::kUnsupported,
              "unknown registrar '%s': use uring, mlock or auto; pass others as "
              "options.registrar",
              name);
}

std::array<RegistrarProbe, kShippedRegistrars> probe_registrars() noexcept {
  std::array<RegistrarProbe, kShippedRegistrars> probes;
  bool chosen = false;
  for (size_t i = 0; i < probes.size(); ++i) {
    RegistrarProbe& probe = probes[i];
    probe.name = kEntries[i].name;
    NamedRegistrar made;
    probe.usable = kEntries[i].make(&made) == Status::kOk;
    if (!probe.usable) {
      std::snprintf(probe.reason, sizeof probe.reason, "%s", last_error_text());
      continue;
    }
    probe.traits = made.registrar->traits();
    probe.traits.name = probe.name;
    if (made.uring != nullptr) {
      probe.charge_comes_back_late = made.uring->charge_comes_back_late();
      probe.knows_huge_pages = made.uring->knows_huge_pages();
    }
    probe.default_choice = !chosen;
    chosen = true;
  }
  return probes;
}

}  // namespace hydrant
