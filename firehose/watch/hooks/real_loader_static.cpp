// Names the real loader functions in a static program. It is linked only into programs that call them.
#include "firehose/watch/hooks/real_calls.hpp"

#define HYDRANT_DECLARE_REAL(name, result, parameters) \
  extern "C" result real_##name parameters __asm__("__real_" #name);
HYDRANT_HOOKED_LOADER_CALLS(HYDRANT_DECLARE_REAL)
#undef HYDRANT_DECLARE_REAL

namespace hydrant::hooks {

#define HYDRANT_REAL(name, result, parameters) .name = real_##name,
constinit RealLoaderCalls real_loader = {HYDRANT_HOOKED_LOADER_CALLS(HYDRANT_REAL)};
#undef HYDRANT_REAL

}  // namespace hydrant::hooks
