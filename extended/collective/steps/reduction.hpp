// Element-wise operations of reductions: those of GASNet-EX on its types, and functions of the client.
#pragma once

#include "firehose/base/status.hpp"

#include <cstddef>
#include <gasnet_coll.h>

namespace hydrant {

struct Reduction {
  // out[i] = left[i] op right[i]; out may be either operand.
  using Function = void (*)(const void* left, const void* right, void* out, size_t count) noexcept;

  Function function = nullptr;
  gex_Coll_ReduceFn_t user_function = nullptr;  // in place of `function`
  const void* user_data = nullptr;
  size_t unit = 1;  // bytes of an element

  // A user function leaves its result in the right operand, from where it is copied. It must not
  // communicate, as in a handler: handler_depth counts it, and collectives make no progress in it.
  void combine(const std::byte* left, std::byte* right, std::byte* out,
               size_t bytes) const noexcept;
};

// True in a thread that runs a user function, which may be in the middle of the collectives' progress.
bool is_in_user_function() noexcept;

// Finds the operation. Errors: kBadArg: a type or operation that GASNet-EX does not define for reductions,
// a size that is not the type's, no function for an operation of the client.
Status find_reduction(gex_DT_t type, size_t unit, gex_OP_t op, gex_Coll_ReduceFn_t user_function,
                      const void* user_data, Reduction* found) noexcept;

}  // namespace hydrant
