// Adapts a client's registration functions (hydrant_registrar_t in hydrant/pin_cache.h) to the Registrar
// interface: validates and copies the struct, and converts its result codes to Status with a text.
#pragma once

#include <hydrant/pin_cache.h>

#include "firehose/base/registrar.hpp"

#include <memory>

namespace hydrant {

// The adapter copies the struct. Once adopted it calls the struct's destroy(), if any, when it is destroyed
// itself; before that, and after a failure, the client still owns the registrar. `size` may be smaller than
// the current struct (missing fields count as zero), or larger if all unknown fields are zero.
// Errors: kBadArg (a required function is missing, a value out of range; the text names the field);
// kUnsupported (device addresses, or unknown fields that are not zero); kResource.
std::unique_ptr<Registrar> make_c_registrar(const hydrant_registrar_t* functions,
                                            Status* status) noexcept;

}  // namespace hydrant
