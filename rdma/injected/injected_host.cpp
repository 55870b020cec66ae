// Replaces the base's functions of status.hpp in an object that libhydrant loads. Error texts are stored by
// libhydrant, which shows them.
#include "rdma/injected/injected_object.hpp"

#include <cstdarg>
#include <cstdio>

namespace hydrant {
namespace {

constexpr size_t kTextBytes = 512;

// Set once, before any other function of the object is called.
InjectionHost g_host;

}  // namespace

void set_injection_host(const InjectionHost& host) noexcept { g_host = host; }

Status fail(Status status, const char* format, ...) noexcept {
  char text[kTextBytes];
  va_list arguments;
  va_start(arguments, format);
  (void)std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return g_host.fail(status, text);
}
Status fail_with_literal(Status status, const char* literal) noexcept {
  return g_host.fail(status, literal);
}
Status add_context(Status status, const char* format, ...) noexcept {
  char text[kTextBytes];
  va_list arguments;
  va_start(arguments, format);
  (void)std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return g_host.add_context(status, text);
}
const char* last_error_text() noexcept { return g_host.last_error_text(); }

}  // namespace hydrant
