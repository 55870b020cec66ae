// Parses rank lists such as "0,2-4". Called by backtrace.cpp for GASNET_BACKTRACE_NODES.
#include "am/tools/rank_list.hpp"

#include <cstdlib>
#include <cstring>

namespace hydrant {

bool rank_list_contains(const char* list, int rank) noexcept {
  if (list == nullptr || *list == '\0' || std::strcmp(list, "*") == 0) return true;
  while (*list != '\0') {
    char* end = nullptr;
    const long first = std::strtol(list, &end, 10);
    if (end == list) return false;
    long last = first;
    if (*end == '-') {
      const char* const text = end + 1;
      last = std::strtol(text, &end, 10);
      if (end == text) return false;
    }
    if (rank >= first && rank <= last) return true;
    if (*end != ',') return false;
    list = end + 1;
  }
  return false;
}

}  // namespace hydrant
