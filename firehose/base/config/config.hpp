// Knobs: settings that are read from environment variables. Each library has a table of its own (knobs.cpp,
// rdma/config/job_knobs.cpp); this is the mechanism that they share. The parser, hydrant-info,
// docs/env_vars.md and the "did you mean" warning use the rows. config_grammar.hpp has the grammars.
//
// A knob's value is one 64-bit number in the unit of its type. Each call reads the environment: never before
// main() and never on the hit path. Nothing is cached, so a frequent reader keeps its own copy. The default
// applies in place of a bad value, with one warning per job.
//
// Threads: any, but not while another thread changes the environment (as getenv(3)). No allocation.
#pragma once

#include "firehose/base/status.hpp"

#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace hydrant {

enum class KnobType : uint32_t {
  kSize,      // value: bytes
  kCount,     // value: the number
  kChoice,    // value: index into KnobInfo::choices
  kBoolean,   // value: 0 or 1
  kDuration,  // value: nanoseconds
  kSet,       // value: bits, bit i for choice i
  kText,      // value: 1 if set; knob_text() returns it, and its reader validates it
};

// A row of the table. All texts are literals; effect is one sentence.
struct KnobInfo {
  uint32_t index = 0;  // of the row in its table
  const char* name = "";
  KnobType type = KnobType::kCount;
  const char* unit = "";          // unit of a plain number: "bytes", "MiB"; "" if none
  const char* default_text = "";  // in the grammar of the type
  const char* effect = "";
  const char* choices = "";  // kChoice, kSet: names joined by '|'; kText: its grammar
  uint64_t min = 0;          // accepted values, inclusive
  uint64_t max = UINT64_MAX;
  uint64_t plain_scale = 1;    // kSize: factor of a plain number
  bool power_of_two = false;   // accepts only powers of two and 0
  bool zero_is_never = false;  // kDuration: 0 means never; accepts that word, which others refuse
  bool refused = false;        // its reader fails on a bad value: read_knob() does not warn
};

enum class KnobOrigin : uint32_t { kDefault, kEnvironment };

struct KnobValue {
  uint64_t number = 0;
  KnobOrigin origin = KnobOrigin::kDefault;
  const char* rejected = nullptr;  // text of the environment if it was rejected
};

// The knobs of one library: an enumeration, and its function knob_info(), which returns a row.
template <typename Name>
concept KnobName = requires(Name knob) {
  { knob_info(knob) }
  noexcept->std::same_as<const KnobInfo&>;
};

// A variable of another implementation that has no effect here. A name that ends in "_" stands for all that
// begin with it. `reason` completes the sentence "NAME has no effect: ".
struct IgnoredName {
  std::string_view name;
  const char* reason;
};

// A table of rows. Names with one of the prefixes are knobs of this table, or unknown.
//
// Threads: tables are added before main() and constant afterwards, except the flags of warnings.
class KnobTable {
 public:
  // `warned`: one flag for each row. All three outlive the table.
  constexpr KnobTable(std::span<const KnobInfo> rows, std::span<const std::string_view> prefixes,
                      std::span<std::atomic<bool>> warned) noexcept
      : rows_(rows), prefixes_(prefixes), warned_(warned) {}

  std::span<const KnobInfo> rows() const noexcept { return rows_; }
  bool owns(std::string_view name) const noexcept;
  // True for the first call of a row.
  bool note_warned(const KnobInfo& row) noexcept {
    return !warned_[row.index].exchange(true, std::memory_order_relaxed);
  }
  void reset_warned() noexcept {
    for (std::atomic<bool>& warned : warned_) warned.store(false, std::memory_order_relaxed);
  }
  // Before the table is added. The names outlive the table.
  void set_ignored(std::span<const IgnoredName> names) noexcept { ignored_ = names; }
  // Why the table ignores the name; null if it does not.
  const char* why_ignored(std::string_view name) const noexcept;
  KnobTable* next() const noexcept { return next_; }
  void set_next(KnobTable* next) noexcept { next_ = next; }

 private:
  std::span<const KnobInfo> rows_;
  std::span<const std::string_view> prefixes_;
  std::span<std::atomic<bool>> warned_;
  std::span<const IgnoredName> ignored_;
  KnobTable* next_ = nullptr;
};
// By a constructor of the library, before main().
void add_knob_table(KnobTable& table) noexcept;
KnobTable* first_knob_table() noexcept;

// Calls visit(const KnobInfo&) for each row of all tables.
template <typename Visit>
void for_each_knob(Visit&& visit) noexcept {
  for (const KnobTable* table = first_knob_table(); table != nullptr; table = table->next())
    for (const KnobInfo& row : table->rows()) visit(row);
}

// The effective value: the environment's if set and acceptable, else the default. An empty string counts as
// not set. The process's first call also warns of all unknown names and all rejected values, in rank 0 of a
// job only.
KnobValue read_knob(const KnobInfo& knob) noexcept;
// Warns of a rejected value in any rank, once per process.
void warn_of_rejected(const KnobInfo& knob) noexcept;
// The text of a kText knob; "" if it is not set. Lives as long as the environment is not changed.
const char* knob_text(const KnobInfo& knob) noexcept;
// Parses `text` by the knob's grammar and range. On failure *value is unchanged.
// Errors: kBadArg, with a text that names the variable, what was given and what is accepted.
Status parse_knob(const KnobInfo& knob, const char* text, uint64_t* value) noexcept;
// The name of the choice `value` of a kChoice knob ("uring"); points into the table.
std::string_view knob_choice_name(const KnobInfo& knob, uint64_t value) noexcept;
// Describes the accepted values, for tables and messages: "a size such as 64M or 0.5G, at least 4K".
const char* describe_accepted(const KnobInfo& knob, char* text, size_t room) noexcept;
// Writes a value in the knob's own grammar ("64M", "region", "10s"), always terminated; parse_knob()
// reads it back. Returns `text`.
const char* format_knob(const KnobInfo& knob, uint64_t value, char* text, size_t room) noexcept;

// The same by name.
template <KnobName Name>
KnobValue read_knob(Name knob) noexcept {
  return read_knob(knob_info(knob));
}
template <KnobName Name>
uint64_t knob_number(Name knob) noexcept {
  return read_knob(knob_info(knob)).number;
}
// The option if it was given, else the knob's number.
template <KnobName Name>
uint64_t or_knob(uint64_t option, Name knob) noexcept {
  return option != 0 ? option : knob_number(knob);
}
template <KnobName Name>
std::string_view knob_choice(Name knob) noexcept {
  return knob_choice_name(knob_info(knob), knob_number(knob));
}
template <KnobName Name>
const char* knob_text(Name knob) noexcept {
  return knob_text(knob_info(knob));
}
template <KnobName Name>
Status parse_knob(Name knob, const char* text, uint64_t* value) noexcept {
  return parse_knob(knob_info(knob), text, value);
}

// Names for tables: knob_type_name(KnobType::kSize) is "size".
const char* knob_type_name(KnobType type) noexcept;
const char* knob_origin_name(KnobOrigin origin) noexcept;
// The known name nearest to `name`; null if none is near enough to be a likely typo.
const char* nearest_knob_name(const char* name) noexcept;

// Why a name of another implementation is ignored; null if it is none of these. libhydrant's table alone has
// such names: a program of GASNet's that links libfirehose uses them.
const char* why_ignored(const char* name) noexcept;

// Calls `visit(context, name)` for each environment variable that has the prefix of a table and is not a
// knob, and for each that a table ignores. So has a name with the prefix of a library that is not loaded, if
// a known name is near it. `name` is cut at 95 bytes and valid during the call. Returns the count.
size_t for_each_unknown_name(void (*visit)(void* context, const char* name),
                             void* context) noexcept;

// Warns of each unknown name, says at level info why others are ignored, and returns the count of both. Names
// of tests and benchmarks (HYDRANT_TEST_*, HYDRANT_BENCH_*) do not count. read_knob() calls it once per
// process, in rank 0 of a job only.
size_t warn_unknown_names() noexcept;

// Disables the warnings of read_knob() for this process. A launcher calls it: its ranks have the same
// environment, and rank 0 warns.
void leave_warnings_to_ranks() noexcept;

// For tests: forgets which warnings were written, so that they are written again.
void reset_config_warnings() noexcept;

}  // namespace hydrant
