// Keeps one table of regions per set of rights, of region mode or of page mode. A miss looks here with and
// without the mutex, and enters its region here.
#include "firehose/cache/index/region_tables.hpp"

#include "firehose/cache/index/page_table.hpp"
#include "firehose/cache/index/region_table.hpp"

#include <new>

namespace hydrant {

bool RegionTables::make(uint32_t bucket_shift) noexcept {
  for (auto& table : tables_) {
    if (bucket_shift != 0) {
      table.reset(new (std::nothrow) PageTable(bucket_shift, store_.slots()));
    } else {
      table.reset(new (std::nothrow) RegionTable(store_.slots()));
    }
    if (table == nullptr) return false;
  }
  return true;
}

RegionIndex RegionTables::find(const CacheLock& lock, MemoryRange range,
                               Access need) const noexcept {
  const auto& infos = store_.infos(lock);
  uint32_t candidates = classes(lock) & kClassesIncluding[bits(need)];
  while (candidates != 0) {
    const RegionIndex r = tables_[take_lowest(&candidates)]->find(range.addr);
    if (r != kNoRegion && infos[r].range.covers(range)) return r;
  }
  return kNoRegion;
}

bool RegionTables::any_overlap(const CacheLock& lock, MemoryRange range) const noexcept {
  uint32_t used = classes(lock);
  while (used != 0) {
    if (tables_[take_lowest(&used)]->any_overlap(range.addr, range.last()) != kNoRegion)
      return true;
  }
  return false;
}

bool RegionTables::prepare(const CacheLock&, Access access) noexcept {
  PinTable& table = *tables_[bits(access)];
  return table.mapped() || table.map(store_.count());
}

bool RegionTables::insert(const CacheLock& lock, RegionIndex region) noexcept {
  const RegionInfo& info = store_.infos(lock)[region];
  if (!tables_[bits(info.access)]->insert(info.range, region)) return false;
  const uint32_t before = classes_.load(std::memory_order_relaxed);
  const uint32_t now = before | 1u << bits(info.access);
  if (now != before) classes_.store(now, std::memory_order_release);
  return true;
}

void RegionTables::erase(const CacheLock& lock, RegionIndex region) noexcept {
  const RegionInfo& info = store_.infos(lock)[region];
  tables_[bits(info.access)]->erase(info.range, region);
}

void RegionTables::reset_in_child(const CacheLock&) noexcept {
  for (auto& table : tables_) {
    if (table->mapped()) table->clear();
  }
  classes_.store(0, std::memory_order_relaxed);
}

uint64_t RegionTables::memory_bytes(const CacheLock&) const noexcept {
  uint64_t bytes = 0;
  for (const auto& table : tables_) {
    if (table->mapped()) bytes += table->memory_bytes();
  }
  return bytes;
}

}  // namespace hydrant
