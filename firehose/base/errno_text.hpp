// The text of an errno for messages: "Cannot allocate memory". A constant string, so it is safe from any
// thread, unlike strerror(3); never null.
#pragma once

#include <cstring>

namespace hydrant {

inline const char* errno_text(int error) noexcept {
  const char* text = strerrordesc_np(error);
  return text != nullptr ? text : "unknown error";
}

}  // namespace hydrant
