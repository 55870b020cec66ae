// Implements the operations of atomic domains: a table of functions by type and operation. Inlined calls and
// atomic_calls.cpp use it for memory that is mapped here, the handler in atomic_messages.cpp at the target.
#include "extended/atomics/atomic_ops.hpp"

#include <hydrant/gasnet/ratomic.h>

#include <atomic>
#include <bit>
#include <cstring>
#include <iterator>
#include <type_traits>

namespace hydrant {
namespace {

template <size_t kBytes>
using Bits = std::conditional_t<kBytes == 4, uint32_t, uint64_t>;

template <typename T>
T value_of(uint64_t bits) noexcept {
  return std::bit_cast<T>(static_cast<Bits<sizeof(T)>>(bits));
}
template <typename T>
uint64_t bits_of(T value) noexcept {
  return std::bit_cast<Bits<sizeof(T)>>(value);
}

// ---- new values ----

// Integers wrap around, also signed ones.
template <typename T>
struct Arithmetic {
  using Type = T;
};
template <typename T>
requires std::is_integral_v<T>
struct Arithmetic<T> {
  using Type = std::make_unsigned_t<T>;
};
template <typename T>
using Wrapping = typename Arithmetic<T>::Type;

template <typename T>
T add(T old, T operand) noexcept {
  return static_cast<T>(static_cast<Wrapping<T>>(old) + static_cast<Wrapping<T>>(operand));
}
template <typename T>
T subtract(T old, T operand) noexcept {
  return static_cast<T>(static_cast<Wrapping<T>>(old) - static_cast<Wrapping<T>>(operand));
}
template <typename T>
T multiply(T old, T operand) noexcept {
  return static_cast<T>(static_cast<Wrapping<T>>(old) * static_cast<Wrapping<T>>(operand));
}
template <typename T>
T smaller(T old, T operand) noexcept {
  return old < operand ? old : operand;
}
template <typename T>
T larger(T old, T operand) noexcept {
  return old > operand ? old : operand;
}
template <typename T>
T increment(T old, T) noexcept {
  return add(old, T{1});
}
template <typename T>
T decrement(T old, T) noexcept {
  return subtract(old, T{1});
}

// ---- operations ----

template <typename T>
using Word = std::atomic_ref<Bits<sizeof(T)>>;
template <typename T>
Word<T> word_at(void* target) noexcept {
  return Word<T>(*static_cast<Bits<sizeof(T)>*>(target));
}

using Function = uint64_t (*)(void* target, uint64_t operand1, uint64_t operand2) noexcept;

// Without spurious failures, it repeats only if another operation came between.
template <typename T, T (*kNew)(T, T) noexcept>
uint64_t update(void* target, uint64_t operand1, uint64_t) noexcept {
  const Word<T> word = word_at<T>(target);
  auto old = word.load(std::memory_order_relaxed);
  const T operand = value_of<T>(operand1);
  while (!word.compare_exchange_weak(
      old, static_cast<Bits<sizeof(T)>>(bits_of(kNew(value_of<T>(old), operand))))) {
  }
  return old;
}

template <typename T>
uint64_t fetch_add(void* target, uint64_t operand1, uint64_t) noexcept {
  return word_at<T>(target).fetch_add(static_cast<Bits<sizeof(T)>>(operand1));
}
template <typename T>
uint64_t fetch_subtract(void* target, uint64_t operand1, uint64_t) noexcept {
  return word_at<T>(target).fetch_sub(static_cast<Bits<sizeof(T)>>(operand1));
}
template <typename T>
uint64_t fetch_increment(void* target, uint64_t, uint64_t) noexcept {
  return word_at<T>(target).fetch_add(1);
}
template <typename T>
uint64_t fetch_decrement(void* target, uint64_t, uint64_t) noexcept {
  return word_at<T>(target).fetch_sub(1);
}
template <typename T>
uint64_t fetch_and(void* target, uint64_t operand1, uint64_t) noexcept {
  return word_at<T>(target).fetch_and(static_cast<Bits<sizeof(T)>>(operand1));
}
template <typename T>
uint64_t fetch_or(void* target, uint64_t operand1, uint64_t) noexcept {
  return word_at<T>(target).fetch_or(static_cast<Bits<sizeof(T)>>(operand1));
}
template <typename T>
uint64_t fetch_xor(void* target, uint64_t operand1, uint64_t) noexcept {
  return word_at<T>(target).fetch_xor(static_cast<Bits<sizeof(T)>>(operand1));
}
template <typename T>
uint64_t swap(void* target, uint64_t operand1, uint64_t) noexcept {
  return word_at<T>(target).exchange(static_cast<Bits<sizeof(T)>>(operand1));
}
template <typename T>
uint64_t compare_and_swap(void* target, uint64_t operand1, uint64_t operand2) noexcept {
  auto old = static_cast<Bits<sizeof(T)>>(operand1);
  (void)word_at<T>(target).compare_exchange_strong(old, static_cast<Bits<sizeof(T)>>(operand2));
  return old;
}
template <typename T>
uint64_t get(void* target, uint64_t, uint64_t) noexcept {
  return word_at<T>(target).load();
}
template <typename T>
uint64_t set(void* target, uint64_t operand1, uint64_t) noexcept {
  word_at<T>(target).store(static_cast<Bits<sizeof(T)>>(operand1));
  return 0;
}

// ---- the table ----

constexpr uint32_t index_of(gex_OP_t op) noexcept {
  return static_cast<uint32_t>(std::countr_zero(op));
}
constexpr uint32_t kOperations = index_of(GEX_OP_GET) + 1;

struct Type {
  const char* name = nullptr;
  size_t width = 0;
  gex_OP_t ops = 0;
  Function functions[kOperations] = {};

  constexpr void add_one(gex_OP_t op, Function function) noexcept {
    ops |= op;
    functions[index_of(op)] = function;
  }
  constexpr void add_both(gex_OP_t op, Function function) noexcept {
    add_one(op, function);
    add_one(GEX_OP_TO_FETCHING(op), function);
  }
};

template <typename T>
constexpr Type describe_type(const char* name) noexcept {
  Type type{.name = name, .width = sizeof(T)};
  type.add_one(GEX_OP_GET, get<T>);
  type.add_one(GEX_OP_SET, set<T>);
  type.add_one(GEX_OP_SWAP, swap<T>);
  type.add_both(GEX_OP_CAS, compare_and_swap<T>);
  type.add_both(GEX_OP_MULT, update<T, multiply<T>>);
  type.add_both(GEX_OP_MIN, update<T, smaller<T>>);
  type.add_both(GEX_OP_MAX, update<T, larger<T>>);
  if constexpr (std::is_integral_v<T>) {
    type.add_both(GEX_OP_ADD, fetch_add<T>);
    type.add_both(GEX_OP_SUB, fetch_subtract<T>);
    type.add_both(GEX_OP_INC, fetch_increment<T>);
    type.add_both(GEX_OP_DEC, fetch_decrement<T>);
    type.add_both(GEX_OP_AND, fetch_and<T>);
    type.add_both(GEX_OP_OR, fetch_or<T>);
    type.add_both(GEX_OP_XOR, fetch_xor<T>);
  } else {
    type.add_both(GEX_OP_ADD, update<T, add<T>>);
    type.add_both(GEX_OP_SUB, update<T, subtract<T>>);
    type.add_both(GEX_OP_INC, update<T, increment<T>>);
    type.add_both(GEX_OP_DEC, update<T, decrement<T>>);
  }
  return type;
}
static_assert(GEX_OP_TO_FETCHING(GEX_OP_CAS) == GEX_OP_FCAS);
static_assert(GEX_OP_AND == 1U << 0 && GEX_OP_GET == 1U << 24, "atomic_op_name() lists them");

// By the type's bit.
constexpr Type kTypes[] = {describe_type<int32_t>("I32"), describe_type<uint32_t>("U32"),
                           describe_type<int64_t>("I64"), describe_type<uint64_t>("U64"),
                           describe_type<float>("FLT"),   describe_type<double>("DBL")};
static_assert(GEX_DT_I32 == 1U << 0 && GEX_DT_U32 == 1U << 1 && GEX_DT_I64 == 1U << 2 &&
              GEX_DT_U64 == 1U << 3 && GEX_DT_FLT == 1U << 4 && GEX_DT_DBL == 1U << 5);

const Type* find_type(gex_DT_t type) noexcept {
  const bool is_one = type != 0 && (type & (type - 1)) == 0;
  const auto index = static_cast<uint32_t>(std::countr_zero(type));
  return is_one && index < std::size(kTypes) ? &kTypes[index] : nullptr;
}

}  // namespace

size_t atomic_width(gex_DT_t type) noexcept {
  const Type* found = find_type(type);
  return found != nullptr ? found->width : 0;
}
const char* atomic_type_name(gex_DT_t type) noexcept {
  const Type* found = find_type(type);
  return found != nullptr ? found->name : "?";
}
gex_OP_t atomic_ops_of(gex_DT_t type) noexcept {
  const Type* found = find_type(type);
  return found != nullptr ? found->ops : 0;
}

const char* atomic_op_name(gex_OP_t op) noexcept {
  // By the operation's bit.
  constexpr const char* kNames[kOperations] = {
      "AND",  "OR",   "XOR",  "ADD",  "SUB",  "MULT", "MIN",  "MAX",  "INC",
      "DEC",  "SET",  "CAS",  "FAND", "FOR",  "FXOR", "FADD", "FSUB", "FMULT",
      "FMIN", "FMAX", "FINC", "FDEC", "SWAP", "FCAS", "GET"};
  return is_one_operation(op) && index_of(op) < kOperations ? kNames[index_of(op)] : "?";
}

uint64_t apply_atomic(gex_DT_t type, gex_OP_t op, void* target, uint64_t operand1,
                      uint64_t operand2) noexcept {
  return hydrant_atomic_apply(static_cast<unsigned>(std::countr_zero(type)), op, target, operand1,
                              operand2);
}

void store_atomic_result(void* result, uint64_t bits, size_t width) noexcept {
  if (width == sizeof(uint32_t)) {
    const auto half = static_cast<uint32_t>(bits);
    std::memcpy(result, &half, sizeof half);
  } else {
    std::memcpy(result, &bits, sizeof bits);
  }
}

}  // namespace hydrant

// The client has checked type and operation (hydrant/gasnet/ratomic.h).
extern "C" uint64_t hydrant_atomic_apply(unsigned int type, gex_OP_t op, void* here,
                                         uint64_t operand1, uint64_t operand2) {
  using namespace hydrant;
  return kTypes[type].functions[index_of(op)](here, operand1, operand2);
}
