// A model of atomic operations, which shares nothing with the library: one operation at a time, and integers
// by arithmetic that is wide enough.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <gasnet_fwd.h>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

// All operations; those of bits exist for integers only.
constexpr std::array<gex_OP_t, 25> kAllOperations = {
    GEX_OP_SET,  GEX_OP_GET,  GEX_OP_SWAP, GEX_OP_CAS,   GEX_OP_FCAS, GEX_OP_ADD,  GEX_OP_FADD,
    GEX_OP_SUB,  GEX_OP_FSUB, GEX_OP_MULT, GEX_OP_FMULT, GEX_OP_MIN,  GEX_OP_FMIN, GEX_OP_MAX,
    GEX_OP_FMAX, GEX_OP_INC,  GEX_OP_FINC, GEX_OP_DEC,   GEX_OP_FDEC, GEX_OP_AND,  GEX_OP_FAND,
    GEX_OP_OR,   GEX_OP_FOR,  GEX_OP_XOR,  GEX_OP_FXOR};
constexpr gex_OP_t kBitOperations =
    GEX_OP_AND | GEX_OP_FAND | GEX_OP_OR | GEX_OP_FOR | GEX_OP_XOR | GEX_OP_FXOR;
constexpr gex_OP_t kReturningOld =
    GEX_OP_GET | GEX_OP_SWAP | GEX_OP_FCAS | GEX_OP_FADD | GEX_OP_FSUB | GEX_OP_FMULT |
    GEX_OP_FMIN | GEX_OP_FMAX | GEX_OP_FINC | GEX_OP_FDEC | GEX_OP_FAND | GEX_OP_FOR | GEX_OP_FXOR;

template <typename T>
constexpr gex_DT_t kTypeOf = std::is_same_v<T, int32_t>    ? GEX_DT_I32
                             : std::is_same_v<T, uint32_t> ? GEX_DT_U32
                             : std::is_same_v<T, int64_t>  ? GEX_DT_I64
                             : std::is_same_v<T, uint64_t> ? GEX_DT_U64
                             : std::is_same_v<T, float>    ? GEX_DT_FLT
                                                           : GEX_DT_DBL;
template <typename T>
constexpr gex_OP_t operations_of() {
  gex_OP_t ops = 0;
  for (const gex_OP_t op : kAllOperations) {
    if (std::is_integral_v<T> || (op & kBitOperations) == 0) ops |= op;
  }
  return ops;
}

template <typename T>
bool are_same_bits(const T& a, const T& b) {
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}
// Equal, or both not a number: the sign of a computed NaN may be either.
template <typename T>
bool are_same(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a) && std::isnan(b)) return true;
  }
  return are_same_bits(a, b);
}

// Wide enough for products of 64 bits: their lower halves are right for signed numbers, too.
__extension__ typedef unsigned __int128 WideInteger;

// The value after the operation.
template <typename T>
T model_of(gex_OP_t op, T old, T operand1, T operand2) {
  using Wide = std::conditional_t<std::is_integral_v<T>, WideInteger, T>;
  const auto wide = [](auto value) { return static_cast<Wide>(value); };
  switch (op) {
    case GEX_OP_GET: return old;
    case GEX_OP_SET:
    case GEX_OP_SWAP: return operand1;
    case GEX_OP_CAS:
    case GEX_OP_FCAS: return are_same_bits(old, operand1) ? operand2 : old;
    case GEX_OP_ADD:
    case GEX_OP_FADD: return static_cast<T>(wide(old) + wide(operand1));
    case GEX_OP_SUB:
    case GEX_OP_FSUB: return static_cast<T>(wide(old) - wide(operand1));
    case GEX_OP_MULT:
    case GEX_OP_FMULT: return static_cast<T>(wide(old) * wide(operand1));
    case GEX_OP_MIN:
    case GEX_OP_FMIN: return old < operand1 ? old : operand1;
    case GEX_OP_MAX:
    case GEX_OP_FMAX: return old > operand1 ? old : operand1;
    case GEX_OP_INC:
    case GEX_OP_FINC: return static_cast<T>(wide(old) + 1);
    case GEX_OP_DEC:
    case GEX_OP_FDEC: return static_cast<T>(wide(old) - 1);
    default: break;
  }
  if constexpr (std::is_integral_v<T>) {
    if ((op & (GEX_OP_AND | GEX_OP_FAND)) != 0) return old & operand1;
    if ((op & (GEX_OP_OR | GEX_OP_FOR)) != 0) return old | operand1;
    if ((op & (GEX_OP_XOR | GEX_OP_FXOR)) != 0) return old ^ operand1;
  }
  return old;
}

// Values at which operations may go wrong.
template <typename T>
std::vector<T> edge_values() {
  using Limits = std::numeric_limits<T>;
  std::vector<T> values = {0, 1, 2, static_cast<T>(-1), 77, Limits::max(), Limits::lowest()};
  if constexpr (std::is_integral_v<T>) {
    values.push_back(static_cast<T>(Limits::max() - 1));
    values.push_back(static_cast<T>(Limits::max() / 2 + 1));
  } else {
    for (const T value : {-T{0}, T{0.5}, Limits::infinity(), -Limits::infinity(),
                          Limits::denorm_min(), Limits::epsilon(), Limits::quiet_NaN()})
      values.push_back(value);
  }
  return values;
}
template <typename T>
T random_value(std::mt19937_64& random) {
  static const std::vector<T> edges = edge_values<T>();
  if (random() % 2 == 0) return edges[random() % edges.size()];
  if constexpr (std::is_integral_v<T>) return static_cast<T>(random());
  return static_cast<T>(static_cast<int64_t>(random() >> 20) - (int64_t{1} << 43)) / 1024;
}
