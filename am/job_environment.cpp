#include "am/job_environment.hpp"

#include <hydrant/gasnet/debugging.h>
#include <hydrant/gasnet/env.h>
#include <hydrant/gasnet/system.h>

#include "am/segment_size.hpp"
#include "am/tools/debugger.hpp"
#include "am/tools/job_hooks.hpp"
#include "firehose/base/config.hpp"

#include <cstdlib>

namespace hydrant {
namespace {

char* job_setting(const char* name) noexcept { return gasnet_getenv(name); }

int displays() noexcept {
  const char* text = gasnet_getenv("GASNET_VERBOSEENV");
  return hydrant_job_info.rank == 0 && text != nullptr && *text != '\0' && *text != '0' &&
         *text != 'n' && *text != 'N';
}

int own_rank() noexcept { return static_cast<int>(hydrant_job_info.rank); }

constexpr ToolsJob kToolsJob = {
    .get_environment = job_setting, .displays_environment = displays, .rank = own_rank};

// What a job reads; the pin cache's are another library's.
constexpr Knob kOfTheJob[] = {Knob::kLog,
                              Knob::kPollMax,
                              Knob::kProgressThread,
                              Knob::kSupernodeMaxsize,
                              Knob::kBootstrap,
                              Knob::kStopWarn,
                              Knob::kGasnetPshmNodes,
                              Knob::kBarrier,
                              Knob::kBarrierStrict,
                              Knob::kBarrierRadix,
                              Knob::kJobWaitWarn,
                              Knob::kPath,
                              Knob::kBounceMax,
                              Knob::kBouncePool,
                              Knob::kMediumLongThreshold,
                              Knob::kUseLongGets,
                              Knob::kUseLongPuts,
                              Knob::kCma,
                              Knob::kNetworkDepth,
                              Knob::kNbiThrottle,
                              Knob::kTransport,
                              Knob::kIbvPorts,
                              Knob::kIbvStripeMin,
                              Knob::kIbvTimeout,
                              Knob::kIbvCredits,
                              Knob::kIbvOdp,
                              Knob::kAmEager,
                              Knob::kPutInMoveMax,
                              Knob::kAmLongPrealloc,
                              Knob::kOnFault,
                              Knob::kStats,
                              Knob::kInject,
                              Knob::kGasnetExitTimeout,
                              Knob::kGasnetExitTimeoutMax,
                              Knob::kGasnetExitTimeoutMin,
                              Knob::kGasnetExitTimeoutFactor};

}  // namespace

void lend_job_to_tools() noexcept { set_tools_job(&kToolsJob); }

void prepare_debugging() noexcept {
  const char* const wish = gasnet_getenv("GASNET_BACKTRACE");
  if (wish != nullptr && *wish != '\0') {
    hydrant_tools_backtrace_init("");
  } else {
    install_debugging_signals();
  }
}

void show_environment() noexcept {
  if (displays() == 0) return;
  for (const Knob knob : kOfTheJob) {
    const KnobValue value = read_knob(knob);
    char text[128];
    hydrant_tools_envstr_display(knob_info(knob).name,
                                 knob_info(knob).type == KnobType::kText
                                     ? knob_text(knob)
                                     : format_knob(knob, value.number, text, sizeof text),
                                 value.origin == KnobOrigin::kDefault);
  }
  const char* most = std::getenv("GASNET_MAX_SEGSIZE");
  hydrant_tools_envint_display("GASNET_MAX_SEGSIZE", static_cast<int64_t>(max_local_segment()),
                               most == nullptr || *most == '\0', 1);
  const char* uncaught = std::getenv("GASNET_NO_CATCH_SIGNAL");
  hydrant_tools_envstr_display("GASNET_NO_CATCH_SIGNAL", uncaught, uncaught == nullptr);
}

}  // namespace hydrant
