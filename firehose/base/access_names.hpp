// Names of access rights for messages: "local_write+remote_read". No allocation.
#pragma once

#include "firehose/base/memory_range.hpp"

#include <string_view>

namespace hydrant {

// Lives as long as the full expression that logs it: fail(..., "%s", AccessNames(access).text()).
class AccessNames {
 public:
  explicit constexpr AccessNames(Access access) noexcept {
    constexpr std::string_view kNames[] = {"local_write", "remote_read", "remote_write",
                                           "remote_atomic"};
    for (uint32_t i = 0; i < 4; ++i) {
      if ((bits(access) >> i & 1) == 0) continue;
      if (used_ != 0) append("+");
      append(kNames[i]);
    }
    if (used_ == 0) append("local_read");
  }
  constexpr const char* text() const noexcept { return text_; }

 private:
  constexpr void append(std::string_view word) noexcept {
    for (const char c : word) text_[used_++] = c;
  }
  char text_[64] = {};  // all names joined by '+' take 52 bytes
  size_t used_ = 0;
};

}  // namespace hydrant
