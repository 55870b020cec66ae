// The one table of knobs: every environment variable that Hydrant reads is a row of config_table.cpp, and
// the parser, hydrant-info, docs/env_vars.md and the "did you mean" warning all come from there. The
// grammars are in config_grammar.hpp.
//
// A knob's value is one 64-bit number, in the unit that its type gives it. The environment is read when
// a knob is asked for, never before main() and never on the path of a hit; nothing is kept, so whoever
// needs a value often keeps it himself. A bad value is one warning line, and the default counts.
//
// Threads: any; as with getenv(3), not while another thread changes the environment. No allocation.
#pragma once

#include "firehose/base/status.hpp"

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace hydrant {

enum class Knob : uint32_t {
  kRegistrar,
  kBudget,
  kMaxRegions,
  kMaxRegionSize,
  kMode,
  kBucket,
  kMerge,
  kStream,
  kEagerAccess,
  kThreadTable,
  kWaitWarn,
  kMembarrier,
  kWatch,
  kLog,
  kAllocBackend,
  kRemoteBudget,
  kRemoteFirehoses,
  kRemoteBase,
  kRemoteZombies,
  kRemotePeerRegions,
  kRemoteMerge,
  kRemoteStream,
  kGasnetM,
  kGasnetMaxVictimM,
  kGasnetR,
  kGasnetMaxVictimR,
  kGasnetMaxRegionSize,
  kGasnetVerbose,
  kGasnetTableScale,
  kPollMax,
  kProgressThread,
  kSupernodeMaxsize,
  kBootstrap,
  kStopWarn,
  kGasnetPshmNodes,
  kGasnetExitTimeout,
  kGasnetExitTimeoutMax,
  kGasnetExitTimeoutMin,
  kGasnetExitTimeoutFactor,
  kBarrier,
  kBarrierStrict,
  kBarrierRadix,
  kJobWaitWarn,
  kPath,
  kPutInMoveMax,
  kBounceMax,
  kBouncePool,
  kAmLongPrealloc,
  kMediumLongThreshold,
  kUseLongGets,
  kUseLongPuts,
  kCma,
  kNetworkDepth,
  kNbiThrottle,
  kOnFault,
  kStats,
  kTransport,
  kIbvPorts,
  kIbvStripeMin,
  kIbvTimeout,
  kIbvCredits,
  kIbvOdp,
  kAmEager,
  kInject,
  kEnd,  // not a knob
};
inline constexpr size_t kKnobCount = static_cast<size_t>(Knob::kEnd);

enum class KnobType : uint32_t {
  kSize,      // value: bytes
  kCount,     // value: the number
  kChoice,    // value: index into KnobInfo::choices
  kBoolean,   // value: 0 or 1
  kDuration,  // value: nanoseconds; 0 means never
  kSet,       // value: bits, bit i for choice i
  kText,      // value: 1 if it is set; knob_text() has it, and whoever reads it checks it
};

// One row. All texts are literals; effect is one sentence.
struct KnobInfo {
  Knob knob = Knob::kRegistrar;  // its own index
  const char* name = "";
  KnobType type = KnobType::kCount;
  const char* unit = "";          // what a plain number means: "bytes", "MiB"; "" where none
  const char* default_text = "";  // in the grammar of the type
  const char* effect = "";
  const char* choices = "";  // kChoice, kSet: names joined by '|'; kText: its grammar
  uint64_t min = 0;          // accepted values, inclusive
  uint64_t max = UINT64_MAX;
  uint64_t plain_scale = 1;   // kSize: what a plain number is multiplied by
  bool power_of_two = false;  // and must be a power of two, or 0
};

enum class KnobOrigin : uint32_t { kDefault, kEnvironment };

struct KnobValue {
  uint64_t number = 0;
  KnobOrigin origin = KnobOrigin::kDefault;
  const char* rejected = nullptr;  // what the environment says, if that is not acceptable
};

// The row of a knob; knob_at() is for loops over kKnobCount.
const KnobInfo& knob_info(Knob knob) noexcept;
constexpr Knob knob_at(size_t index) noexcept { return static_cast<Knob>(index); }

// The value in force: the environment's if it is set and acceptable, else the default. A variable that
// is set to the empty string counts as not set. The process's first call also warns of unknown names, and of
// all values that are not acceptable.
KnobValue read_knob(Knob knob) noexcept;
inline uint64_t knob_number(Knob knob) noexcept { return read_knob(knob).number; }
// The chosen name of a kChoice knob ("uring"); points into the table and is followed by '|' or the end.
std::string_view knob_choice(Knob knob) noexcept;

// The text of a kText knob; "" if it is not set. Lives as long as the environment is not changed.
const char* knob_text(Knob knob) noexcept;

// Parses `text` by the knob's grammar and range. On failure *value is unchanged.
// Errors: kBadArg, with a text that names the variable, what was given and what is accepted.
Status parse_knob(Knob knob, const char* text, uint64_t* value) noexcept;

// "kSize" -> "size" and so on, for tables.
const char* knob_type_name(KnobType type) noexcept;
const char* knob_origin_name(KnobOrigin origin) noexcept;
// What the knob takes, for tables and messages: "a size such as 64M or 0.5G, at least 4K".
const char* describe_accepted(Knob knob, char* text, size_t room) noexcept;
// Writes a value in the knob's own grammar ("64M", "region", "10s"), always terminated; parse_knob()
// reads it back. Answers `text`.
const char* format_knob(Knob knob, uint64_t value, char* text, size_t room) noexcept;

// The known name nearest to `name`; null if none is near enough to be a likely typo.
const char* nearest_knob_name(const char* name) noexcept;

// Calls `visit(context, name)` for each variable of the environment that begins with HYDRANT_, FIREHOSE_ or
// GASNET_FIREHOSE_ and is no knob. `name` is cut at 95 bytes and lives as long as the call. Answers how many.
size_t for_each_unknown_name(void (*visit)(void* context, const char* name),
                             void* context) noexcept;

// Warns of each of them; HYDRANT_TEST_* and HYDRANT_BENCH_* belong to tests and benchmarks. Answers how many
// there are. read_knob() calls it once per process.
size_t warn_unknown_names() noexcept;

// Forgets which warnings have been given, so that a test can see them again.
void reset_config_warnings() noexcept;

}  // namespace hydrant
