// Parses rank lists such as "0,2-4". backtrace.cpp calls it for GASNET_BACKTRACE_NODES, and job_trace.cpp.
#include "am/tools/rank_list.hpp"

#include <cstdlib>
#include <cstring>

namespace hydrant {
namespace {

bool is_all(const char* list) noexcept {
  return list == nullptr || *list == '\0' || std::strcmp(list, "*") == 0;
}

struct Range {
  long first = 0;
  long last = 0;
};
// The first piece of the list and what follows it; null: that is no piece.
const char* take_range(const char* list, Range* range) noexcept {
  char* end = nullptr;
  range->first = range->last = std::strtol(list, &end, 10);
  if (end == list || *end != '-') return end == list ? nullptr : end;
  const char* const text = end + 1;
  range->last = std::strtol(text, &end, 10);
  return end == text ? nullptr : end;
}

}  // namespace

bool rank_list_contains(const char* list, int rank) noexcept {
  if (is_all(list)) return true;
  while (*list != '\0') {
    Range range;
    list = take_range(list, &range);
    if (list == nullptr) return false;
    if (rank >= range.first && rank <= range.last) return true;
    if (*list++ != ',') return false;
  }
  return false;
}

bool is_rank_list(const char* list) noexcept {
  if (is_all(list)) return true;
  while (*list != '\0') {
    Range range;
    list = take_range(list, &range);
    if (list == nullptr || range.first < 0 || range.last < range.first) return false;
    if (*list == ',') {
      ++list;
    } else if (*list != '\0') {
      return false;
    }
  }
  return true;
}

}  // namespace hydrant
