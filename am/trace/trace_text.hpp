// The line of a record in GASNET_TRACEFILE (docs/tracing.md):
//
//   RANK(THREAD) SECONDS> [FILE:LINE] (LETTER) TEXT
//
// Written by hand, because snprintf() would take several times as long as the event.
#pragma once

#include "firehose/base/trace/tracer.hpp"
#include "rdma/bootstrap/bootstrap.hpp"

#include <cstddef>
#include <string_view>

namespace hydrant {

class TraceLine {
 public:
  // Long texts are cut; a client's text is cut at kTextBytes.
  static constexpr size_t kTextBytes = 8192;

  void add(std::string_view text) noexcept;
  void add_number(uint64_t number) noexcept;
  // At least `digits` of them.
  void add_padded(uint64_t number, uint32_t digits) noexcept;
  void add_hex(uint64_t number) noexcept;
  // With blanks for line breaks.
  void add_on_one_line(std::string_view text) noexcept;
  const char* text() const noexcept { return text_; }
  size_t bytes() const noexcept { return used_; }

 private:
  char text_[kTextBytes + 1024];
  size_t used_ = 0;
};

// Name of an Active Message's category.
const char* trace_category_name(uint8_t category) noexcept;

// `with_source`: the mask has N. `handler_name` may be null.
void format_trace(TraceLine& line, const TraceRecord& record, const TraceThread& thread,
                  const TraceClock& clock, Rank rank, char letter, bool with_source,
                  const char* handler_name) noexcept;

}  // namespace hydrant
