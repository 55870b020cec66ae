// Implements the local pins, releases and polls of firehose.h. A hit costs what hydrant_pin() costs and one
// comparison.
#include "firehose/gasnet_compat/firehose_state.hpp"

#include "firehose/base/cancellation.hpp"
#include "firehose/base/log.hpp"

#include <cstdlib>

using namespace hydrant;

// Cold: explains a call that this firehose cannot serve.
void hydrant::abort_wrong_call(const hydrant_fh_t* fh, uint32_t shape,
                               const char* function) noexcept {
  if (fh == nullptr) compat_fatal("%s: called before firehose_init", function);
  if (fh->domain == 0) compat_fatal("%s: called after firehose_fini", function);
  compat_fatal(
      "%s: this file was compiled with another firehose_fwd.h than the one that called "
      "firehose_init (shape %#x, expected %#x)",
      function, shape, fh->client.shape);
}

namespace {

inline const void* pointer(uintptr_t addr) noexcept { return reinterpret_cast<const void*>(addr); }

}  // namespace

hydrant_pin_t hydrant_fh_local_pin(hydrant_fh_t* fh, uint32_t shape, uintptr_t addr, size_t len) {
  check_compat_call(fh, shape, CompatCall::kWaits, "firehose_local_pin");
  // A registration for a client with FH_MAY_MERGE needs to know the requested range.
  const hydrant_pin_t pin = fh->client.may_merge == nullptr
                                ? hydrant_pin(fh->domain, pointer(addr), len, kCompatAccess)
                                : hydrant_try_pin(fh->domain, pointer(addr), len, kCompatAccess);
  if (pin.region != nullptr) [[likely]]
    return pin;
  return wait_for_compat_pin(*fh, addr, len);
}

hydrant_pin_t hydrant_fh_try_local_pin(hydrant_fh_t* fh, uint32_t shape, uintptr_t addr,
                                       size_t len) {
  check_compat_call(fh, shape, CompatCall::kLooks, "firehose_try_local_pin");
  return hydrant_try_pin(fh->domain, pointer(addr), len, kCompatAccess);
}

hydrant_pin_t hydrant_fh_partial_local_pin(hydrant_fh_t* fh, uint32_t shape, uintptr_t addr,
                                           size_t len) {
  check_compat_call(fh, shape, CompatCall::kLooks, "firehose_partial_local_pin");
  return hydrant_partial_pin(fh->domain, pointer(addr), len, kCompatAccess);
}

void hydrant_fh_release(hydrant_pin_t pin) {
#if HYDRANT_DEBUG
  check_call_rules(CompatCall::kReleases, "firehose_release");
#endif
  if (pin.region == nullptr) compat_fatal("firehose_release: this request was released before");
  // NOT_INIT: its firehose has ended, or it was taken before a fork; nothing is left to release.
  if (hydrant_release(pin) == GASNET_ERR_BAD_ARG) {
    compat_fatal("firehose_release: this request is not held: %s", hydrant_error_text());
  }
}

void hydrant_fh_invalidate(hydrant_fh_t* fh, uint32_t shape, uintptr_t addr, size_t len) {
  const CancellationDisabled guard;
  check_compat_call(fh, shape, CompatCall::kWaits, "firehose_local_invalidate");
  if (hydrant_invalidate(fh->domain, pointer(addr), len) != GASNET_OK) {
    compat_fatal("firehose_local_invalidate: %s", hydrant_error_text());
  }
}

void hydrant_fh_poll(hydrant_fh_t* fh) {
  if (fh == nullptr || fh->domain == 0)
    return;  // before init, after fini: conduits poll all the time
  check_call_rules(CompatCall::kWaits, "firehose_poll");
  static_cast<void>(hydrant_poll(fh->domain));
  if (fh->remote != nullptr) fh->remote->poll();
}

void* hydrant_fh_request_new(size_t bytes) {
  void* request = make_request(bytes);
  if (request == nullptr) compat_fatal("firehose: out of memory for a request of %zu bytes", bytes);
  return request;
}

void hydrant_fh_request_free(void* request) { drop_request(request); }

hydrant_pin_t hydrant_fh_try_remote_pin(hydrant_fh_t* fh, uint32_t shape, uint32_t node,
                                        uintptr_t addr, size_t len) {
  check_compat_call(fh, shape, CompatCall::kLooks, "firehose_try_remote_pin");
  if (fh->remote == nullptr) hydrant_fh_no_remote("firehose_try_remote_pin");
  return fh->remote->try_pin(node, addr, len);
}

hydrant_pin_t hydrant_fh_partial_remote_pin(hydrant_fh_t* fh, uint32_t shape, uint32_t node,
                                            uintptr_t addr, size_t len) {
  check_compat_call(fh, shape, CompatCall::kLooks, "firehose_partial_remote_pin");
  if (fh->remote == nullptr) hydrant_fh_no_remote("firehose_partial_remote_pin");
  return fh->remote->partial_pin(node, addr, len);
}

hydrant_pin_t hydrant_fh_remote_hit(hydrant_fh_t* fh, uint32_t shape, uint32_t node, uintptr_t addr,
                                    size_t len) {
  check_compat_call(fh, shape, CompatCall::kWaits, "firehose_remote_pin");
  if (fh->remote == nullptr) hydrant_fh_no_remote("firehose_remote_pin");
  return fh->remote->hit(node, addr, len);
}

hydrant_pin_t hydrant_fh_remote_pin(hydrant_fh_t* fh, uint32_t shape,
                                    const hydrant_fh_remote_request_t* pin_request) {
  const CancellationDisabled guard;
  check_compat_call(fh, shape, CompatCall::kWaits, "firehose_remote_pin");
  if (fh->remote == nullptr) hydrant_fh_no_remote("firehose_remote_pin");
  return fh->remote->pin(*pin_request);
}

void hydrant_fh_deliver(hydrant_fh_t* fh, uint32_t from, const void* message, size_t len,
                        void* reply_to) {
  const CancellationDisabled guard;
  if (fh != nullptr && fh->remote != nullptr) {
    fh->remote->deliver(from, message, len, reply_to);
    return;
  }
  log_warning(
      "firehose: a message of node %u came %s and is dropped; a barrier belongs between "
      "firehose_init and the first remote pin, and before firehose_fini",
      from, fh == nullptr ? "before firehose_init or after firehose_fini" : "after firehose_fini");
}

void hydrant_fh_no_remote(const char* function) {
  compat_fatal(
      "%s: this firehose has no remote pins: it was started with FIREHOSE_INIT_FLAG_LOCAL_ONLY, or "
      "its firehose_fwd.h gives it no way to send",
      function);
}

void hydrant_fh_unregistered() {
  compat_fatal(
      "firehose_init: the handlers of firehose_get_handlertable() have no indices; register that "
      "table, "
      "entry by entry until the one without a function, before firehose_init");
}
