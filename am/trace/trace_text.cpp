// Formats records of a trace as lines. JobTrace (job_trace.cpp) calls format_trace() while it drains the
// rings.
#include "am/trace/trace_text.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>

namespace hydrant {
namespace {

constexpr const char* kCategories[] = {"Short", "Medium", "Long"};

void add_duration(TraceLine& line, const TraceRecord& record, const TraceClock& clock) noexcept {
  line.add(", ");
  line.add_number(record.end > record.start ? clock.ns_in(record.end - record.start) : 0);
  line.add(" ns");
}

void add_transfer(TraceLine& line, bool is_get, const char* path, uint64_t bytes,
                  uint32_t peer) noexcept {
  line.add_number(bytes);
  line.add(is_get ? " bytes from rank " : " bytes to rank ");
  line.add_number(peer);
  line.add(" by ");
  line.add(path);
}

void add_message(TraceLine& line, const TraceRecord& record, const char* handler_name) noexcept {
  const bool is_send = record.kind == TraceKind::kSend;
  line.add(is_send ? "send " : "run ");
  line.add(record.lane == 0 ? "request" : "reply");
  if (record.number != UINT64_MAX) {
    line.add(" ");
    line.add_number(record.number);
  }
  line.add(is_send ? " to rank " : " from rank ");
  line.add_number(record.peer);
  line.add(": ");
  line.add(trace_category_name(record.category));
  line.add(", handler ");
  line.add_number(record.handler);
  if (handler_name != nullptr) {
    line.add(" (");
    line.add_on_one_line(handler_name);
    line.add(")");
  }
  line.add(", ");
  line.add_number(record.arguments);
  line.add(" arguments");
  if (record.category != 0) {
    line.add(", ");
    line.add_number(record.bytes);
    line.add(" bytes");
  }
}

}  // namespace

void TraceLine::add(std::string_view text) noexcept {
  const size_t bytes = std::min(text.size(), sizeof text_ - used_);
  std::memcpy(text_ + used_, text.data(), bytes);
  used_ += bytes;
}

void TraceLine::add_number(uint64_t number) noexcept {
  const auto result = std::to_chars(text_ + used_, text_ + sizeof text_, number);
  if (result.ec == std::errc{}) used_ = static_cast<size_t>(result.ptr - text_);
}

void TraceLine::add_padded(uint64_t number, uint32_t digits) noexcept {
  char text[24];
  const auto result = std::to_chars(text, text + sizeof text, number);
  const auto bytes = static_cast<size_t>(result.ptr - text);
  for (size_t i = bytes; i < digits; ++i) add("0");
  add({text, bytes});
}

void TraceLine::add_hex(uint64_t number) noexcept {
  char text[20];
  const auto result = std::to_chars(text, text + sizeof text, number, 16);
  add("0x");
  add({text, static_cast<size_t>(result.ptr - text)});
}

void TraceLine::add_on_one_line(std::string_view text) noexcept {
  while (text.ends_with('\n') || text.ends_with('\r')) text.remove_suffix(1);
  const size_t first = used_;
  add(text.substr(0, kTextBytes));
  std::replace_if(
      text_ + first, text_ + used_, [](char c) { return c == '\n' || c == '\r'; }, ' ');
}

const char* trace_category_name(uint8_t category) noexcept {
  return category < std::size(kCategories) ? kCategories[category] : "message";
}

void format_trace(TraceLine& line, const TraceRecord& record, const TraceThread& thread,
                  const TraceClock& clock, Rank rank, char letter, bool with_source,
                  const char* handler_name) noexcept {
  constexpr uint64_t kSecond = 1'000'000'000;
  const uint64_t ns = clock.ns_of(record.start);
  line.add_number(rank);
  line.add("(");
  line.add_number(thread.number);
  line.add(") ");
  line.add_number(ns / kSecond);
  line.add(".");
  line.add_padded(ns % kSecond, 9);
  line.add("> ");
  if (with_source && thread.drained_file != nullptr) {
    line.add("[");
    line.add_on_one_line(thread.drained_file);
    line.add(":");
    line.add_number(thread.drained_line);
    line.add("] ");
  }
  line.add("(");
  line.add({&letter, 1});
  line.add(") ");
  switch (record.kind) {
    case TraceKind::kCall:
      line.add(record.name);
      if (record.number > 1) {
        line.add(", ");
        line.add_number(record.number);
        line.add(" times");
      }
      if (record.detail != nullptr) {
        line.add(": ");
        add_transfer(line, letter == 'G', record.detail, record.bytes, record.peer);
      }
      add_duration(line, record, clock);
      break;
    case TraceKind::kTransfer:
      line.add(record.lane == 0 ? "put: " : "get: ");
      add_transfer(line, record.lane != 0, record.detail, record.bytes, record.peer);
      break;
    case TraceKind::kSend:
    case TraceKind::kRun:
      add_message(line, record, handler_name);
      add_duration(line, record, clock);
      break;
    case TraceKind::kMiss:
      line.add("miss: ");
      line.add_number(record.bytes);
      line.add(" bytes at ");
      line.add_hex(record.number);
      if (record.is_failed) line.add(" not pinned");
      add_duration(line, record, clock);
      break;
    case TraceKind::kText: line.add_on_one_line(record.detail); break;
    case TraceKind::kSourceLine: break;
  }
}

}  // namespace hydrant
