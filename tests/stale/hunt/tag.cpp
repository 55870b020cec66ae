// Writes, reads and describes the tags that identify lives of memory.
#include "tests/stale/hunt/tag.hpp"

#include "tests/stale/hunt/random.hpp"

#include <cinttypes>
#include <cstdio>
#include <cstring>

namespace hydrant::stale {
namespace {

// A compiler barrier: the kernel also reads and writes this memory.
void memory_may_have_changed() { asm volatile("" ::: "memory"); }

}  // namespace

uint64_t magic_of(uint64_t seed) { return mix(seed ^ 0x7374616c65746167u) | 1; }

void write_tag(uintptr_t addr, const Tag& tag) {
  std::memcpy(reinterpret_cast<void*>(addr), &tag, sizeof tag);
  memory_may_have_changed();
}

Tag read_tag(uintptr_t addr) {
  memory_may_have_changed();
  Tag tag;
  std::memcpy(&tag, reinterpret_cast<const void*>(addr), sizeof tag);
  return tag;
}

std::string describe_tag(const Tag& tag, uint64_t magic) {
  char text[160];
  if (tag.magic == magic) {
    std::snprintf(text, sizeof text,
                  "the tag of life %" PRIu64 " at %#" PRIxPTR " (check %" PRIx64 ")", tag.life,
                  tag.addr, tag.check);
  } else if (tag == Tag{}) {
    std::snprintf(text, sizeof text, "zeros");
  } else {
    std::snprintf(text, sizeof text,
                  "no tag: %016" PRIx64 " %016" PRIxPTR " %016" PRIx64 " %016" PRIx64, tag.magic,
                  tag.addr, tag.life, tag.check);
  }
  return text;
}

}  // namespace hydrant::stale
