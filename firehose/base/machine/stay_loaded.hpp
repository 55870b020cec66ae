// Prevents dlclose() from unloading the object that contains this copy of the library (a plugin, or the
// library itself): its threads, thread-key destructors and signal handlers run code in it.
#pragma once

namespace hydrant {

// Call it before the first of these is started or installed; later calls have no effect, nor do calls in the
// program itself or in a static program. Calls the loader: the caller must not hold a lock of the library.
// Cost: 1 us, once.
void stay_loaded() noexcept;

// Prevents dlclose() from unloading the object that contains `code`, as stay_loaded() does for its own; each
// call has this effect. It may be called by the object's constructor.
void keep_loaded(const void* code) noexcept;

}  // namespace hydrant
