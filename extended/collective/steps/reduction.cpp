// Implements the operations of reductions. operation.cpp calls combine() in its steps;
// collective_calls.cpp finds the operation of a call.
#include "extended/collective/steps/reduction.hpp"

#include "am/call/thread_state.hpp"
#include "firehose/base/uncancelled.hpp"

#include <bit>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <type_traits>

namespace hydrant {
namespace {

constinit thread_local uint32_t user_function_depth = 0;

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
  // The output may be an operand, but overlaps none otherwise.
#ifdef __clang__
#pragma clang loop vectorize(assume_safety)
#else
#pragma GCC ivdep
#endif
  for (size_t i = 0; i < count; ++i) {
    T x;
    T y;
    std::memcpy(&x, a + i * sizeof(T), sizeof(T));
    std::memcpy(&y, b + i * sizeof(T), sizeof(T));
    const T result = Op<T>::apply(x, y);
    std::memcpy(c + i * sizeof(T), &result, sizeof(T));
  }
}

// The functions of a type, by the operation's bit; null if it is not defined.
constexpr uint32_t kOperations = std::countr_zero(GEX_OP_MAX) + 1;
struct Type {
  size_t unit = 0;
  Reduction::Function functions[kOperations] = {};
};
constexpr uint32_t index_of(gex_OP_t op) noexcept {
  return static_cast<uint32_t>(std::countr_zero(op));
}

template <typename T>
constexpr Type describe_type() noexcept {
  Type type{.unit = sizeof(T)};
  type.functions[index_of(GEX_OP_ADD)] = combine_all<T, Add>;
  type.functions[index_of(GEX_OP_MULT)] = combine_all<T, Multiply>;
  type.functions[index_of(GEX_OP_MIN)] = combine_all<T, Minimum>;
  type.functions[index_of(GEX_OP_MAX)] = combine_all<T, Maximum>;
  if constexpr (std::is_integral_v<T>) {
    type.functions[index_of(GEX_OP_AND)] = combine_all<T, And>;
    type.functions[index_of(GEX_OP_OR)] = combine_all<T, Or>;
    type.functions[index_of(GEX_OP_XOR)] = combine_all<T, Xor>;
  }
  return type;
}

// By the type's bit.
constexpr Type kTypes[] = {describe_type<int32_t>(), describe_type<uint32_t>(),
                           describe_type<int64_t>(), describe_type<uint64_t>(),
                           describe_type<float>(),   describe_type<double>()};
static_assert(GEX_DT_I32 == 1U << 0 && GEX_DT_U32 == 1U << 1 && GEX_DT_I64 == 1U << 2 &&
              GEX_DT_U64 == 1U << 3 && GEX_DT_FLT == 1U << 4 && GEX_DT_DBL == 1U << 5);

// std::has_single_bit() calls a function on plain x86-64.
constexpr bool is_one_bit(uint32_t bits) noexcept { return bits != 0 && (bits & (bits - 1)) == 0; }

// Null if it is no built-in type.
const Type* find_type(gex_DT_t type) noexcept {
  const auto index = static_cast<uint32_t>(std::countr_zero(type));
  return is_one_bit(type) && index < std::size(kTypes) ? &kTypes[index] : nullptr;
}
Reduction::Function find_function(const Type& type, gex_OP_t op) noexcept {
  const auto index = index_of(op);
  return is_one_bit(op) && index < kOperations ? type.functions[index] : nullptr;
}

}  // namespace

bool is_in_user_function() noexcept { return user_function_depth != 0; }

void Reduction::combine(const std::byte* left, std::byte* right, std::byte* out,
                        size_t bytes) const noexcept {
  if (function != nullptr) {
    function(left, right, out, bytes / unit);
    return;
  }
  ++handler_depth;
  ++user_function_depth;
  uncancelled::call(user_function, left, right, bytes / unit, user_data);
  --user_function_depth;
  --handler_depth;
  if (out != right) std::memcpy(out, right, bytes);
}

Status find_reduction(gex_DT_t type, size_t unit, gex_OP_t op, gex_Coll_ReduceFn_t user_function,
                      const void* user_data, Reduction* found) noexcept {
  const Type* known = find_type(type);
  if (known != nullptr && known->unit == unit) [[likely]] {
    if (const Reduction::Function function = find_function(*known, op); function != nullptr)
        [[likely]] {
      *found = {.function = function, .user_function = nullptr, .user_data = nullptr, .unit = unit};
      return Status::kOk;
    }
  }
  if (unit == 0) return fail(Status::kBadArg, "the size of an element (dt_sz) is 0");
  if (known == nullptr && type != GEX_DT_USER)
    return fail(Status::kBadArg, "%#x is not a data type of reductions (one of GEX_DT_*)", type);
  if (known != nullptr && known->unit != unit)
    return fail(Status::kBadArg, "an element has %zu bytes (dt_sz), but its type has %zu", unit,
                known->unit);
  if (op == GEX_OP_USER || op == GEX_OP_USER_NC) {
    if (user_function == nullptr)
      return fail(Status::kBadArg, "the operation is the client's own, but its function is NULL");
    *found = {
        .function = nullptr, .user_function = user_function, .user_data = user_data, .unit = unit};
    return Status::kOk;
  }
  if (type == GEX_DT_USER)
    return fail(Status::kBadArg,
                "data of type GEX_DT_USER need the operation GEX_OP_USER or GEX_OP_USER_NC");
  return fail(
      Status::kBadArg,
      "the operation %#x is not defined for reductions of type %#x: pass GEX_OP_ADD, _MULT, "
      "_MIN or _MAX, for integers also _AND, _OR or _XOR",
      op, type);
}

}  // namespace hydrant
