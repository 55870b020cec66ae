// Texts to numbers, with what the callers need to complain: where the number ends.
#pragma once

#include <cstdint>

namespace hydrant {

struct ParsedInteger {
  int64_t value;
  const char* rest;  // what was not used: "" if all was; null if there was no text
};

// As hydrant_tools_parse_int() in <hydrant/gasnet/env.h>.
ParsedInteger parse_integer(const char* text, uint64_t default_unit_bytes) noexcept;

// A decimal number or a fraction of two, nothing else. False, and *value unchanged, otherwise.
bool parse_double(const char* text, double* value) noexcept;

}  // namespace hydrant
