// Through which a running job traces for the tools (GASNETT_TRACE_*, GASNETT_STATS_*).
#pragma once

namespace hydrant {

// Not null, any of them. Masks and texts: docs/tracing.md.
struct ToolsTrace {
  bool (*is_traced)(char letter) noexcept;
  // Takes `text`, which is from malloc.
  void (*print)(char letter, char* text) noexcept;
  const char* (*mask)() noexcept;
  void (*set_mask)(const char* mask) noexcept;
  bool (*is_local_traced)() noexcept;
  void (*trace_local)(bool wanted) noexcept;
  void (*set_source_line)(const char* file, unsigned line) noexcept;
  void (*source_line)(const char** file, unsigned* line) noexcept;
  void (*freeze_source_line)(int by) noexcept;

  bool (*is_counted)(char letter) noexcept;
  void (*print_statistics)(char letter, char* text) noexcept;
  const char* (*statistics_mask)() noexcept;
  void (*set_statistics_mask)(const char* mask) noexcept;
  void (*dump_statistics)(bool reset) noexcept;
  void (*at_dump)(void (*callback)(void (*print)(const char* format, ...))) noexcept;
};

}  // namespace hydrant
