// Creates and probes the registrars that ship with libfirehose. Domain creation and hydrant-info call it.
#include "firehose/registrars/registrar_factory.hpp"

#include "firehose/base/log.hpp"
#include "firehose/registrars/added_registrars.hpp"
#include "firehose/registrars/c_registrar.hpp"
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

// The registrar belongs to the adapter from the start: its creator has no handle to destroy it by.
Status make_added(hydrant_registrar_open_fn open, const char* name, const char* argument,
                  NamedRegistrar* out) noexcept {
  hydrant_registrar_t functions{};
  functions.size = sizeof functions;
  const ScopedErrorText fresh;
  const int code = open(argument, &functions);
  if (code != GASNET_OK) {
    const auto status = static_cast<Status>(code);
    const bool is_known = status_name(status)[0] != '(';  // else "(unknown status)"
    return add_context(is_known ? status : Status::kBroken, "opening registrar %s failed", name);
  }
  auto status = Status::kOk;
  std::unique_ptr<Registrar> made = make_c_registrar(&functions, &status);
  if (made == nullptr) {
    if (functions.destroy != nullptr) functions.destroy(functions.user);
    return status;
  }
  made->adopt();
  out->uring = nullptr;
  out->registrar = std::move(made);
  return Status::kOk;
}

Status unknown_registrar(const char* name) noexcept {
  if (std::strncmp(name, "ibv", 3) == 0 && (name[3] == '\0' || name[3] == ':')) {
    return fail(
        Status::kUnsupported,
        "no registrar '%s': it is part of libfirehose_ibv, which this program does not link "
        "(pkg-config firehose_ibv, Hydrant::firehose_ibv)",
        name);
  }
  char names[kMaxAddedRegistrars * (kAddedNameBytes + 2) + 1];
  return fail(Status::kUnsupported,
              "unknown registrar '%s': use auto, uring, mlock%s; pass others as options.registrar",
              name, added_registrar_names(names, sizeof names));
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
  const char* argument = nullptr;
  if (const hydrant_registrar_open_fn open = find_added_registrar(name, &argument); open != nullptr)
    return make_added(open, name, argument, out);
  return unknown_registrar(name);
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
