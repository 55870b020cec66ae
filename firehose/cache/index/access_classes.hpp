// Sets of access rights as numbers from 0 to 15, and sets of those as bits.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace hydrant {

// Bit c is set for each set of rights c that includes `need`.
constexpr uint32_t classes_including(uint32_t need) {
  uint32_t classes = 0;
  for (uint32_t c = 0; c < 16; ++c) classes |= ((c & need) == need ? 1u : 0u) << c;
  return classes;
}
inline constexpr auto kClassesIncluding = [] {
  std::array<uint32_t, 16> table{};
  for (uint32_t need = 0; need < 16; ++need) table[need] = classes_including(need);
  return table;
}();

// Requires: *classes is not 0.
inline uint32_t take_lowest(uint32_t* classes) {
  const auto c = static_cast<uint32_t>(std::countr_zero(*classes));
  *classes &= *classes - 1;
  return c;
}

}  // namespace hydrant
