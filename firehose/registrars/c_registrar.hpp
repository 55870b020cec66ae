// Adapts a client's own registration calls (hydrant_registrar_t in hydrant/pin_cache.h) to the registrar
// door: checks the struct once, copies it, and turns its codes into Status with a text.
#pragma once

#include <hydrant/pin_cache.h>

#include "firehose/base/registrar.hpp"

#include <memory>

namespace hydrant {

// The adapter copies the struct and calls its destroy(), if any, at its own end, once it was adopted; before
// that, and after a failure, the registrar is the client's. `size` may be smaller than today's: what an older
// client does not know counts as zero; or larger, if what we do not know is zero.
// Errors: kBadArg (a required function is missing, a value out of range; the text names the field);
// kUnsupported (device addresses, a newer struct that asks for what is unknown here); kResource.
std::unique_ptr<Registrar> make_c_registrar(const hydrant_registrar_t* functions,
                                            Status* status) noexcept;

}  // namespace hydrant
