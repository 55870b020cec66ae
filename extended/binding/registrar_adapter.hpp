// Adapts a transport's registrar to the C interface of the pin cache: libhydrant uses libfirehose like
// any client.
#pragma once

#include <hydrant/pin_cache.h>

#include "firehose/base/registrar.hpp"

#include <memory>

namespace hydrant {

// The returned functions own the registrar: `destroy` deletes it. If no domain could be created, the
// caller must call it.
hydrant_registrar_t registrar_functions(std::unique_ptr<Registrar> registrar) noexcept;

}  // namespace hydrant
