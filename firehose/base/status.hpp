// The status codes of every layer, with GASNet's numbers, and the text that explains the last failure.
//
// Three kinds of failure: a caller's error (kBadArg, kNotInit); "not now" (kNotReady: never logged, never
// counted as a failure); refused or broken (kRefused, kResource, kBroken). The code that detects a failure
// writes the text with fail(); callers may add one line of context.
#pragma once

#include <gasnet_errors.h>

#include <cstddef>

namespace hydrant {

enum class [[nodiscard]] Status : int{
    kOk = GASNET_OK,
    kNotInit = GASNET_ERR_NOT_INIT,
    kResource = GASNET_ERR_RESOURCE,
    kBadArg = GASNET_ERR_BAD_ARG,
    kNotReady = GASNET_ERR_NOT_READY,
    kBarrierMismatch = GASNET_ERR_BARRIER_MISMATCH,
    kRefused = HYDRANT_ERR_REFUSED,
    kBroken = HYDRANT_ERR_BROKEN,
    kUnsupported = HYDRANT_ERR_UNSUPPORTED,
};

// The symbolic name as written in gasnet_errors.h ("GASNET_ERR_BAD_ARG"); never null.
const char* status_name(Status status) noexcept;
// A one-line description for display; never null.
const char* status_description(Status status) noexcept;

// Records why the calling thread's current operation fails (printf-style, cut at 511 bytes), in place of the
// last text, and returns `status`. Allocates at most once per thread: see reserve_error_text().
[[gnu::format(printf, 2, 3)]] Status fail(Status status, const char* format, ...) noexcept;

// Like fail(), for fast paths: remembers the address of a literal and formats nothing.
Status fail_with_literal(Status status, const char* literal) noexcept;
template <size_t kBytes>
Status fail_literal(Status status, const char (&literal)[kBytes]) noexcept {
  return fail_with_literal(status, literal);
}

// Appends "; <context>" to the calling thread's text and returns `status`.
[[gnu::format(printf, 2, 3)]] Status add_context(Status status, const char* format, ...) noexcept;

// Allocates the calling thread's text now, so that fail() does not allocate later.
void reserve_error_text() noexcept;

// The calling thread's last text; "" if none. Valid until this thread fails again.
const char* last_error_text() noexcept;
void clear_error_text() noexcept;

// Hides the calling thread's text during its lifetime, to tell whether foreign code explained its failure.
// Restores it unless a new text was written. Cost: one look-up, no copy.
class ScopedErrorText {
 public:
  ScopedErrorText() noexcept;
  ~ScopedErrorText();
  ScopedErrorText(const ScopedErrorText&) = delete;
  ScopedErrorText& operator=(const ScopedErrorText&) = delete;

 private:
  void* text_;
  const char* literal_ = nullptr;
  char first_ = '\0';
};

constexpr int to_c(Status status) noexcept { return static_cast<int>(status); }

}  // namespace hydrant
