// Names and descriptions of the hunt's memory sources, for --sources and --list.
#include "tests/stale/hunt/source_set.hpp"

#include <array>

namespace hydrant::stale {
namespace {

struct Row {
  const char* name;
  const char* text;
};
constexpr std::array<Row, kSources> kRows = {{
    {"small", "malloc below its mmap threshold"},
    {"trim", "malloc_trim (with small)"},
    {"large", "malloc above it, realloc"},
    {"heap", "malloc in secondary heaps, filled and emptied until libc unmaps them"},
    {"mmap", "private mappings; munmap, whole or in part, raced by mmap of the same address"},
    {"fixed", "MAP_FIXED over a mapping"},
    {"mremap", "mappings moved, grown, shrunk"},
    {"onto", "mappings moved onto another, moved with the old one kept"},
    {"madvise", "MADV_DONTNEED and every other advice"},
    {"brk", "sbrk up and down"},
    {"huge", "transparent huge pages"},
    {"hugetlb", "MAP_HUGETLB"},
    {"stack", "stacks of threads that start and end"},
    {"loader", ".bss of libraries that are loaded and unloaded"},
    {"arena", "libhydrant_alloc"},
    {"owner", "mappings of an allocator that reports to the process's monitor"},
    {"shared", "shared anonymous mappings, MADV_REMOVE"},
    {"memfd", "files in memory, punched and shrunk"},
    {"shm", "System V segments"},
    {"vouched", "files in memory, vouched for"},
    {"fork", "children that pin memory of their own"},
    {"signal", "mappings that a signal handler replaces at any point of its thread"},
}};

}  // namespace

const char* source_name(Source source) { return kRows[static_cast<size_t>(source)].name; }
const char* source_text(Source source) { return kRows[static_cast<size_t>(source)].text; }

bool parse_sources(const std::string& text, SourceSet* out, std::string* error) {
  SourceSet set;
  bool first = true;
  for (size_t at = 0; at <= text.size();) {
    size_t end = text.find(',', at);
    if (end == std::string::npos) end = text.size();
    std::string word = text.substr(at, end - at);
    at = end + 1;
    const bool without = !word.empty() && word[0] == '-';
    if (without) word.erase(0, 1);
    if (first && (without || word == "all")) set = SourceSet::all();
    first = false;
    if (word == "all") continue;
    size_t i = 0;
    while (i < kSources && word != kRows[i].name) ++i;
    if (i == kSources) {
      *error = "'" + word + "' is not a source: use " + format_sources(SourceSet::all());
      return false;
    }
    without ? set.drop(static_cast<Source>(i)) : set.add(static_cast<Source>(i));
  }
  *out = set;
  return true;
}

std::string format_sources(SourceSet sources) {
  std::string text;
  for (size_t i = 0; i < kSources; ++i) {
    if (!sources.has(static_cast<Source>(i))) continue;
    if (!text.empty()) text += ',';
    text += kRows[i].name;
  }
  return text;
}

}  // namespace hydrant::stale
