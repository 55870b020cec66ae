// Calls dlopen() on behalf of another object.
//
// The loader takes the library that contains its return address for the caller, whose RUNPATH and $ORIGIN
// count. If a hook simply called the loader, every caller would look like this library.
#pragma once

#include "firehose/watch/hooks/real_calls.hpp"

#include <cstdint>

namespace hydrant::hooks {

// A loader function, with up to three arguments and a result that are passed as integers.
using LoaderCall = uintptr_t (*)(uintptr_t, uintptr_t, uintptr_t);

// Calls function(a, b, c) on behalf of the code at `caller`. If that is not possible (see the sources, one
// for each architecture), the call is this library's own.
uintptr_t call_on_behalf(const void* caller, LoaderCall function, uintptr_t a, uintptr_t b,
                         uintptr_t c);

}  // namespace hydrant::hooks
