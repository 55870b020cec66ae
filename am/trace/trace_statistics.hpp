// Counts, sizes and times of events by what they were, for GASNET_STATSFILE.
//
// Threads: one at a time.
#pragma once

#include "am/trace/trace_file.hpp"
#include "firehose/base/trace/tracer.hpp"

#include <cstddef>
#include <cstdint>

namespace hydrant {

class TraceStatistics {
 public:
  void add(const TraceRecord& record, char letter, const TraceClock& clock) noexcept;
  void clear() noexcept;
  // Writes a row for each kind of event, ordered by letter, most frequent first.
  void write(TraceFile& file) const noexcept;

 private:
  struct Row {
    // Properties that the events share; the pointers are to constant texts.
    const void* name = nullptr;
    const char* path = nullptr;
    TraceKind kind = TraceKind::kCall;
    uint8_t category = 0;
    uint8_t lane = 0;
    char letter = 0;
    uint64_t count = 0;
    uint64_t bytes = 0;
    uint64_t min_bytes = UINT64_MAX;
    uint64_t max_bytes = 0;
    uint64_t ns = 0;
    uint64_t min_ns = UINT64_MAX;
    uint64_t max_ns = 0;

    bool is_of(const TraceRecord& record, char its_letter) const noexcept;
    void describe(char* text, size_t room) const noexcept;
  };
  static constexpr size_t kRows = 512;

  Row* find(const TraceRecord& record, char letter) noexcept;

  Row rows_[kRows];
  uint64_t others_ = 0;  // events without a row
};

}  // namespace hydrant
