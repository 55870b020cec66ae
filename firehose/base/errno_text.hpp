// Parts of messages.
#pragma once

#include <cstdint>
#include <cstring>

namespace hydrant {

// The text of an errno: "Cannot allocate memory". A constant string, so it is safe from any thread, unlike
// strerror(3); never null.
inline const char* errno_text(int error) noexcept {
  const char* text = strerrordesc_np(error);
  return text != nullptr ? text : "unknown error";
}

// A number for "%llu" and "%llx".
inline unsigned long long ull(uint64_t value) noexcept { return value; }

}  // namespace hydrant
