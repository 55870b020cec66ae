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

// Parses a decimal number or a fraction of two, without trailing text. Otherwise returns false and
// leaves *value unchanged.
bool parse_double(const char* text, double* value) noexcept;

}  // namespace hydrant
