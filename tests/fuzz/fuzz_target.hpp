// Shared by fuzz targets. A target is the function LLVMFuzzerTestOneInput(), which mutation_driver.cpp or
// libFuzzer calls with inputs. It checks properties with HYDRANT_FUZZ_CHECK, which aborts the process.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#if defined(__SANITIZE_ADDRESS__)
#define HYDRANT_FUZZ_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HYDRANT_FUZZ_ASAN 1
#endif
#endif
#ifndef HYDRANT_FUZZ_ASAN
#define HYDRANT_FUZZ_ASAN 0
#endif

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace hydrant::fuzz {

[[noreturn]] inline void violated(const char* file, int line, const std::string& what) {
  std::fprintf(stderr, "%s:%d: violated property: %s\n", file, line, what.c_str());
  std::abort();
}
#define HYDRANT_FUZZ_CHECK(condition) \
  ((condition) ? void() : ::hydrant::fuzz::violated(__FILE__, __LINE__, #condition))
// The same for functions that answer "" or an error text.
#define HYDRANT_FUZZ_CHECK_TEXT(text)                                         \
  do {                                                                        \
    const std::string wrong = (text);                                         \
    if (!wrong.empty()) ::hydrant::fuzz::violated(__FILE__, __LINE__, wrong); \
  } while (false)

// The input as a stream of decisions. Beyond its end all values are 0.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : rest_(data, size) {}

  bool empty() const { return rest_.empty(); }
  size_t left() const { return rest_.size(); }
  template <typename Number>
  Number take() {
    Number number{};
    const size_t n = std::min(sizeof number, rest_.size());
    if (n != 0) std::memcpy(&number, rest_.data(), n);
    rest_ = rest_.subspan(n);
    return number;
  }
  uint8_t byte() { return take<uint8_t>(); }
  uint32_t below(uint32_t bound) { return (bound <= 256 ? byte() : take<uint32_t>()) % bound; }
  std::span<const uint8_t> bytes(size_t n) {
    const std::span<const uint8_t> part = rest_.first(std::min(n, rest_.size()));
    rest_ = rest_.subspan(part.size());
    return part;
  }
  std::span<const uint8_t> all() { return bytes(rest_.size()); }

 private:
  std::span<const uint8_t> rest_;
};

// A copy of bytes with inaccessible memory behind it: a heap block that the sanitizer checks, or a buffer
// that ends at an inaccessible page. The copy begins at a multiple of `alignment`.
class GuardedCopy {
 public:
  explicit GuardedCopy(std::span<const uint8_t> bytes, size_t alignment = 1);
  ~GuardedCopy();
  GuardedCopy(const GuardedCopy&) = delete;
  GuardedCopy& operator=(const GuardedCopy&) = delete;

  std::byte* data() const { return begin_; }
  size_t size() const { return size_; }
  std::span<const std::byte> span() const { return {begin_, size_}; }
  std::string_view text() const {
    return {static_cast<const char*>(static_cast<const void*>(begin_)), size_};
  }

 private:
  std::byte* begin_;
  size_t size_;
};

}  // namespace hydrant::fuzz
