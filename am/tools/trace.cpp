// Implements tracing.h by the hooks of a running job (trace_hooks.hpp). Without a job that traces, no call
// has an effect.
#include <hydrant/gasnet/tracing.h>

#include "am/tools/job_hooks.hpp"
#include "am/tools/trace_hooks.hpp"

#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace hydrant {
namespace {

// Null if no job traces.
const ToolsTrace* trace_of_job() noexcept { return tools_job()->trace; }

// A text from malloc; without memory one that says so.
[[gnu::format(printf, 1, 0)]] char* format_text(const char* format, va_list arguments) noexcept {
  char* text = nullptr;
  if (vasprintf(&text, format, arguments) >= 0) return text;
  return strdup("(a text for which there was no memory)");
}

[[gnu::format(printf, 2, 0)]] void print_trace(char letter, const char* format,
                                               va_list arguments) noexcept {
  const ToolsTrace* trace = trace_of_job();
  if (trace == nullptr || !trace->is_traced(letter)) return;
  trace->print(letter, format_text(format, arguments));
}

[[gnu::format(printf, 2, 0)]] void print_statistics(char letter, const char* format,
                                                    va_list arguments) noexcept {
  const ToolsTrace* trace = trace_of_job();
  if (trace == nullptr || !trace->is_counted(letter)) return;
  trace->print_statistics(letter, format_text(format, arguments));
}

}  // namespace
}  // namespace hydrant

using namespace hydrant;

extern "C" {

void hydrant_tools_trace_printf(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  print_trace('H', format, arguments);
  va_end(arguments);
}

void hydrant_tools_trace_printf_force(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  print_trace('U', format, arguments);
  va_end(arguments);
}

int hydrant_tools_trace_enabled(void) {
  const ToolsTrace* trace = trace_of_job();
  return trace != nullptr && trace->is_traced('H') ? 1 : 0;
}

const char* hydrant_tools_trace_getmask(void) {
  const ToolsTrace* trace = trace_of_job();
  return trace != nullptr ? trace->mask() : "";
}

void hydrant_tools_trace_setmask(const char* mask) {
  const ToolsTrace* trace = trace_of_job();
  if (trace != nullptr) trace->set_mask(mask);
}

int hydrant_tools_trace_get_tracelocal(void) {
  const ToolsTrace* trace = trace_of_job();
  return trace != nullptr && trace->is_local_traced() ? 1 : 0;
}

void hydrant_tools_trace_set_tracelocal(int wanted) {
  const ToolsTrace* trace = trace_of_job();
  if (trace != nullptr) trace->trace_local(wanted != 0);
}

void hydrant_tools_trace_setsourceline(const char* file, unsigned int line) {
  const ToolsTrace* trace = trace_of_job();
  if (trace != nullptr) trace->set_source_line(file, line);
}

void hydrant_tools_trace_getsourceline(const char** file, unsigned int* line) {
  const ToolsTrace* trace = trace_of_job();
  if (trace != nullptr) trace->source_line(file, line);
}

void hydrant_tools_trace_freezesourceline(void) {
  const ToolsTrace* trace = trace_of_job();
  if (trace != nullptr) trace->freeze_source_line(1);
}

void hydrant_tools_trace_unfreezesourceline(void) {
  const ToolsTrace* trace = trace_of_job();
  if (trace != nullptr) trace->freeze_source_line(-1);
}

int hydrant_tools_stats_init(hydrant_tools_stats_callback_t callback) {
  const ToolsTrace* trace = trace_of_job();
  if (trace == nullptr) return 0;
  trace->at_dump(callback);
  return trace->is_counted('H') ? 1 : 0;
}

void hydrant_tools_stats_printf(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  print_statistics('H', format, arguments);
  va_end(arguments);
}

void hydrant_tools_stats_printf_force(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  print_statistics('U', format, arguments);
  va_end(arguments);
}

const char* hydrant_tools_stats_getmask(void) {
  const ToolsTrace* trace = trace_of_job();
  return trace != nullptr ? trace->statistics_mask() : "";
}

void hydrant_tools_stats_setmask(const char* mask) {
  const ToolsTrace* trace = trace_of_job();
  if (trace != nullptr) trace->set_statistics_mask(mask);
}

void hydrant_tools_stats_dump(int reset) {
  const ToolsTrace* trace = trace_of_job();
  if (trace != nullptr) trace->dump_statistics(reset != 0);
}

}  // extern "C"
