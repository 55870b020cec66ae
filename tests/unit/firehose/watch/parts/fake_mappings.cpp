// Replaces the queries of the kernel by a list of mappings.
#include "tests/unit/firehose/watch/parts/fake_mappings.hpp"

#include <algorithm>

namespace hydrant {

using testing::fake_mappings;

namespace testing {

FakeMappings& fake_mappings() {
  static FakeMappings fake;
  return fake;
}

}  // namespace testing

bool MappingQuery::open() noexcept { return true; }
void MappingQuery::close() noexcept {}

bool MappingQuery::find(uintptr_t addr, Mapping* out) const noexcept {
  if (fake_mappings().looked_up) fake_mappings().looked_up();
  for (const Mapping& each : fake_mappings().all) {
    if (each.range.addr > addr || addr > each.range.last()) continue;
    *out = each;
    return true;
  }
  return false;
}

bool for_each_mapped(MemoryRange within, MappedRun each, void* context) noexcept {
  MemoryRange run{};
  for (const Mapping& mapping : fake_mappings().all) {
    if (!mapping.range.overlaps(within)) continue;
    const uintptr_t first = std::max(mapping.range.addr, within.addr);
    const uintptr_t end = std::min(mapping.range.end(), within.end());
    if (run.len != 0 && run.end() == first) {
      run.len += end - first;
      continue;
    }
    if (run.len != 0) each(context, run);
    run = {first, end - first};
  }
  if (run.len != 0) each(context, run);
  return true;
}

}  // namespace hydrant
