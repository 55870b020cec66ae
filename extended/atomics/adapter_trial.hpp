// Tests whether this rank's adapter executes atomic operations as domains need them.
#pragma once

#include <cstdint>

namespace hydrant {

enum class AdapterAtomics : uint32_t {
  kNone,            // it does not execute them as it should
  kAmongAdapters,   // atomic with each other
  kWithProcessors,  // ... and with instructions of processors
};

// The adapter changes an own word, and returns the old value in the byte order of the processor. If the
// transport says that the adapter is atomic with processors, a thread then adds to the same word, and no
// addition may be lost. Connects the adapter with itself. At most 5 s; logs what fails. Polls.
AdapterAtomics try_adapter_atomics() noexcept;
// The result of this process's trial, which the first call makes.
AdapterAtomics tried_adapter_atomics() noexcept;

}  // namespace hydrant
