// The grammars of knobs and command lines: sizes, counts, durations, booleans, choices and sets. Pure
// functions, independent of the locale; config.hpp adds variables, ranges and messages.
//
// Every parser returns false for text outside its grammar or values beyond 64 bits, and then leaves *value
// unchanged. Surrounding blanks and case are ignored; "+" and "-" are not accepted.
// Threads: any. No allocation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace hydrant {

// Digits, or 0x and hexadecimal digits. No fraction, no sign, and 010 is ten.
bool parse_count(std::string_view text, uint64_t* value) noexcept;

// Bytes: a decimal number, optionally with a fraction (six decimals) that makes whole bytes, and a unit:
// B, K, M, G, T, also written KB or KiB; K = 1024 in all three. Without a unit the number is in
// units of `plain_scale` bytes (at most 1 TiB). A whole number may be hexadecimal: 0x10000, 0x40K.
bool parse_size(std::string_view text, uint64_t plain_scale, uint64_t* bytes) noexcept;

// Nanoseconds: a decimal number and one of ns, us, ms, s, m, h; without a unit, seconds.
bool parse_duration(std::string_view text, uint64_t* ns) noexcept;
// The same, and "never", which is 0.
bool parse_duration_or_never(std::string_view text, uint64_t* ns) noexcept;

// y, yes, true, on, 1 or n, no, false, off, 0.
bool parse_boolean(std::string_view text, uint64_t* value) noexcept;

// The index of `text` in "first|second|third".
bool parse_choice(std::string_view text, std::string_view choices, uint64_t* index) noexcept;

// Bit i for each choice i named in a list with commas; "none" and "all" stand alone.
bool parse_set(std::string_view text, std::string_view choices, uint64_t* bits) noexcept;

// Choice `index` of "first|second|third"; empty past the end.
std::string_view choice_at(std::string_view choices, uint64_t index) noexcept;
uint64_t choice_count(std::string_view choices) noexcept;

// The shortest exact form that the parser of the same name reads back ("64M", "1000", "250ms"). Always
// terminated when room > 0; 24 bytes are enough. Returns `text`.
const char* format_size(uint64_t bytes, char* text, size_t room) noexcept;
const char* format_duration(uint64_t ns, char* text, size_t room) noexcept;
// Needs room for all names of `choices`.
const char* format_set(uint64_t bits, std::string_view choices, char* text, size_t room) noexcept;

// For display, about three digits: "7.7 GiB", "64 KiB", "12 B"; "unlimited" for UINT64_MAX.
const char* format_size_rounded(uint64_t bytes, char* text, size_t room) noexcept;

// Insertions, deletions, replacements and swaps of neighbours that turn one text into the other. Ignores
// case; compares at most 63 characters.
size_t edit_distance(std::string_view a, std::string_view b) noexcept;

}  // namespace hydrant
