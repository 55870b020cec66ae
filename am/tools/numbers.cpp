// Parses and formats numbers with units. Called by environment.cpp, tsc_rate.cpp and clients.
#include "am/tools/numbers.hpp"

#include <hydrant/gasnet/debugging.h>
#include <hydrant/gasnet/env.h>

#include <charconv>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <strings.h>
#include <system_error>

namespace hydrant {
namespace {

constexpr int64_t kHexadecimalFrom = int64_t{1} << 50;

// No <cctype>, because the locale must not change the meaning of a setting.
constexpr bool is_blank(char c) noexcept { return c == ' ' || (c >= '\t' && c <= '\r'); }
constexpr bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }
constexpr char upper(char c) noexcept {
  return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
}
constexpr int digit_value(char c) noexcept {
  if (is_digit(c)) return c - '0';
  const char u = upper(c);
  return u >= 'A' && u <= 'F' ? u - 'A' + 10 : 99;
}

const char* skip_blanks(const char* p) noexcept {
  while (is_blank(*p)) ++p;
  return p;
}

// Bytes of a unit's letter, or 0 if it is no unit.
constexpr uint64_t unit_bytes(char letter) noexcept {
  switch (upper(letter)) {
    case 'B': return 1;
    case 'K': return uint64_t{1} << 10;
    case 'M': return uint64_t{1} << 20;
    case 'G': return uint64_t{1} << 30;
    case 'T': return uint64_t{1} << 40;
    default: return 0;
  }
}

// Moves *p behind "K", "KB", "KiB" or "B" and returns the unit's bytes. Without a unit returns 0 and
// leaves *p unchanged.
uint64_t take_unit(const char** p) noexcept {
  const uint64_t bytes = unit_bytes(**p);
  if (bytes == 0) return 0;
  ++*p;
  if (bytes == 1) return bytes;
  if (upper((*p)[0]) == 'I' && upper((*p)[1]) == 'B')
    *p += 2;
  else if (upper((*p)[0]) == 'B')
    *p += 1;
  return bytes;
}

int64_t saturated(double value) noexcept {
  constexpr double kLimit = 9223372036854775808.0;  // 2^63
  if (value >= kLimit) return INT64_MAX;
  return static_cast<int64_t>(value);
}

// Hexadecimal texts are bit patterns: excess high digits are dropped, and the top bit is the sign.
ParsedInteger parse_hexadecimal(const char* p, bool is_negative, uint64_t unit,
                                bool has_units) noexcept {
  uint64_t bits = 0;
  while (digit_value(*p) < 16) bits = bits * 16 + static_cast<uint64_t>(digit_value(*p++));
  // In "0x1B" B is a digit, not a unit. "0x1 KB" and "0x1K" have a unit.
  const char* rest = skip_blanks(p);
  if (has_units) {
    if (const uint64_t named = take_unit(&rest); named != 0) unit = named;
  }
  bits *= unit;
  return {static_cast<int64_t>(is_negative ? 0 - bits : bits), skip_blanks(rest)};
}

ParsedInteger parse_decimal(const char* p, bool is_negative, uint64_t unit,
                            bool has_units) noexcept {
  uint64_t whole = 0;
  bool overflows = false;
  for (; is_digit(*p); ++p) {
    overflows |= __builtin_mul_overflow(whole, uint64_t{10}, &whole);
    overflows |= __builtin_add_overflow(whole, static_cast<uint64_t>(*p - '0'), &whole);
  }
  double fraction = 0;
  if (*p == '.') {
    ++p;
    for (double place = 0.1; is_digit(*p); ++p, place /= 10) fraction += place * (*p - '0');
  }
  const char* rest = skip_blanks(p);
  if (has_units) {
    if (const uint64_t named = take_unit(&rest); named != 0) unit = named;
  }
  uint64_t product = 0;
  overflows |= __builtin_mul_overflow(whole, unit, &product);
  const auto part = static_cast<uint64_t>(saturated(fraction * static_cast<double>(unit)));
  overflows |= __builtin_add_overflow(product, part, &product);
  if (overflows || product > static_cast<uint64_t>(INT64_MAX)) product = INT64_MAX;
  const auto value = static_cast<int64_t>(product);
  return {is_negative ? -value : value, skip_blanks(rest)};
}

// Formats `magnitude` in the largest unit that divides it or fits at least 10 times.
int show_in(uint64_t magnitude, char* buf, size_t bufsz, const char* sign) noexcept {
  for (const char letter : {'T', 'G', 'M', 'K'}) {
    const uint64_t unit = unit_bytes(letter);
    if (magnitude >= 10 * unit || (magnitude >= unit && magnitude % unit == 0)) {
      // NOLINTNEXTLINE(clang-analyzer-core.DivideZero): these letters are units
      return std::snprintf(buf, bufsz, "%s%" PRIu64 " %cB", sign, magnitude / unit, letter);
    }
  }
  return std::snprintf(buf, bufsz, "%s%" PRIu64 " B", sign, magnitude);
}

}  // namespace

ParsedInteger parse_integer(const char* text, uint64_t default_unit_bytes) noexcept {
  if (text == nullptr) return {0, nullptr};
  const bool has_units = default_unit_bytes != 0;
  const uint64_t unit = has_units ? default_unit_bytes : 1;
  const char* p = skip_blanks(text);
  const bool is_negative = *p == '-';
  if (*p == '+' || *p == '-') p = skip_blanks(p + 1);
  if (p[0] == '0' && upper(p[1]) == 'X' && digit_value(p[2]) < 16) {
    return parse_hexadecimal(p + 2, is_negative, unit, has_units);
  }
  if (!is_digit(*p) && !(*p == '.' && is_digit(p[1]))) return {0, p};
  return parse_decimal(p, is_negative, unit, has_units);
}

// std::from_chars() knows no plus sign, and takes "inf" and "nan".
const char* take_double(const char* text, double* value) noexcept {
  const char* p = skip_blanks(text);
  if (*p == '+' && p[1] != '-') ++p;
  const char* const digits = *p == '-' ? p + 1 : p;
  if (!is_digit(*digits) && !(*digits == '.' && is_digit(digits[1]))) return nullptr;
  double number = 0;
  const auto [end, error] = std::from_chars(p, p + std::strlen(p), number);
  if (error != std::errc{}) return nullptr;
  *value = number;
  return end;
}

int parse_yes_no(const char* text) noexcept {
  for (const char* yes : {"y", "yes", "1"}) {
    if (strcasecmp(text, yes) == 0) return 1;
  }
  for (const char* no : {"n", "no", "0"}) {
    if (strcasecmp(text, no) == 0) return 0;
  }
  return -1;
}

int parse_switch(const char* text) noexcept {
  for (const char* on : {"true", "on"}) {
    if (strcasecmp(text, on) == 0) return 1;
  }
  for (const char* off : {"false", "off"}) {
    if (strcasecmp(text, off) == 0) return 0;
  }
  return parse_yes_no(text);
}

bool parse_double(const char* text, double* value) noexcept {
  if (text == nullptr) return false;
  double result = 0;
  const char* rest = take_double(text, &result);
  if (rest == nullptr) return false;
  rest = skip_blanks(rest);
  if (*rest == '/') {
    double bottom = 0;
    rest = take_double(rest + 1, &bottom);
    if (rest == nullptr || !(std::fabs(bottom) > 0)) return false;
    result /= bottom;
    rest = skip_blanks(rest);
  }
  if (*rest != '\0' || !std::isfinite(result)) return false;
  *value = result;
  return true;
}

}  // namespace hydrant

char* hydrant_tools_format_number(int64_t val, char* buf, size_t bufsz, int is_mem_size) {
  const char* const sign = val < 0 ? "-" : "";
  const auto bits = static_cast<uint64_t>(val);
  const uint64_t magnitude = val < 0 ? 0 - bits : bits;
  if (magnitude >= static_cast<uint64_t>(hydrant::kHexadecimalFrom)) {
    std::snprintf(buf, bufsz, "0x%" PRIx64, bits);
  } else if (is_mem_size) {
    hydrant::show_in(magnitude, buf, bufsz, sign);
  } else {
    std::snprintf(buf, bufsz, "%s%" PRIu64, sign, magnitude);
  }
  return buf;
}

int64_t hydrant_tools_parse_int(const char* str, uint64_t mem_size_multiplier) {
  return hydrant::parse_integer(str, mem_size_multiplier).value;
}
