// GASNet's kinds of events, a letter each (GASNET_TRACEMASK, GASNET_STATSMASK).
#pragma once

#include "firehose/base/trace/trace_record.hpp"

#include <cstddef>
#include <cstdint>

namespace hydrant {

// G gets, P puts, R atomics, S waits, W collectives, B barriers, L locks, A messages, X polls, I information,
// O objects, C the library's own, D data, N source lines, H the client's texts, U texts that are never left
// out.
inline constexpr char kTraceLetters[] = "GPRSWBLAXIOCDNHU";

class TraceMask {
 public:
  // All letters.
  constexpr TraceMask() noexcept = default;
  // Letters, in either case; after '^' all others. U is always in. Returns false if there are other
  // characters, which count for nothing.
  bool parse(const char* text) noexcept;
  bool has(char letter) const noexcept { return (bits_ >> (letter - 'A') & 1) != 0; }
  // The letters in the order above, terminated; returns `text`.
  const char* format(char (&text)[sizeof kTraceLetters]) const noexcept;

 private:
  static constexpr uint32_t bit(char letter) noexcept { return 1u << (letter - 'A'); }
  uint32_t bits_ = UINT32_MAX;
};

// The letter of a public call, by its name: 'P' for gex_RMA_PutNB. 'O' for names that are in no group.
char letter_of_call(const char* name) noexcept;
char letter_of(const TraceRecord& record) noexcept;

}  // namespace hydrant
