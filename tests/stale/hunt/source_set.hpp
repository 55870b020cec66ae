// Sources of a hunt's memory, and how each releases it. Names are those of the --sources option.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

namespace hydrant::stale {

enum class Source : uint8_t {
  kSmall,    // malloc below its mmap threshold
  kTrim,     // malloc_trim, beside kSmall
  kLarge,    // malloc above it: mapped and unmapped inside libc, realloc moves it there
  kHeap,     // malloc in secondary heaps, which libc maps and unmaps
  kMmap,     // private anonymous mappings in fixed windows; munmap, whole or in part
  kFixed,    // MAP_FIXED over one's own mapping
  kMremap,   // moved, grown, shrunk
  kOnto,     // moved onto another, moved with the old mapping kept: MREMAP_FIXED
  kMadvise,  // emptied by madvise, and every harmless advice
  kBrk,      // the end of the data segment, up and down
  kHuge,     // transparent huge pages
  kHugetlb,  // MAP_HUGETLB, if huge pages are reserved
  kStack,    // stacks of threads that start and end
  kLoader,   // the .bss of libraries that are loaded and unloaded
  kArena,    // libhydrant_alloc, if it is linked
  kOwner,    // mappings of an allocator that reports to the process's monitor (hydrant/monitor.h)
  kShared,   // shared anonymous mappings, MADV_REMOVE          (kShared to kShm are not watched: a
  kMemfd,    // files in memory, punched and shrunk              cache must not keep them)
  kShm,      // System V segments
  kVouched,  // as kMemfd, vouched for, and announced before each change
  kFork,     // children that pin memory of their own
  kSignal,   // mappings that a signal handler replaces at any point of its thread
  kCount
};

inline constexpr size_t kSources = static_cast<size_t>(Source::kCount);

const char* source_name(Source source);
const char* source_text(Source source);

class SourceSet {
 public:
  constexpr SourceSet() = default;
  constexpr SourceSet(std::initializer_list<Source> sources) {
    for (const Source source : sources) add(source);
  }
  static constexpr SourceSet all() { return SourceSet((uint32_t{1} << kSources) - 1); }

  constexpr bool has(Source source) const {
    return (bits_ >> static_cast<unsigned>(source) & 1) != 0;
  }
  constexpr bool has_any(SourceSet other) const { return (bits_ & other.bits_) != 0; }
  constexpr void add(Source source) { bits_ |= uint32_t{1} << static_cast<unsigned>(source); }
  constexpr void drop(Source source) { bits_ &= ~(uint32_t{1} << static_cast<unsigned>(source)); }
  constexpr bool empty() const { return bits_ == 0; }

 private:
  constexpr explicit SourceSet(uint32_t bits) : bits_(bits) {}
  uint32_t bits_ = 0;
};

// "all", "mmap,large", "-fork,-loader" (all but these). False with a text for unknown names.
bool parse_sources(const std::string& text, SourceSet* out, std::string* error);
std::string format_sources(SourceSet sources);

}  // namespace hydrant::stale
