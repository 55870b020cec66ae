// Sorts events into GASNet's kinds, and reads masks of them.
#include "am/trace/trace_mask.hpp"

#include <hydrant/gasnet/am.h>

#include <string_view>

namespace hydrant {
namespace {

// The first match counts.
constexpr struct {
  std::string_view prefix;
  char letter;
} kGroups[] = {
    {"gex_RMA_Put", 'P'},       {"gex_RMA_Get", 'G'},
    {"gex_AM_", 'A'},           {"gex_AD_Op", 'R'},
    {"gex_Coll_Barrier", 'B'},  {"gasnet_barrier", 'B'},
    {"gex_Coll_", 'W'},         {"gasnet_coll_barrier", 'B'},
    {"gasnet_coll_", 'W'},      {"gex_Event_", 'S'},
    {"gex_NBI_", 'S'},          {"gasnet_wait_sync", 'S'},
    {"gasnet_AMPoll", 'X'},     {"GASNET_BLOCKUNTIL", 'X'},
    {"gasnet_put", 'P'},        {"gasnet_memset", 'P'},
    {"gasnet_get_", 'G'},       {"hydrant_put", 'P'},
    {"hydrant_get", 'G'},       {"hydrant_start", 'P'},
    {"hydrant_wait", 'S'},      {"hydrant_test", 'S'},
    {"hydrant_prefetch", 'C'},  {"hydrant_evict", 'C'},
    {"gasnet_hold_inter", 'L'}, {"gasnet_resume_inter", 'L'},
};

}  // namespace

bool TraceMask::parse(const char* text) noexcept {
  const bool is_complement = *text == '^';
  uint32_t bits = 0;
  bool is_valid = true;
  for (const char* next = text + (is_complement ? 1 : 0); *next != '\0'; ++next) {
    const char letter = *next >= 'a' && *next <= 'z' ? static_cast<char>(*next - 'a' + 'A') : *next;
    if (std::string_view(kTraceLetters).find(letter) == std::string_view::npos)
      is_valid = false;
    else
      bits |= bit(letter);
  }
  bits_ = (is_complement ? ~bits : bits) | bit('U');
  return is_valid;
}

const char* TraceMask::format(char (&text)[sizeof kTraceLetters]) const noexcept {
  char* end = text;
  for (const char letter : std::string_view(kTraceLetters)) {
    if (has(letter)) *end++ = letter;
  }
  *end = '\0';
  return text;
}

char letter_of_call(const char* name) noexcept {
  const std::string_view text(name);
  if (text.starts_with("gex_VIS_")) return text.find("Put") != std::string_view::npos ? 'P' : 'G';
  for (const auto& group : kGroups) {
    if (text.starts_with(group.prefix)) return group.letter;
  }
  return 'O';
}

char letter_of(const TraceRecord& record) noexcept {
  switch (record.kind) {
    case TraceKind::kCall: return letter_of_call(record.name);
    case TraceKind::kTransfer: return record.lane == 0 ? 'P' : 'G';
    // The library's own messages carry puts, barriers and the like.
    case TraceKind::kSend:
    case TraceKind::kRun: return record.handler >= GEX_AM_INDEX_BASE ? 'A' : 'C';
    case TraceKind::kMiss: return 'C';
    case TraceKind::kText: return record.letter;
    case TraceKind::kSourceLine: return 'N';
  }
  return 'I';
}

}  // namespace hydrant
