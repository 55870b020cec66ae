// Adds up traced events. JobTrace (job_trace.cpp) feeds it while it drains the rings.
#include "am/trace/trace_statistics.hpp"

#include "am/trace/trace_mask.hpp"
#include "am/trace/trace_text.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>

namespace hydrant {

bool TraceStatistics::Row::is_of(const TraceRecord& record, char its_letter) const noexcept {
  return count != 0 && kind == record.kind && name == record.name &&
         path == (kind == TraceKind::kText ? nullptr : record.detail) &&
         category == record.category && lane == record.lane && letter == its_letter;
}

void TraceStatistics::Row::describe(char* text, size_t room) const noexcept {
  switch (kind) {
    case TraceKind::kCall:
      (void)std::snprintf(text, room, path != nullptr ? "%s by %s" : "%s",
                          static_cast<const char*>(name), path);
      break;
    case TraceKind::kTransfer:
      (void)std::snprintf(text, room, "%s by %s", lane == 0 ? "put" : "get", path);
      break;
    case TraceKind::kSend:
    case TraceKind::kRun:
      (void)std::snprintf(text, room, "%s %s, %s", kind == TraceKind::kSend ? "send" : "run",
                          lane == 0 ? "request" : "reply", trace_category_name(category));
      break;
    case TraceKind::kMiss: (void)std::snprintf(text, room, "miss"); break;
    default: (void)std::snprintf(text, room, "text"); break;
  }
}

TraceStatistics::Row* TraceStatistics::find(const TraceRecord& record, char letter) noexcept {
  const auto seed =
      reinterpret_cast<uintptr_t>(record.name) ^
      reinterpret_cast<uintptr_t>(record.kind == TraceKind::kText ? nullptr : record.detail) * 31;
  size_t place = (seed >> 3) + static_cast<size_t>(record.kind) * 67 + record.category * 13u +
                 record.lane * 7u + static_cast<size_t>(letter);
  for (size_t i = 0; i < kRows; ++i) {
    Row& row = rows_[(place + i) % kRows];
    if (row.is_of(record, letter)) return &row;
    if (row.count != 0) continue;
    row.name = record.name;
    row.path = record.kind == TraceKind::kText ? nullptr : record.detail;
    row.kind = record.kind;
    row.category = record.category;
    row.lane = record.lane;
    row.letter = letter;
    return &row;
  }
  return nullptr;
}

void TraceStatistics::add(const TraceRecord& record, char letter,
                          const TraceClock& clock) noexcept {
  Row* row = find(record, letter);
  if (row == nullptr) {
    ++others_;
    return;
  }
  const uint64_t times = record.kind == TraceKind::kCall && record.number > 1 ? record.number : 1;
  const uint64_t all_ns = record.end > record.start ? clock.ns_in(record.end - record.start) : 0;
  const uint64_t ns = all_ns / times;
  row->count += times;
  row->bytes += record.bytes;
  row->min_bytes = std::min(row->min_bytes, record.bytes);
  row->max_bytes = std::max(row->max_bytes, record.bytes);
  row->ns += all_ns;
  row->min_ns = std::min(row->min_ns, ns);
  row->max_ns = std::max(row->max_ns, ns);
}

void TraceStatistics::clear() noexcept {
  for (Row& row : rows_) row = Row{};
  others_ = 0;
}

void TraceStatistics::write(TraceFile& file) const noexcept {
  file.print("%-42s %10s %14s %10s %10s %10s %10s %10s", "events", "count", "bytes", "smallest",
             "largest", "ns, mean", "shortest", "longest");
  const Row* order[kRows];
  size_t used = 0;
  for (const Row& row : rows_) {
    if (row.count != 0) order[used++] = &row;
  }
  std::sort(order, order + used, [](const Row* a, const Row* b) {
    const char* first = std::strchr(kTraceLetters, a->letter);
    const char* second = std::strchr(kTraceLetters, b->letter);
    return first != second ? first < second : a->count > b->count;
  });
  for (size_t i = 0; i < used; ++i) {
    const Row& row = *order[i];
    char name[80];
    row.describe(name, sizeof name);
    file.print("(%c) %-38s %10" PRIu64 " %14" PRIu64 " %10" PRIu64 " %10" PRIu64 " %10" PRIu64
               " %10" PRIu64 " %10" PRIu64,
               row.letter, name, row.count, row.bytes, row.min_bytes, row.max_bytes,
               row.ns / row.count, row.min_ns, row.max_ns);
  }
  if (others_ != 0) file.print("%-42s %10" PRIu64, "others, of further kinds", others_);
}

}  // namespace hydrant
