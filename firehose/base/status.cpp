// Stores the names of statuses and each thread's error text. Every layer reports failures through it; it
// takes no lock.
#include "firehose/base/status.hpp"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <pthread.h>
#include <utility>

namespace hydrant {
namespace {

constexpr size_t kTextBytes = 512;

// The last error text: `literal` if not null, else `text`.
struct ErrorText {
  const char* literal;
  char text[kTextBytes];

  const char* shown() const noexcept { return literal != nullptr ? literal : text; }
};

// Shown in place of a text for which there was no memory.
constinit ErrorText g_no_memory{"no memory was left for the text of this error", {}};

// A pthread key leads to the text, not thread_local storage: libfirehose may use at most 64 bytes of static
// TLS (it must be loadable with dlopen), and the hit path uses those. Allocated at a thread's first failure,
// freed when the thread ends.
pthread_key_t g_text_key;
pthread_once_t g_text_once = PTHREAD_ONCE_INIT;
bool g_text_usable = false;

void free_text(void* text) {
  if (text != &g_no_memory) std::free(text);
}
void create_key() { g_text_usable = pthread_key_create(&g_text_key, &free_text) == 0; }

ErrorText* thread_text(bool create) noexcept {
  pthread_once(&g_text_once, &create_key);
  if (!g_text_usable) return nullptr;
  auto* text = static_cast<ErrorText*>(pthread_getspecific(g_text_key));
  if (!create || (text != nullptr && text != &g_no_memory)) return text;
  text = static_cast<ErrorText*>(std::calloc(1, sizeof(ErrorText)));
  if (pthread_setspecific(g_text_key, text != nullptr ? text : &g_no_memory) != 0) {
    std::free(text);
    text = nullptr;
  }
  return text;
}

// The thread's own text, for changes; null if it has none. Forgets g_no_memory, which all threads share.
ErrorText* own_text() noexcept {
  ErrorText* text = thread_text(false);
  if (text != &g_no_memory) return text;
  pthread_setspecific(g_text_key, nullptr);
  return nullptr;
}

}  // namespace

Status fail(Status status, const char* format, ...) noexcept {
  ErrorText* error = thread_text(true);
  if (error == nullptr) return status;
  va_list args;
  va_start(args, format);
  // An argument may point to the current text.
  char text[kTextBytes];
  std::vsnprintf(text, sizeof text, format, args);
  va_end(args);
  std::memcpy(error->text, text, std::strlen(text) + 1);
  error->literal = nullptr;
  return status;
}

Status fail_with_literal(Status status, const char* literal) noexcept {
  ErrorText* error = thread_text(true);
  if (error != nullptr) error->literal = literal;
  return status;
}

Status add_context(Status status, const char* format, ...) noexcept {
  ErrorText* error = thread_text(true);
  if (error == nullptr) return status;
  if (error->literal != nullptr) {
    std::snprintf(error->text, kTextBytes, "%s", std::exchange(error->literal, nullptr));
  }
  char* text = error->text;
  size_t used = std::strlen(text);
  if (used > 0 && used + 2 < kTextBytes) {
    std::memcpy(text + used, "; ", 3);
    used += 2;
  }
  va_list args;
  va_start(args, format);
  std::vsnprintf(text + used, kTextBytes - used, format, args);
  va_end(args);
  return status;
}

void reserve_error_text() noexcept { (void)thread_text(true); }

const char* last_error_text() noexcept {
  const ErrorText* error = thread_text(false);
  return error != nullptr ? error->shown() : "";
}

void clear_error_text() noexcept {
  ErrorText* error = own_text();
  if (error == nullptr) return;
  error->literal = nullptr;
  error->text[0] = '\0';
}

ScopedErrorText::ScopedErrorText() noexcept : text_(own_text()) {
  auto* error = static_cast<ErrorText*>(text_);
  if (error == nullptr) return;
  literal_ = std::exchange(error->literal, nullptr);
  first_ = std::exchange(error->text[0], '\0');
}

ScopedErrorText::~ScopedErrorText() {
  auto* error = static_cast<ErrorText*>(text_);
  if (error == nullptr || error->shown()[0] != '\0') return;
  error->literal = literal_;
  error->text[0] = first_;
}

const char* status_name(Status status) noexcept {
  switch (status) {
    case Status::kOk: return "GASNET_OK";
    case Status::kNotInit: return "GASNET_ERR_NOT_INIT";
    case Status::kResource: return "GASNET_ERR_RESOURCE";
    case Status::kBadArg: return "GASNET_ERR_BAD_ARG";
    case Status::kNotReady: return "GASNET_ERR_NOT_READY";
    case Status::kBarrierMismatch: return "GASNET_ERR_BARRIER_MISMATCH";
    case Status::kRefused: return "HYDRANT_ERR_REFUSED";
    case Status::kBroken: return "HYDRANT_ERR_BROKEN";
    case Status::kUnsupported: return "HYDRANT_ERR_UNSUPPORTED";
  }
  return "(unknown status)";
}

const char* status_description(Status status) noexcept {
  switch (status) {
    case Status::kOk: return "done";
    case Status::kNotInit:
      return "used before init, after fini, or with a handle from before a fork";
    case Status::kResource: return "cannot ever fit, or memory ran out";
    case Status::kBadArg: return "an argument is outside its documented range";
    case Status::kNotReady: return "not now: try again, poll, or use a fallback";
    case Status::kBarrierMismatch: return "barrier identifiers disagree between ranks";
    case Status::kRefused: return "this memory cannot be registered with this access right";
    case Status::kBroken: return "the registrar, device or peer failed for good";
    case Status::kUnsupported: return "not supported here";
  }
  return "unknown status";
}

}  // namespace hydrant
