// Creates the registrars that ship with libfirehose by name, and probes them on this machine.
#pragma once

#include "firehose/base/registrar.hpp"
#include "firehose/registrars/uring/uring_registrar.hpp"

#include <array>
#include <memory>

namespace hydrant {

// A registrar, and a typed pointer to the same object if it has methods beyond Registrar.
struct NamedRegistrar {
  std::unique_ptr<Registrar> registrar;
  UringRegistrar* uring = nullptr;  // null if it is not a UringRegistrar
};

// `name`: "uring", "mlock", "auto", or one that another library added (added_registrars.hpp). auto is uring
// if it works here, else mlock with one warning that gives the reason and the remedy. If neither works, the
// error text has both reasons.
// Errors: kBadArg (null), kUnsupported (unknown name; cannot work here), kResource; those of the added
// registrar. *out is unchanged on failure. Cost: about a millisecond.
Status make_registrar(const char* name, NamedRegistrar* out) noexcept;

struct RegistrarProbe {
  const char* name = "";
  bool usable = false;
  char reason[512] = "";  // why it is unusable and what to change; "" if usable
  // Valid only if usable. traits.name equals `name`.
  RegistrarTraits traits;
  bool charge_comes_back_late = false;  // uring: the kernel returns charges with a delay
  bool knows_huge_pages = false;        // uring: charges of huge pages are known, not guessed
  bool default_choice = false;          // "auto" chooses it
};

inline constexpr size_t kShippedRegistrars = 2;

// Creates each and destroys it again. Cost: milliseconds.
std::array<RegistrarProbe, kShippedRegistrars> probe_registrars() noexcept;

}  // namespace hydrant
