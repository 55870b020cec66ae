// Calls a handler with a run-time number of arguments. A handler is a C function of the client. The
// table stores it as a pointer to a function without parameters; here it is cast back to its declared
// type.
#pragma once

#include <hydrant/gasnet/am.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

namespace hydrant {

// `Front...` are the parameters before the arguments: the token, and for Mediums and Longs the payload
// and its size.
template <size_t... kIndex, typename... Front>
inline void call_with(std::index_sequence<kIndex...>, gex_AM_Fn_t function, const int32_t* args,
                      Front... front) noexcept {
  using Handler = void (*)(Front..., decltype((void)kIndex, int32_t{})...);
  reinterpret_cast<Handler>(function)(front..., args[kIndex]...);
}

template <typename... Front>
inline void call_handler(gex_AM_Fn_t function, uint32_t nargs, const int32_t* args,
                         Front... front) noexcept {
#define HYDRANT_CASE(n) \
  case n: return call_with(std::make_index_sequence<n>{}, function, args, front...)
  switch (nargs) {
    HYDRANT_CASE(0);
    HYDRANT_CASE(1);
    HYDRANT_CASE(2);
    HYDRANT_CASE(3);
    HYDRANT_CASE(4);
    HYDRANT_CASE(5);
    HYDRANT_CASE(6);
    HYDRANT_CASE(7);
    HYDRANT_CASE(8);
    HYDRANT_CASE(9);
    HYDRANT_CASE(10);
    HYDRANT_CASE(11);
    HYDRANT_CASE(12);
    HYDRANT_CASE(13);
    HYDRANT_CASE(14);
    HYDRANT_CASE(15);
    HYDRANT_CASE(16);
    default: return;  // deliver.cpp has checked it
  }
#undef HYDRANT_CASE
}

}  // namespace hydrant
