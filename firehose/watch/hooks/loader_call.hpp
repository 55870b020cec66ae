// Calls dlopen() as if somebody else did.
//
// The loader looks at its return address: the library that the address lies in is the caller, whose RUNPATH
// and $ORIGIN count. A hook that simply calls on would make every caller look like this library.
#pragma once

#include "firehose/watch/hooks/real_calls.hpp"

#include <cstdint>

namespace hydrant::hooks {

// Up to three words of arguments and a result.
using LoaderCall = uintptr_t (*)(uintptr_t, uintptr_t, uintptr_t);

// Calls function(a, b, c) on behalf of the code at `caller`. Where that cannot be done (see the sources, one
// for each kind of processor) the call is this library's own.
uintptr_t call_on_behalf(const void* caller, LoaderCall function, uintptr_t a, uintptr_t b,
                         uintptr_t c);

}  // namespace hydrant::hooks
