// Exports the table by which libhydrant uses this object, and replaces the base's functions of status.hpp.
// Error texts are stored by libhydrant, which shows them.
#include "rdma/injected/injected_object.hpp"

#include "rdma/injected/injected_transport.hpp"
#include "rdma/injected/send_only_transport.hpp"

#include <cstdarg>
#include <cstdio>
#include <new>
#include <utility>

namespace hydrant {
namespace {

constexpr size_t kTextBytes = 512;

// Set once, before any other function of the object is called.
InjectionHost g_host;

void set_host(const InjectionHost& host) noexcept { g_host = host; }

Status inject(const Injection& injection, const JobTopology& topology,
              std::unique_ptr<Transport>* transport) noexcept {
  if (injection.has_network) {
    std::unique_ptr<Transport> inside = std::move(*transport);
    const Status status = InjectedTransport::open(std::move(inside), topology,
                                                  {.network = injection.network}, transport);
    if (status != Status::kOk) return status;
  }
  if (injection.send_only) {
    std::unique_ptr<Transport> inside = std::move(*transport);
    transport->reset(new (std::nothrow) SendOnlyTransport(std::move(inside)));
    if (*transport == nullptr) return fail(Status::kResource, "no memory for a transport");
  }
  return Status::kOk;
}

}  // namespace

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

extern "C" {
[[gnu::visibility("default")]] extern const hydrant::InjectedObject hydrant_injected_1;
const hydrant::InjectedObject hydrant_injected_1 = {HYDRANT_INJECTED_VERSION, &hydrant::set_host,
                                                    &hydrant::parse_injection, &hydrant::inject};
}
