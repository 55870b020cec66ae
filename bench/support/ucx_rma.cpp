// UCX's puts and gets through UCP between two ranks of a node; rma_bench measures them beside the library's.
#include "bench/support/ucx_rma.hpp"

#include <cstring>
#include <ucp/api/ucp.h>

namespace hydrant::bench {
namespace {

ucp_context_h context(void* handle) { return static_cast<ucp_context_h>(handle); }
ucp_worker_h worker(void* handle) { return static_cast<ucp_worker_h>(handle); }
ucp_ep_h endpoint(void* handle) { return static_cast<ucp_ep_h>(handle); }

void append(std::vector<std::byte>& blob, const void* data, uint64_t bytes) {
  const size_t end = blob.size();
  blob.resize(end + sizeof bytes + bytes);
  std::memcpy(blob.data() + end, &bytes, sizeof bytes);
  std::memcpy(blob.data() + end + sizeof bytes, data, bytes);
}
std::vector<std::byte> take(const std::vector<std::byte>& blob, size_t& offset) {
  uint64_t bytes = 0;
  std::memcpy(&bytes, blob.data() + offset, sizeof bytes);
  offset += sizeof bytes;
  const std::byte* first = blob.data() + offset;
  offset += bytes;
  return {first, first + bytes};
}

}  // namespace

UcxRma::UcxRma(std::byte* heap, size_t bytes) {
  works_ = open() && map(targets_[0], nullptr, bytes) && map(targets_[1], heap, bytes);
}

bool UcxRma::open() {
  ucp_config_t* config = nullptr;
  if (ucp_config_read(nullptr, nullptr, &config) != UCS_OK) {
    why_ = "cannot read UCX's configuration";
    return false;
  }
  ucp_config_modify(config, "TLS", "posix,cma,self");
  ucp_params_t parameters = {};
  parameters.field_mask = UCP_PARAM_FIELD_FEATURES;
  parameters.features = UCP_FEATURE_RMA;
  ucp_context_h made = nullptr;
  const ucs_status_t opened = ucp_init(&parameters, config, &made);
  ucp_config_release(config);
  if (opened != UCS_OK) {
    why_ = ucs_status_string(opened);
    return false;
  }
  context_ = made;
  ucp_worker_params_t worker_parameters = {};
  worker_parameters.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  worker_parameters.thread_mode = UCS_THREAD_MODE_SINGLE;
  ucp_worker_h made_worker = nullptr;
  ucp_address_t* address = nullptr;
  size_t bytes = 0;
  if (ucp_worker_create(made, &worker_parameters, &made_worker) != UCS_OK) {
    why_ = "cannot create a UCP worker";
    return false;
  }
  worker_ = made_worker;
  if (ucp_worker_get_address(made_worker, &address, &bytes) != UCS_OK) {
    why_ = "cannot get the worker's address";
    return false;
  }
  const auto* first = reinterpret_cast<const std::byte*>(address);
  address_.assign(first, first + bytes);
  ucp_worker_release_address(made_worker, address);
  return true;
}

bool UcxRma::map(Target& target, std::byte* address, size_t bytes) {
  ucp_mem_map_params_t parameters = {};
  parameters.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                          UCP_MEM_MAP_PARAM_FIELD_FLAGS;
  parameters.address = address;
  parameters.length = bytes;
  parameters.flags = address == nullptr ? UCP_MEM_MAP_ALLOCATE : 0;
  ucp_mem_h handle = nullptr;
  if (const ucs_status_t status = ucp_mem_map(context(context_), &parameters, &handle);
      status != UCS_OK) {
    why_ = std::string("ucp_mem_map: ") + ucs_status_string(status);
    return false;
  }
  target.handle = handle;
  ucp_mem_attr_t attributes = {};
  attributes.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS;
  void* key = nullptr;
  size_t key_bytes = 0;
  if (ucp_mem_query(handle, &attributes) != UCS_OK ||
      ucp_rkey_pack(context(context_), handle, &key, &key_bytes) != UCS_OK) {
    why_ = "cannot create a key for memory";
    return false;
  }
  target.address = static_cast<std::byte*>(attributes.address);
  std::memset(target.address, 1, bytes);
  const auto* first = static_cast<const std::byte*>(key);
  target.key.assign(first, first + key_bytes);
  ucp_rkey_buffer_release(key);
  return true;
}

UcxRma::~UcxRma() {
  // Does not wait for the peer, which may have ended.
  for (Target& target : targets_) {
    if (target.peer_key != nullptr) ucp_rkey_destroy(static_cast<ucp_rkey_h>(target.peer_key));
  }
  if (worker_ != nullptr) ucp_worker_destroy(worker(worker_));
  for (Target& target : targets_) {
    if (target.handle != nullptr)
      ucp_mem_unmap(context(context_), static_cast<ucp_mem_h>(target.handle));
  }
  if (context_ != nullptr) ucp_cleanup(context(context_));
}

std::vector<std::byte> UcxRma::blob() const {
  std::vector<std::byte> blob;
  append(blob, address_.data(), address_.size());
  for (const Target& target : targets_) {
    append(blob, &target.address, sizeof target.address);
    append(blob, target.key.data(), target.key.size());
  }
  return blob;
}

bool UcxRma::connect(const std::vector<std::byte>& peer_blob) {
  size_t offset = 0;
  const std::vector<std::byte> address = take(peer_blob, offset);
  ucp_ep_params_t parameters = {};
  parameters.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
  parameters.address = reinterpret_cast<const ucp_address_t*>(address.data());
  ucp_ep_h made = nullptr;
  ucs_status_t status = ucp_ep_create(worker(worker_), &parameters, &made);
  endpoint_ = made;
  for (Target& target : targets_) {
    const std::vector<std::byte> where = take(peer_blob, offset);
    const std::vector<std::byte> key = take(peer_blob, offset);
    std::memcpy(&target.peer_address, where.data(), sizeof target.peer_address);
    ucp_rkey_h unpacked = nullptr;
    if (status == UCS_OK) status = ucp_ep_rkey_unpack(made, key.data(), &unpacked);
    target.peer_key = unpacked;
  }
  why_ = ucs_status_string(status);
  return status == UCS_OK;
}

bool UcxRma::finish(void* request) {
  if (request == nullptr) return true;
  if (!UCS_PTR_IS_PTR(request)) return false;
  ucs_status_t status = UCS_INPROGRESS;
  while ((status = ucp_request_check_status(request)) == UCS_INPROGRESS) progress();
  ucp_request_free(request);
  return status == UCS_OK;
}

bool UcxRma::run(bool heap, bool is_put, std::byte* local, size_t bytes, size_t count) {
  const ucp_request_param_t parameters = {};
  const Target& target = targets_[heap ? 1 : 0];
  auto* key = static_cast<ucp_rkey_h>(target.peer_key);
  bool good = true;
  for (size_t i = 0; i < count; ++i) {
    const uint64_t remote = target.peer_address + i * bytes;
    std::byte* here = local + i * bytes;
    void* request = is_put
                        ? ucp_put_nbx(endpoint(endpoint_), here, bytes, remote, key, &parameters)
                        : ucp_get_nbx(endpoint(endpoint_), here, bytes, remote, key, &parameters);
    if (UCS_PTR_IS_PTR(request)) {
      ucp_request_free(request);  // the flush below waits for it
    } else {
      good = good && request == nullptr;
    }
  }
  return finish(ucp_ep_flush_nbx(endpoint(endpoint_), &parameters)) && good;
}

void UcxRma::progress() { ucp_worker_progress(worker(worker_)); }

}  // namespace hydrant::bench
