// A transport's registrar, as the pin cache's C door wants it: libhydrant uses libfirehose like any client.
#pragma once

#include <hydrant/pin_cache.h>

#include "firehose/base/registrar.hpp"

#include <memory>

namespace hydrant {

// The functions own the registrar: `destroy` deletes it (a domain that could not be made leaves that to you).
hydrant_registrar_t registrar_functions(std::unique_ptr<Registrar> registrar) noexcept;

}  // namespace hydrant
