// Reads, checks and formats knobs, and lists their tables. Every component calls it.
#include "firehose/base/config/config.hpp"

#include "firehose/base/config/config_grammar.hpp"
#include "firehose/base/config/job_rank.hpp"
#include "firehose/base/log.hpp"

#include <atomic>
#include <cstdio>
#include <cstdlib>

namespace hydrant {
namespace {

constinit KnobTable* g_tables = nullptr;
// Relaxed: decides only which thread writes the lines.
std::atomic<bool> g_environment_checked{false};
std::atomic<bool> g_warnings_are_left{false};

bool parse_by_type(const KnobInfo& info, const char* text, uint64_t* value) noexcept {
  switch (info.type) {
    case KnobType::kSize: return parse_size(text, info.plain_scale, value);
    case KnobType::kCount: return parse_count(text, value);
    case KnobType::kChoice: return parse_choice(text, info.choices, value);
    case KnobType::kBoolean: return parse_boolean(text, value);
    case KnobType::kDuration:
      return info.zero_is_never ? parse_duration_or_never(text, value)
                                : parse_duration(text, value);
    case KnobType::kSet: return parse_set(text, info.choices, value);
    case KnobType::kText: *value = text[0] != '\0' ? 1 : 0; return true;
  }
  return false;
}

bool in_range(const KnobInfo& info, uint64_t value) noexcept {
  if (value < info.min || value > info.max) return false;
  return !info.power_of_two || (value & (value - 1)) == 0 || value == 0;
}

KnobTable* table_of(const KnobInfo& row) noexcept {
  for (KnobTable* table = g_tables; table != nullptr; table = table->next()) {
    const auto rows = table->rows();
    if (row.index < rows.size() && &rows[row.index] == &row) return table;
  }
  return nullptr;
}

// The ranks of a job have the same environment as a rule, so only one process logs.
bool warns() noexcept {
  return is_first_of_job() && !g_warnings_are_left.load(std::memory_order_relaxed);
}

}  // namespace

void add_knob_table(KnobTable& table) noexcept {
  table.set_next(g_tables);
  g_tables = &table;
}

KnobTable* first_knob_table() noexcept { return g_tables; }

const char* knob_type_name(KnobType type) noexcept {
  switch (type) {
    case KnobType::kSize: return "size";
    case KnobType::kCount: return "count";
    case KnobType::kChoice: return "choice";
    case KnobType::kBoolean: return "boolean";
    case KnobType::kDuration: return "duration";
    case KnobType::kSet: return "list";
    case KnobType::kText: return "text";
  }
  return "unknown";
}

const char* knob_origin_name(KnobOrigin origin) noexcept {
  return origin == KnobOrigin::kEnvironment ? "environment" : "default";
}

const char* describe_accepted(const KnobInfo& info, char* text, size_t room) noexcept {
  char low[24];
  char high[24];
  format_knob(info, info.min, low, sizeof low);
  format_knob(info, info.max, high, sizeof high);
  switch (info.type) {
    case KnobType::kSize:
      std::snprintf(
          text, room,
          "%s from %s to %s in whole bytes, such as 64K, 64MB, 0.5G (a plain number is in %s)",
          info.power_of_two ? "a power of two" : "a size", low, high, info.unit);
      break;
    case KnobType::kCount:
      std::snprintf(text, room, "a whole number from %s to %s", low, high);
      break;
    case KnobType::kChoice: std::snprintf(text, room, "one of %s", info.choices); break;
    case KnobType::kBoolean:
      std::snprintf(text, room, "y, yes, 1, true, on or n, no, 0, false, off");
      break;
    case KnobType::kDuration:
      std::snprintf(text, room, "a time from %s to %s, such as 10s, 250ms%s", low, high,
                    info.zero_is_never ? ", never" : "");
      break;
    case KnobType::kSet:
      std::snprintf(text, room, "none, all, or some of %s with commas between", info.choices);
      break;
    case KnobType::kText: std::snprintf(text, room, "%s", info.choices); break;
  }
  return text;
}

Status parse_knob(const KnobInfo& info, const char* text, uint64_t* value) noexcept {
  uint64_t parsed = 0;
  if (!parse_by_type(info, text, &parsed) || !in_range(info, parsed)) {
    char accepted[160];
    return fail(Status::kBadArg, "%s=\"%.80s\" is not accepted: it takes %s", info.name, text,
                describe_accepted(info, accepted, sizeof accepted));
  }
  *value = parsed;
  return Status::kOk;
}

void warn_of_rejected(const KnobInfo& info) noexcept {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): config.hpp states when it may be called
  const char* text = std::getenv(info.name);
  uint64_t unused = 0;
  if (text == nullptr || text[0] == '\0' || parse_knob(info, text, &unused) == Status::kOk) return;
  KnobTable* const table = table_of(info);
  if (table != nullptr && table->note_warned(info))
    log_warning("%s; using %s", last_error_text(), info.default_text);
}

KnobValue read_knob(const KnobInfo& info) noexcept {
  if (!g_environment_checked.exchange(true, std::memory_order_relaxed)) {
    if (warns()) warn_unknown_names();
    // Reports all bad values at startup, not only when a later failure first reads the knob.
    for_each_knob([](const KnobInfo& each) { static_cast<void>(read_knob(each)); });
  }
  KnobValue value;
  // Default texts always parse: a unit test checks all of them.
  static_cast<void>(parse_by_type(info, info.default_text, &value.number));
  // NOLINTNEXTLINE(concurrency-mt-unsafe): config.hpp states when it may be called
  const char* text = std::getenv(info.name);
  if (text == nullptr || text[0] == '\0') return value;
  if (parse_knob(info, text, &value.number) == Status::kOk) {
    value.origin = KnobOrigin::kEnvironment;
    return value;
  }
  value.rejected = text;
  if (!info.refused && warns()) warn_of_rejected(info);
  return value;
}

std::string_view knob_choice_name(const KnobInfo& knob, uint64_t value) noexcept {
  return choice_at(knob.choices, value);
}

const char* knob_text(const KnobInfo& knob) noexcept {
  static_cast<void>(read_knob(knob));  // runs the startup check
  // NOLINTNEXTLINE(concurrency-mt-unsafe): config.hpp states when it may be called
  const char* text = std::getenv(knob.name);
  return text != nullptr ? text : "";
}

const char* format_knob(const KnobInfo& info, uint64_t value, char* text, size_t room) noexcept {
  switch (info.type) {
    case KnobType::kSize: {
      format_size(value, text, room);
      // Values that are not a multiple of 1024 need the suffix B: a plain "1" would read as 1 MiB.
      const bool plain = value % 1024 != 0;
      if (plain && info.plain_scale != 1) {
        std::snprintf(text, room, "%lluB", static_cast<unsigned long long>(value));
      }
      break;
    }
    case KnobType::kCount:
      std::snprintf(text, room, "%llu", static_cast<unsigned long long>(value));
      break;
    case KnobType::kChoice: {
      const auto name = choice_at(info.choices, value);
      std::snprintf(text, room, "%.*s", static_cast<int>(name.size()), name.data());
      break;
    }
    case KnobType::kBoolean: std::snprintf(text, room, "%s", value != 0 ? "y" : "n"); break;
    case KnobType::kDuration: format_duration(value, text, room); break;
    case KnobType::kSet: format_set(value, info.choices, text, room); break;
    case KnobType::kText: std::snprintf(text, room, "%s", value != 0 ? "set" : ""); break;
  }
  return text;
}

void leave_warnings_to_ranks() noexcept {
  g_warnings_are_left.store(true, std::memory_order_relaxed);
}

void reset_config_warnings() noexcept {
  for (KnobTable* table = g_tables; table != nullptr; table = table->next()) table->reset_warned();
  g_environment_checked.store(false, std::memory_order_relaxed);
}

}  // namespace hydrant
