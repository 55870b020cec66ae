// Implements the operations of reductions. operation.cpp calls combine() in its steps;
// collective_calls.cpp finds the operation of a call.
#include "extended/collective/reduction.hpp"

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace hydrant {
namespace {

// Integers wrap around, also signed ones.
template <typename T>
struct Add {
  static T apply(T a, T b) noexcept {
    if constexpr (std::is_integral_v<T>) {
      using U = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
    } else {
      return a + b;
    }
  }
};
template <typename T>
struct Multiply {
  static T apply(T a, T b) noexcept {
    if constexpr (std::is_integral_v<T>) {
      using U = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<U>(a) * static_cast<U>(b));
    } else {
      return a * b;
    }
  }
};
template <typename T>
struct Minimum {
  static T apply(T a, T b) noexcept { return b < a ? b : a; }
};
template <typename T>
struct Maximum {
  static T apply(T a, T b) noexcept { return a < b ? b : a; }
};
template <typename T>
struct And {
  static T apply(T a, T b) noexcept { return a & b; }
};
template <typename T>
struct Or {
  static T apply(T a, T b) noexcept { return a | b; }
};
template <typename T>
struct Xor {
  static T apply(T a, T b) noexcept { return a ^ b; }
};

// Clients' vectors have any alignment.
template <typename T, template <typename> class Op>
void combine_all(const void* left, const void* right, void* out, size_t count) noexcept {
  const auto* a = static_cast<const std::byte*>(left);
  const auto* b = static_cast<const std::byte*>(right);
  auto* c = static_cast<std::byte*>(out);
  for (size_t i = 0; i < count; ++i) {
    T x;
    T y;
    std::memcpy(&x, a + i * sizeof(T), sizeof(T));
    std::memcpy(&y, b + i * sizeof(T), sizeof(T));
    const T result = Op<T>::apply(x, y);
    std::memcpy(c + i * sizeof(T), &result, sizeof(T));
  }
}

template <typename T>
Reduction::Function function_of(gex_OP_t op) noexcept {
  switch (op) {
    case GEX_OP_ADD: return combine_all<T, Add>;
    case GEX_OP_MULT: return combine_all<T, Multiply>;
    case GEX_OP_MIN: return combine_all<T, Minimum>;
    case GEX_OP_MAX: return combine_all<T, Maximum>;
    default: break;
  }
  if constexpr (std::is_integral_v<T>) {
    switch (op) {
      case GEX_OP_AND: return combine_all<T, And>;
      case GEX_OP_OR: return combine_all<T, Or>;
      case GEX_OP_XOR: return combine_all<T, Xor>;
      default: break;
    }
  }
  return nullptr;
}

struct Type {
  size_t unit = 0;  // 0: unknown
  Reduction::Function function = nullptr;
};
Type find_type(gex_DT_t type, gex_OP_t op) noexcept {
  switch (type) {
    case GEX_DT_I32: return {4, function_of<int32_t>(op)};
    case GEX_DT_U32: return {4, function_of<uint32_t>(op)};
    case GEX_DT_I64: return {8, function_of<int64_t>(op)};
    case GEX_DT_U64: return {8, function_of<uint64_t>(op)};
    case GEX_DT_FLT: return {4, function_of<float>(op)};
    case GEX_DT_DBL: return {8, function_of<double>(op)};
    default: return {};
  }
}

}  // namespace

void Reduction::combine(const std::byte* left, std::byte* right, std::byte* out,
                        size_t bytes) const noexcept {
  if (function != nullptr) {
    function(left, right, out, bytes / unit);
    return;
  }
  user_function(left, right, bytes / unit, user_data);
  if (out != right) std::memcpy(out, right, bytes);
}

Status find_reduction(gex_DT_t type, size_t unit, gex_OP_t op, gex_Coll_ReduceFn_t user_function,
                      const void* user_data, Reduction* found) noexcept {
  if (unit == 0) return fail(Status::kBadArg, "the size of an element (dt_sz) is 0");
  const bool is_user_op = op == GEX_OP_USER || op == GEX_OP_USER_NC;
  const Type known = find_type(type, op);
  if (known.unit == 0 && type != GEX_DT_USER)
    return fail(Status::kBadArg, "%#x is not a data type of reductions (one of GEX_DT_*)", type);
  if (known.unit != 0 && known.unit != unit)
    return fail(Status::kBadArg, "an element has %zu bytes (dt_sz), but its type has %zu", unit,
                known.unit);
  if (is_user_op) {
    if (user_function == nullptr)
      return fail(Status::kBadArg, "the operation is the client's own, but its function is NULL");
    *found = {.user_function = user_function, .user_data = user_data, .unit = unit};
    return Status::kOk;
  }
  if (type == GEX_DT_USER)
    return fail(Status::kBadArg,
                "data of type GEX_DT_USER need the operation GEX_OP_USER or GEX_OP_USER_NC");
  if (known.function == nullptr)
    return fail(Status::kBadArg, "the operation %#x is not defined for reductions of this type",
                op);
  *found = {.function = known.function, .unit = unit};
  return Status::kOk;
}

}  // namespace hydrant
