// Ends the process after a fatal error: message, freeze, backtrace, abort. Clients and all parts of the tools
// call it.
#include <hydrant/gasnet/debugging.h>
#include <hydrant/gasnet/misc.h>

#include "am/tools/console.hpp"
#include "am/tools/debugger.hpp"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <unistd.h>

namespace hydrant {
namespace {

constexpr const char* kLabel = "FATAL ERROR";
constexpr size_t kPositionBytes = 512;

// If another thread fails at the same time, or the backtrace itself fails, this only aborts.
[[noreturn]] void end_process() noexcept {
  if (show_the_end(true)) hydrant_tools_flush_streams();
  std::abort();
}

// Omits the directory of a source file, which is long and uninformative.
const char* base_name(const char* file) noexcept {
  const char* base = file;
  for (const char* p = file; *p != '\0'; ++p) {
    if (*p == '/') base = p + 1;
  }
  return base;
}

}  // namespace
}  // namespace hydrant

void hydrant_tools_fatalerror(const char* function, const char* file, int line, const char* format,
                              ...) {
  char position[hydrant::kPositionBytes];
  std::snprintf(position, sizeof position, "%s() at %s:%d", function, hydrant::base_name(file),
                line);
  va_list args;
  va_start(args, format);
  hydrant::console_message_va(hydrant::kLabel, position, format, args);
  va_end(args);
  hydrant::end_process();
}

void hydrant_tools_fatalerror_nopos(const char* format, ...) {
  va_list args;
  va_start(args, format);
  hydrant::console_message_va(hydrant::kLabel, nullptr, format, args);
  va_end(args);
  hydrant::end_process();
}

void hydrant_tools_unreachable(const char* function, const char* file, int line) {
  hydrant_tools_fatalerror(function, file, line, "gasnett_unreachable() was reached");
}

void hydrant_tools_killmyprocess(int exitcode) { ::_exit(exitcode); }

char* hydrant_tools_current_loc(const char* function, const char* file, int line) {
  char* text = nullptr;
  if (asprintf(&text, "%s() at %s:%d", function, file, line) < 0) {
    hydrant_tools_fatalerror(function, file, line, "no memory for the text of a source position");
  }
  return text;
}
