// Explains why hits have to be checked in this process, and how to start the program so that they are not.
// The monitor logs the text when it starts (monitor.cpp).
#include "firehose/watch/hooks_state.hpp"

#define HYDRANT_LINK_THE_PROGRAM                                                  \
  "link the program itself with what pkg-config --libs firehose (or hydrant) or " \
  "Hydrant::firehose (Hydrant::hydrant) says, or start it with LD_PRELOAD=libfirehose_hooks.so.0"

namespace hydrant {

const char* hit_check_reason(const hydrant_hooks_t* hooks, bool ours) noexcept {
  if (hooks == nullptr) {
    return "the hooks library is not in this process; " HYDRANT_LINK_THE_PROGRAM;
  }
  if (!ours) {
    return "the hooks serve another copy of this library; let the process have one copy";
  }
  if (hooks->families == HYDRANT_HOOKS_ALL) return nullptr;
  if ((hooks->families & ~HYDRANT_HOOKS_MALLOC) == (HYDRANT_HOOKS_ALL & ~HYDRANT_HOOKS_MALLOC)) {
    if (hooks->malloc_fault != nullptr) return hooks->malloc_fault;
  }
  if (hooks->families == 0) {
    return "the hooks library was loaded behind libc, or something stands before "
           "it; " HYDRANT_LINK_THE_PROGRAM;
  }
  return "other functions stand before some of the hooks (hydrant-info names them): a sanitizer's, "
         "another library's or the program's own; put the hooks before that library";
}

}  // namespace hydrant
