// Explains what is wrong with a collective call. Calls that make or destroy teams have the same check.
#include "extended/team/check_collective.hpp"

#include "am/call/hsl.hpp"
#include "extended/collective/steps/nested_calls.hpp"

namespace hydrant {

void check_team_call_slowly(gex_TM_t tm, const char* call) noexcept {
  if (!is_wired()) fatal("%s before a client is initialised", call);
  if (handler_depth != 0) refuse_in_handler(call);
  if (job().careful) check_before_send(call);
  check_team(tm, call);
}

}  // namespace hydrant
