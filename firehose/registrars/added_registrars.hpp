// Registrars that other libraries add by name (hydrant_registrar_add() of hydrant/pin_cache.h). A domain
// names them as it names those that ship with libfirehose.
#pragma once

#include <hydrant/pin_cache.h>

#include "firehose/base/status.hpp"

#include <cstddef>

namespace hydrant {

inline constexpr size_t kMaxAddedRegistrars = 8;
inline constexpr size_t kAddedNameBytes = 16;

// Errors: kBadArg (a name that is empty, reserved, too long or has a colon; a null function; the name has
// another function); kResource (the table is full). Threads: any; before main(), too.
Status add_registrar(const char* name, hydrant_registrar_open_fn open) noexcept;

// The function for "NAME" or "NAME:ARGUMENT", null if no library added NAME; *argument is what follows the
// colon, or "".
hydrant_registrar_open_fn find_added_registrar(const char* wanted, const char** argument) noexcept;

// The names, each after ", ", cut at `room` bytes; "" without any. Returns `text`.
const char* added_registrar_names(char* text, size_t room) noexcept;

}  // namespace hydrant
