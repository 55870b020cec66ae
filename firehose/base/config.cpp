// Reading, checking and formatting of knobs. The rows are in config_table.cpp.
#include "firehose/base/config.hpp"

#include "firehose/base/config_grammar.hpp"
#include "firehose/base/log.hpp"

#include <atomic>
#include <cstdio>
#include <cstdlib>

namespace hydrant {
namespace {

static_assert(kKnobCount <= 64, "one bit per knob in g_warned");

// Bit i: a bad value of knob i has been reported. Relaxed: it only decides who writes a line.
std::atomic<uint64_t> g_warned{0};
std::atomic<bool> g_environment_checked{false};

bool parse_by_type(const KnobInfo& info, const char* text, uint64_t* value) noexcept {
  switch (info.type) {
    case KnobType::kSize: return parse_size(text, info.plain_scale, value);
    case KnobType::kCount: return parse_count(text, value);
    case KnobType::kChoice: return parse_choice(text, info.choices, value);
    case KnobType::kBoolean: return parse_boolean(text, value);
    case KnobType::kDuration: return parse_duration(text, value);
    case KnobType::kSet: return parse_set(text, info.choices, value);
    case KnobType::kText: *value = text[0] != '\0' ? 1 : 0; return true;
  }
  return false;
}

bool in_range(const KnobInfo& info, uint64_t value) noexcept {
  if (value < info.min || value > info.max) return false;
  return !info.power_of_two || (value & (value - 1)) == 0 || value == 0;
}

}  // namespace

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

const char* describe_accepted(Knob knob, char* text, size_t room) noexcept {
  const KnobInfo& info = knob_info(knob);
  char low[24];
  char high[24];
  format_knob(knob, info.min, low, sizeof low);
  format_knob(knob, info.max, high, sizeof high);
  switch (info.type) {
    case KnobType::kSize:
      std::snprintf(text, room,
                    "%s from %s to %s, such as 64K, 64MB, 0.5G (a plain number is in %s)",
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
      std::snprintf(text, room, "a time from %s to %s, such as 10s, 250ms, never", low, high);
      break;
    case KnobType::kSet:
      std::snprintf(text, room, "none, all, or some of %s with commas between", info.choices);
      break;
    case KnobType::kText: std::snprintf(text, room, "%s", info.choices); break;
  }
  return text;
}

Status parse_knob(Knob knob, const char* text, uint64_t* value) noexcept {
  const KnobInfo& info = knob_info(knob);
  uint64_t parsed = 0;
  if (!parse_by_type(info, text, &parsed) || !in_range(info, parsed)) {
    char accepted[160];
    return fail(Status::kBadArg, "%s=\"%.80s\" is not accepted: it takes %s", info.name, text,
                describe_accepted(knob, accepted, sizeof accepted));
  }
  *value = parsed;
  return Status::kOk;
}

KnobValue read_knob(Knob knob) noexcept {
  if (!g_environment_checked.exchange(true, std::memory_order_relaxed)) {
    warn_unknown_names();
    // Those that nothing reads before there is trouble would otherwise be told of in the middle of it.
    for (size_t i = 0; i < kKnobCount; ++i) static_cast<void>(read_knob(knob_at(i)));
  }
  const KnobInfo& info = knob_info(knob);
  KnobValue value;
  // The table's own texts always parse: the unit test tries them all.
  static_cast<void>(parse_by_type(info, info.default_text, &value.number));
  // NOLINTNEXTLINE(concurrency-mt-unsafe): the header says when it may be called
  const char* text = std::getenv(info.name);
  if (text == nullptr || text[0] == '\0') return value;
  if (parse_knob(knob, text, &value.number) == Status::kOk) {
    value.origin = KnobOrigin::kEnvironment;
    return value;
  }
  value.rejected = text;
  const uint64_t bit = uint64_t{1} << static_cast<uint32_t>(knob);
  if ((g_warned.fetch_or(bit, std::memory_order_relaxed) & bit) == 0) {
    log_warning("%s; using %s", last_error_text(), info.default_text);
  }
  return value;
}

std::string_view knob_choice(Knob knob) noexcept {
  return choice_at(knob_info(knob).choices, knob_number(knob));
}

const char* knob_text(Knob knob) noexcept {
  static_cast<void>(read_knob(knob));  // for the check of names
  // NOLINTNEXTLINE(concurrency-mt-unsafe): the header says when it may be called
  const char* text = std::getenv(knob_info(knob).name);
  return text != nullptr ? text : "";
}

const char* format_knob(Knob knob, uint64_t value, char* text, size_t room) noexcept {
  const KnobInfo& info = knob_info(knob);
  switch (info.type) {
    case KnobType::kSize: {
      format_size(value, text, room);
      // Below the plain unit a suffix is needed to say bytes, or "1" would read as 1 MiB.
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

void reset_config_warnings() noexcept {
  g_warned.store(0, std::memory_order_relaxed);
  g_environment_checked.store(false, std::memory_order_relaxed);
}

}  // namespace hydrant
