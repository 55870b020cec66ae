// Stores the names of statuses and each thread's error text. Every layer reports failures through it; it
// takes no lock.
#include "firehose/base/status.hpp"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <pthread.h>
#include <utility>

namespace hydrant {
namespace {

constexpr size_t kTextBytes = 512;

// The last error text: `literal` if not null, else `text`, which has kTextBytes.
struct ErrorText {
  const char* literal;
  char* text;  // null in those that all threads share

  const char* shown() const noexcept { return literal != nullptr ? literal : text; }
  bool is_shared() const noexcept { return text == nullptr; }
};

// Shown in place of a text for which there was no memory. The last one is for all other codes.
struct MissingText {
  Status status;
  ErrorText text;
};
constinit MissingText g_no_memory[] = {
    {Status::kNotInit, {"no memory was left for the text of this GASNET_ERR_NOT_INIT", nullptr}},
    {Status::kBadArg, {"no memory was left for the text of this GASNET_ERR_BAD_ARG", nullptr}},
    {Status::kNotReady, {"no memory was left for the text of this GASNET_ERR_NOT_READY", nullptr}},
    {Status::kRefused, {"no memory was left for the text of this HYDRANT_ERR_REFUSED", nullptr}},
    {Status::kBroken, {"no memory was left for the text of this HYDRANT_ERR_BROKEN", nullptr}},
    {Status::kUnsupported,
     {"no memory was left for the text of this HYDRANT_ERR_UNSUPPORTED", nullptr}},
    {Status::kResource, {"no memory was left for the text of this GASNET_ERR_RESOURCE", nullptr}},
};

ErrorText* text_without_memory(Status status) noexcept {
  for (MissingText& missing : g_no_memory) {
    if (missing.status == status) return &missing.text;
  }
  return &std::end(g_no_memory)[-1].text;
}

// A pthread key leads to the text, not thread_local storage: libfirehose may use at most 64 bytes of static
// TLS (it must be loadable with dlopen), and the hit path uses those. Allocated at a thread's first failure,
// freed when the thread ends.
pthread_key_t g_text_key;
pthread_once_t g_text_once = PTHREAD_ONCE_INIT;
bool g_text_usable = false;

void free_text(void* text) {
  if (!static_cast<ErrorText*>(text)->is_shared()) std::free(text);
}
void create_key() { g_text_usable = pthread_key_create(&g_text_key, &free_text) == 0; }

// Null if the thread has none; it may be a shared one.
ErrorText* thread_text() noexcept {
  pthread_once(&g_text_once, &create_key);
  return g_text_usable ? static_cast<ErrorText*>(pthread_getspecific(g_text_key)) : nullptr;
}

// The thread's own text, for a failure with this status. Null without memory: then a shared one is shown.
ErrorText* text_for(Status status) noexcept {
  ErrorText* text = thread_text();
  if (!g_text_usable || (text != nullptr && !text->is_shared())) return text;
  text = static_cast<ErrorText*>(std::calloc(1, sizeof(ErrorText) + kTextBytes));
  if (text != nullptr) text->text = reinterpret_cast<char*>(text + 1);
  if (pthread_setspecific(g_text_key, text != nullptr ? text : text_without_memory(status)) != 0) {
    std::free(text);
    text = nullptr;
  }
  return text;
}

// The thread's own text, for changes; null if it has none. Forgets a shared one.
ErrorText* own_text() noexcept {
  ErrorText* text = thread_text();
  if (text == nullptr || !text->is_shared()) return text;
  pthread_setspecific(g_text_key, nullptr);
  return nullptr;
}

}  // namespace

Status fail(Status status, const char* format, ...) noexcept {
  ErrorText* error = text_for(status);
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
  ErrorText* error = text_for(status);
  if (error != nullptr) error->literal = literal;
  return status;
}

Status add_context(Status status, const char* format, ...) noexcept {
  ErrorText* error = text_for(status);
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

void reserve_error_text() noexcept { (void)text_for(Status::kResource); }

const char* last_error_text() noexcept {
  const ErrorText* error = thread_text();
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
