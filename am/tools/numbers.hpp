// Conversion of texts to numbers. The result includes the end of the number, for error messages.
#pragma once

#include <cstdint>

namespace hydrant {

struct ParsedInteger {
  int64_t value;
  const char* rest;  // unparsed text: "" if all was used; null if the text was null
};

// As hydrant_tools_parse_int() in <hydrant/gasnet/env.h>.
ParsedInteger parse_integer(const char* text, uint64_t default_unit_bytes) noexcept;

// The decimal number at the start of `text`, after blanks: digits with a point and an exponent, in any
// locale. No infinity, no NaN, not hexadecimal, and not beyond the range of double. Returns what follows it;
// null and *value unchanged if there is none.
const char* take_double(const char* text, double* value) noexcept;

// Parses such a number or a fraction of two, without trailing text. Otherwise, or if the fraction is not
// finite, returns false and leaves *value unchanged.
bool parse_double(const char* text, double* value) noexcept;

// 1 for y, yes and 1, 0 for n, no and 0, in either case; else -1.
int parse_yes_no(const char* text) noexcept;
// The same with true and on, false and off: as parse_boolean() of firehose/base/config, which the library of
// the tools does not contain.
int parse_switch(const char* text) noexcept;

}  // namespace hydrant
