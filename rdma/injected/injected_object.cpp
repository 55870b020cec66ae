// Exports the table by which libhydrant uses this object.
#include "rdma/injected/injected_object.hpp"

#include "rdma/injected/injected_transport.hpp"
#include "rdma/injected/send_only_transport.hpp"

#include <new>
#include <utility>

namespace hydrant {
namespace {

Status inject(const Injection& injection, Bootstrap& bootstrap,
              std::unique_ptr<Transport>* transport) noexcept {
  if (injection.has_network) {
    std::unique_ptr<Transport> inside = std::move(*transport);
    const Status status = InjectedTransport::open(std::move(inside), bootstrap.topology(),
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
}  // namespace hydrant

extern "C" {
[[gnu::visibility("default")]] extern const hydrant::InjectedObject hydrant_injected_2;
const hydrant::InjectedObject hydrant_injected_2 = {HYDRANT_INJECTED_VERSION,
                                                    &hydrant::set_injection_host,
                                                    &hydrant::parse_injection, &hydrant::inject};
}
