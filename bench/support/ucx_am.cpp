// UCX's Active Messages through UCP over shared memory; am_bench measures them beside the library's.
#include "bench/support/ucx_am.hpp"

#include <cstring>
#include <ucp/api/ucp.h>

namespace hydrant::bench {
namespace {

constexpr unsigned kId = 1;

ucp_worker_h worker(void* handle) { return static_cast<ucp_worker_h>(handle); }

}  // namespace

UcxAm::UcxAm() : answer_(65536) {
  ucp_config_t* config = nullptr;
  if (ucp_config_read(nullptr, nullptr, &config) != UCS_OK) {
    why_ = "cannot read UCX's configuration";
    return;
  }
  ucp_config_modify(config, "TLS", "posix,self");
  ucp_params_t parameters = {};
  parameters.field_mask = UCP_PARAM_FIELD_FEATURES;
  parameters.features = UCP_FEATURE_AM;
  ucp_context_h context = nullptr;
  const ucs_status_t opened = ucp_init(&parameters, config, &context);
  ucp_config_release(config);
  if (opened != UCS_OK) {
    why_ = ucs_status_string(opened);
    return;
  }
  context_ = context;
  ucp_worker_params_t worker_parameters = {};
  worker_parameters.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  worker_parameters.thread_mode = UCS_THREAD_MODE_SINGLE;
  ucp_worker_h made = nullptr;
  if (ucp_worker_create(context, &worker_parameters, &made) != UCS_OK) {
    why_ = "cannot create a UCP worker";
    return;
  }
  ucp_am_handler_param_t handler = {};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                       UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.id = kId;
  handler.cb = [](void* self, const void* header, size_t header_bytes, void* data, size_t bytes,
                  const ucp_am_recv_param_t* received) -> ucs_status_t {
    return static_cast<ucs_status_t>(on_message(self, header, header_bytes, data, bytes, received));
  };
  handler.arg = this;
  ucp_address_t* address = nullptr;
  size_t bytes = 0;
  if (ucp_worker_set_am_recv_handler(made, &handler) != UCS_OK ||
      ucp_worker_get_address(made, &address, &bytes) != UCS_OK) {
    why_ = "cannot set a handler or get the worker's address";
    ucp_worker_destroy(made);
    return;
  }
  const auto* first = reinterpret_cast<const std::byte*>(address);
  address_.assign(first, first + bytes);
  ucp_worker_release_address(made, address);
  worker_ = made;
}

UcxAm::~UcxAm() {
  // Does not wait for the peer, which may have ended.
  if (worker_ != nullptr) ucp_worker_destroy(worker(worker_));
  if (context_ != nullptr) ucp_cleanup(static_cast<ucp_context_h>(context_));
}

bool UcxAm::connect(const std::vector<std::byte>& peer_address) {
  ucp_ep_params_t parameters = {};
  parameters.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
  parameters.address = reinterpret_cast<const ucp_address_t*>(peer_address.data());
  ucp_ep_h made = nullptr;
  const ucs_status_t status = ucp_ep_create(worker(worker_), &parameters, &made);
  why_ = ucs_status_string(status);
  endpoint_ = made;
  return status == UCS_OK;
}

void UcxAm::send(const void* payload, size_t bytes, bool answer) {
  const uint64_t header = answer ? 1 : 0;
  ucp_request_param_t parameters = {};
  parameters.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  parameters.flags = UCP_AM_SEND_FLAG_EAGER;
  void* request = ucp_am_send_nbx(static_cast<ucp_ep_h>(endpoint_), kId, &header, sizeof header,
                                  payload, bytes, &parameters);
  if (!UCS_PTR_IS_PTR(request)) return;
  while (ucp_request_check_status(request) == UCS_INPROGRESS) progress();
  ucp_request_free(request);
}

void UcxAm::progress() { ucp_worker_progress(worker(worker_)); }

int UcxAm::on_message(void* self, const void* header, size_t, void*, size_t bytes, const void*) {
  auto& me = *static_cast<UcxAm*>(self);
  uint64_t answer = 0;
  std::memcpy(&answer, header, sizeof answer);
  ++me.received_;
  if (answer != 0) me.send(me.answer_.data(), bytes, false);
  return UCS_OK;
}

}  // namespace hydrant::bench
