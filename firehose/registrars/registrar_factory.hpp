// The registrars that ship with libfirehose, by name, and what each can do on this machine.
#pragma once

#include "firehose/base/registrar.hpp"
#include "firehose/registrars/uring_registrar.hpp"

#include <array>
#include <memory>

namespace hydrant {

// A registrar, and the same object by its own type where that offers more than the door.
struct NamedRegistrar {
  std::unique_ptr<Registrar> registrar;
  UringRegistrar* uring = nullptr;  // null if it is another one
};

// "uring", "mlock", or "auto": uring if it works here, else mlock, with one warning that says why and
// what to change; if neither works, the text has both reasons.
// Errors: kBadArg (null), kUnsupported (unknown name; cannot work here), kResource. *out is unchanged on
// failure. Cost: about a millisecond.
Status make_registrar(const char* name, NamedRegistrar* out) noexcept;

struct RegistrarProbe {
  const char* name = "";
  bool usable = false;
  char reason[512] = "";  // why it is not usable and what to change; "" if it is
  // The rest is filled in if it is usable. traits.name is `name`.
  RegistrarTraits traits;
  bool charge_comes_back_late = false;  // uring
  bool knows_huge_pages = false;        // uring: charges of huge pages are known, not guessed
  bool default_choice = false;          // what "auto" takes
};

inline constexpr size_t kShippedRegistrars = 2;

// Creates each and destroys it again. Cost: milliseconds.
std::array<RegistrarProbe, kShippedRegistrars> probe_registrars() noexcept;

}  // namespace hydrant
