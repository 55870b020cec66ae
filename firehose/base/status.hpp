// One status set for every layer, with GASNet's numbers, and the text that explains the last failure.
//
// Three kinds, never mixed up: a caller's error (kBadArg, kNotInit), "not now" (kNotReady: never
// logged, never counted as a failure), and something refused or broken (kRefused, kResource, kBroken).
// The place that detects a failure writes the text with fail(); callers may add one line of context.
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
// One sentence for people; never null.
const char* status_description(Status status) noexcept;

// Records why the calling thread's current operation fails (printf-style, cut at 511 bytes) and
// returns `status`, so that a failing branch is one line. Never allocates. Replaces the last text.
[[gnu::format(printf, 2, 3)]] Status fail(Status status, const char* format, ...) noexcept;

// The same for a literal, for answers that are part of a fast path: the text is remembered by its address,
// nothing is formatted.
Status fail_with_literal(Status status, const char* literal) noexcept;
template <size_t kBytes>
Status fail_plainly(Status status, const char (&literal)[kBytes]) noexcept {
  return fail_with_literal(status, literal);
}

// Appends "; <context>" to the calling thread's text and returns `status`.
[[gnu::format(printf, 2, 3)]] Status add_context(Status status, const char* format, ...) noexcept;

// Makes room for the calling thread's text now, so that fail() does not allocate later.
void reserve_error_text() noexcept;

// The calling thread's last text; "" if none. Valid until this thread fails again.
const char* last_error_text() noexcept;
void clear_error_text() noexcept;

// Hides the calling thread's text for as long as it lives, unless a new one is written meanwhile: tells
// whether foreign code explained its failure. Cost: one look-up, no copy.
class FreshErrorText {
 public:
  FreshErrorText() noexcept;
  ~FreshErrorText();
  FreshErrorText(const FreshErrorText&) = delete;
  FreshErrorText& operator=(const FreshErrorText&) = delete;

 private:
  void* text_;
  const char* literal_ = nullptr;
  char first_ = '\0';
};

constexpr int to_c(Status status) noexcept { return static_cast<int>(status); }

}  // namespace hydrant
