// Parsers and formatters for knob values and command lines; config.cpp and hydrant-run call them. Written by
// hand: strtod follows the locale, and from_chars of floating point rounds sizes that are exact integers.
#include "firehose/base/config/config_grammar.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

namespace hydrant {
namespace {

constexpr uint64_t kKibi = 1024;

struct Unit {
  std::string_view name;
  uint64_t scale;
};

constexpr std::array<Unit, 14> kSizeUnits = {{
    {"", 0},  // plain number: parse_with_units() uses the caller's scale
    {"B", 1},
    {"K", kKibi},
    {"KB", kKibi},
    {"KiB", kKibi},
    {"M", kKibi* kKibi},
    {"MB", kKibi* kKibi},
    {"MiB", kKibi* kKibi},
    {"G", kKibi* kKibi* kKibi},
    {"GB", kKibi* kKibi* kKibi},
    {"GiB", kKibi* kKibi* kKibi},
    {"T", kKibi* kKibi* kKibi* kKibi},
    {"TB", kKibi* kKibi* kKibi* kKibi},
    {"TiB", kKibi* kKibi* kKibi* kKibi},
}};

constexpr std::array<Unit, 7> kTimeUnits = {{
    {"", 1'000'000'000},
    {"ns", 1},
    {"us", 1'000},
    {"ms", 1'000'000},
    {"s", 1'000'000'000},
    {"m", 60'000'000'000},
    {"h", 3'600'000'000'000},
}};

constexpr bool is_blank(char c) noexcept { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
constexpr bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }
constexpr char lower(char c) noexcept {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

std::string_view trim(std::string_view text) noexcept {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

bool same(std::string_view a, std::string_view b) noexcept {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(),
                                            [](char x, char y) { return lower(x) == lower(y); });
}

int hex_digit(char c) noexcept {
  if (is_digit(c)) return c - '0';
  const char l = lower(c);
  return l >= 'a' && l <= 'f' ? l - 'a' + 10 : -1;
}

bool push_digit(uint64_t* value, uint64_t base, uint64_t digit) noexcept {
  uint64_t next = 0;
  if (__builtin_mul_overflow(*value, base, &next)) return false;
  return !__builtin_add_overflow(next, digit, value);
}

bool is_hex(std::string_view text) noexcept {
  return text.size() > 2 && text[0] == '0' && lower(text[1]) == 'x';
}

// Consumes the leading digits (hexadecimal after 0x). False if there are none or the value overflows.
bool take_whole(std::string_view* text, uint64_t* whole) noexcept {
  const bool hex = is_hex(*text);
  if (hex) text->remove_prefix(2);
  uint64_t value = 0;
  size_t n = 0;
  for (; n < text->size(); ++n) {
    const int digit = hex ? hex_digit((*text)[n]) : (is_digit((*text)[n]) ? (*text)[n] - '0' : -1);
    if (digit < 0) break;
    if (!push_digit(&value, hex ? 16 : 10, static_cast<uint64_t>(digit))) return false;
  }
  text->remove_prefix(n);
  *whole = value;
  return n > 0;
}

// Consumes ".digits", as millionths. False beyond six decimals: the largest unit times 999,999 still fits
// 64 bits.
bool take_millionths(std::string_view* text, uint64_t* millionths) noexcept {
  *millionths = 0;
  if (text->empty() || text->front() != '.') return true;
  text->remove_prefix(1);
  uint64_t weight = 100'000;
  size_t n = 0;
  for (; n < text->size() && is_digit((*text)[n]); ++n) {
    if (weight == 0 && (*text)[n] != '0') return false;
    *millionths += weight * static_cast<uint64_t>((*text)[n] - '0');
    weight /= 10;
  }
  text->remove_prefix(n);
  return n > 0;
}

bool parse_with_units(std::string_view text, const Unit* units, size_t n, uint64_t plain_scale,
                      uint64_t* value) noexcept {
  text = trim(text);
  const bool hex = is_hex(text);
  uint64_t whole = 0;
  uint64_t millionths = 0;
  if (!take_whole(&text, &whole)) return false;
  if (!hex && !take_millionths(&text, &millionths)) return false;
  text = trim(text);
  const Unit* unit =
      std::find_if(units, units + n, [&](const Unit& u) { return same(u.name, text); });
  if (unit == units + n) return false;
  const uint64_t scale = unit->name.empty() ? plain_scale : unit->scale;
  if (millionths * scale % 1'000'000 != 0) return false;  // a fraction of a byte or nanosecond
  uint64_t sum = 0;
  if (__builtin_mul_overflow(whole, scale, &sum)) return false;
  if (__builtin_add_overflow(sum, millionths * scale / 1'000'000, &sum)) return false;
  *value = sum;
  return true;
}

const char* format_with_units(uint64_t value, const Unit* units, size_t n, char* text,
                              size_t room) noexcept {
  const Unit* best = nullptr;
  for (size_t i = 0; i < n; ++i) {
    const Unit& unit = units[i];
    if (unit.name.empty() || value == 0 || value % unit.scale != 0) continue;
    if (best == nullptr || unit.scale > best->scale) best = &unit;
  }
  const uint64_t scale = best != nullptr ? best->scale : 1;
  const auto unit_name = best != nullptr ? best->name : std::string_view();
  std::snprintf(text, room, "%llu%.*s", static_cast<unsigned long long>(value / scale),
                static_cast<int>(unit_name.size()), unit_name.data());
  return text;
}

}  // namespace

bool parse_count(std::string_view text, uint64_t* value) noexcept {
  text = trim(text);
  uint64_t whole = 0;
  if (!take_whole(&text, &whole) || !text.empty()) return false;
  *value = whole;
  return true;
}

bool parse_size(std::string_view text, uint64_t plain_scale, uint64_t* bytes) noexcept {
  return parse_with_units(text, kSizeUnits.data(), kSizeUnits.size(), plain_scale, bytes);
}

bool parse_duration(std::string_view text, uint64_t* ns) noexcept {
  return parse_with_units(text, kTimeUnits.data(), kTimeUnits.size(), 1'000'000'000, ns);
}

bool parse_duration_or_never(std::string_view text, uint64_t* ns) noexcept {
  if (!same(trim(text), "never")) return parse_duration(text, ns);
  *ns = 0;
  return true;
}

bool parse_boolean(std::string_view text, uint64_t* value) noexcept {
  uint64_t index = 0;
  if (!parse_choice(text, "n|no|false|off|0|y|yes|true|on|1", &index)) return false;
  *value = index >= 5 ? 1 : 0;
  return true;
}

std::string_view choice_at(std::string_view choices, uint64_t index) noexcept {
  for (; index > 0; --index) {
    const size_t bar = choices.find('|');
    if (bar == std::string_view::npos) return {};
    choices.remove_prefix(bar + 1);
  }
  return choices.substr(0, choices.find('|'));
}

uint64_t choice_count(std::string_view choices) noexcept {
  if (choices.empty()) return 0;
  return 1 + static_cast<uint64_t>(std::count(choices.begin(), choices.end(), '|'));
}

bool parse_choice(std::string_view text, std::string_view choices, uint64_t* index) noexcept {
  text = trim(text);
  if (text.empty()) return false;
  for (uint64_t i = 0; i < choice_count(choices); ++i) {
    if (!same(text, choice_at(choices, i))) continue;
    *index = i;
    return true;
  }
  return false;
}

bool parse_set(std::string_view text, std::string_view choices, uint64_t* bits) noexcept {
  text = trim(text);
  if (same(text, "none")) {
    *bits = 0;
    return true;
  }
  if (same(text, "all")) {
    *bits = (uint64_t{1} << choice_count(choices)) - 1;
    return true;
  }
  uint64_t set = 0;
  for (bool more = true; more;) {
    const size_t comma = text.find(',');
    uint64_t index = 0;
    if (!parse_choice(text.substr(0, comma), choices, &index)) return false;
    set |= uint64_t{1} << index;
    more = comma != std::string_view::npos;
    if (more) text.remove_prefix(comma + 1);
  }
  *bits = set;
  return true;
}

const char* format_size(uint64_t bytes, char* text, size_t room) noexcept {
  // Uses a single name per unit, and no "B": a plain number already means bytes.
  constexpr std::array<Unit, 4> kShort = {
      {kSizeUnits[2], kSizeUnits[5], kSizeUnits[8], kSizeUnits[11]}};
  return format_with_units(bytes, kShort.data(), kShort.size(), text, room);
}

const char* format_duration(uint64_t ns, char* text, size_t room) noexcept {
  return format_with_units(ns, kTimeUnits.data(), kTimeUnits.size(), text, room);
}

const char* format_set(uint64_t bits, std::string_view choices, char* text, size_t room) noexcept {
  std::snprintf(text, room, "%s", bits == 0 ? "none" : "");
  size_t used = 0;
  for (uint64_t i = 0; i < choice_count(choices) && used < room; ++i) {
    if (((bits >> i) & 1) == 0) continue;
    const auto name = choice_at(choices, i);
    const int more = std::snprintf(text + used, room - used, "%s%.*s", used > 0 ? "," : "",
                                   static_cast<int>(name.size()), name.data());
    used += more > 0 ? static_cast<size_t>(more) : 0;
  }
  return text;
}

const char* format_size_rounded(uint64_t bytes, char* text, size_t room) noexcept {
  if (bytes == UINT64_MAX) {
    std::snprintf(text, room, "unlimited");
    return text;
  }
  constexpr std::array<const char*, 7> kNames = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  size_t unit = 0;
  while (unit + 1 < kNames.size() && bytes >> (10 * unit) >= kKibi) ++unit;
  const auto whole = static_cast<unsigned long long>(bytes >> (10 * unit));
  // The remainder below the unit, in 1024ths and then in tenths; truncated, not rounded.
  const uint64_t rest = unit == 0 ? 0 : (bytes >> (10 * (unit - 1))) & (kKibi - 1);
  const auto tenths = static_cast<unsigned long long>(rest * 10 / kKibi);
  if (whole >= 100 || tenths == 0) {
    std::snprintf(text, room, "%llu %s", whole, kNames[unit]);
  } else {
    std::snprintf(text, room, "%llu.%llu %s", whole, tenths, kNames[unit]);
  }
  return text;
}

size_t edit_distance(std::string_view a, std::string_view b) noexcept {
  constexpr size_t kMax = 63;
  a = a.substr(0, kMax);
  b = b.substr(0, kMax);
  // Rows i-2, i-1 and i of the optimal-string-alignment table.
  std::array<std::array<size_t, kMax + 1>, 3> rows{};
  for (size_t j = 0; j <= b.size(); ++j) rows[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    auto& row = rows[i % 3];
    const auto& above = rows[(i + 2) % 3];
    const auto& two_above = rows[(i + 1) % 3];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t differs = lower(a[i - 1]) == lower(b[j - 1]) ? 0 : 1;
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + differs});
      if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) &&
          lower(a[i - 2]) == lower(b[j - 1])) {
        row[j] = std::min(row[j], two_above[j - 2] + 1);
      }
    }
  }
  return rows[a.size() % 3][b.size()];
}

}  // namespace hydrant
