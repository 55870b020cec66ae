// Has the text for nested calls. The calls of collectives, barriers and teams use it, and tests of events.
#include "extended/collective/steps/nested_calls.hpp"

#include "am/job/job.hpp"

namespace hydrant {

[[noreturn]] void refuse_in_handler(const char* what) noexcept {
  fatal("%s in a handler or in the function of a reduction: only outside of these", what);
}

}  // namespace hydrant
