// Connects the job with the tools library: rank and environment for am/tools, debugging signals, and
// the display of settings at start. Called by start_job() (am/start_job.cpp).
#include "am/job/job_environment.hpp"

#include <hydrant/gasnet/debugging.h>
#include <hydrant/gasnet/env.h>
#include <hydrant/gasnet/system.h>

#include "am/tools/debugger.hpp"
#include "am/tools/job_hooks.hpp"
#include "am/tools/settings.hpp"
#include "firehose/base/config/knobs.hpp"
#include "firehose/base/log.hpp"
#include "rdma/bootstrap/bootstrap_hints.hpp"
#include "rdma/bootstrap/job_environment.hpp"
#include "rdma/config/job_knobs.hpp"

#include <cstdlib>
#include <string_view>

namespace hydrant {
namespace {

char* job_setting(const char* name) noexcept { return gasnet_getenv(name); }

int displays() noexcept {
  constexpr char kName[] = "GASNET_VERBOSEENV";
  return hydrant_job_info.rank == 0 && switch_of(kName, gasnet_getenv(kName), false) ? 1 : 0;
}

int own_rank() noexcept { return static_cast<int>(hydrant_job_info.rank); }

constexpr ToolsJob kToolsJob = {
    .get_environment = job_setting, .displays_environment = displays, .rank = own_rank};

void show_knob(const KnobInfo& knob) noexcept {
  const KnobValue value = read_knob(knob);
  char text[128];
  hydrant_tools_envstr_display(knob.name,
                               knob.type == KnobType::kText
                                   ? knob_text(knob)
                                   : format_knob(knob, value.number, text, sizeof text),
                               value.origin == KnobOrigin::kDefault);
}

}  // namespace

void register_job_with_tools() noexcept { set_tools_job(&kToolsJob); }

void register_trace_with_tools(const ToolsTrace* trace) noexcept {
  static ToolsJob traced = kToolsJob;
  if (trace == nullptr) return set_tools_job(&kToolsJob);
  traced.trace = trace;
  set_tools_job(&traced);
}

void prepare_debugging() noexcept {
  const char* const wish = gasnet_getenv("GASNET_BACKTRACE");
  if (wish != nullptr && *wish != '\0') {
    hydrant_tools_backtrace_init("");
  } else {
    check_backtrace_type();
    install_debugging_signals();
  }
}

void print_environment(uintptr_t max_segment) noexcept {
  if (displays() == 0) return;
  show_knob(knob_info(Knob::kLog));
  const char* const request = launch::removed_job_request();
  for (uint32_t i = 0; i < static_cast<uint32_t>(JobKnob::kEnd); ++i) {
    const auto knob = static_cast<JobKnob>(i);
    if (knob == JobKnob::kGasnetPshmNodes && request != nullptr)
      hydrant_tools_envstr_display(launch::kForkVariable, request, 0);
    else
      show_knob(knob_info(knob));
  }
  const char* most = std::getenv("GASNET_MAX_SEGSIZE");
  hydrant_tools_envint_display("GASNET_MAX_SEGSIZE", static_cast<int64_t>(max_segment),
                               most == nullptr || *most == '\0', 1);
  const char* uncaught = std::getenv("GASNET_NO_CATCH_SIGNAL");
  hydrant_tools_envstr_display("GASNET_NO_CATCH_SIGNAL", uncaught, uncaught == nullptr);
}

void print_launch_hint(const Bootstrap& bootstrap) noexcept {
  const char* requested = std::getenv("GASNET_PSHM_NODES");
  if (std::string_view(bootstrap.name()) != "alone" || knob_choice(JobKnob::kBootstrap) != "auto" ||
      (requested != nullptr && *requested != '\0') || *find_launcher_hint().variable != '\0') {
    return;
  }
  log_warning(
      "no launcher has started this program, so the job has one rank; for four ranks run "
      "hydrant-run -n 4 %s, or set GASNET_PSHM_NODES=4 (=1: one rank without this warning)",
      own_command_line().c_str());
}

}  // namespace hydrant
