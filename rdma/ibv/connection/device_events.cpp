// Reads the asynchronous events of devices. Tour "a rank dies": some devices report a failed queue pair here,
// and not by its completions.
#include "rdma/ibv/connection/device_events.hpp"

#include "firehose/base/log.hpp"
#include "firehose/base/uncancelled.hpp"
#include "rdma/ibv/connection/own_endpoint.hpp"

namespace hydrant::ibv {

namespace {

// Other ranks cannot say why they do not reach this one any more.
void warn_if_moved(const Port& port) noexcept {
  uint8_t gid_index = 0;
  if (confirm_address(port, nullptr, &gid_index) != Status::kOk)
    log_warning("%s", last_error_text());
}

}  // namespace

void DeviceEvents::read() noexcept {
  for (uint32_t i = 0; i < ports_.count; ++i) {
    bool is_read = false;
    for (uint32_t j = 0; j < i; ++j)
      is_read |= ports_.all[j].device.context == ports_.all[i].device.context;
    if (!is_read) read_from(ports_.all[i]);
  }
}

void DeviceEvents::read_from(const Port& port) noexcept {
  (void)port.descriptors.keep_ours(port.device.context);
  ibv_async_event event{};
  while (uncancelled::call(ibv_get_async_event, port.device.context, &event) == 0) {
    handle(port, event);
    ibv_ack_async_event(&event);
  }
}

// Calls act(port) for each port of the device of `port` that the event is about.
template <typename Act>
void DeviceEvents::for_each_port(const Port& port, const ibv_async_event& event,
                                 Act&& act) noexcept {
  for (uint32_t i = 0; i < ports_.count; ++i) {
    const Port& one = ports_.all[i];
    if (one.device.context == port.device.context && one.number == event.element.port_num) act(one);
  }
}

// Handles an event of the device of `port`.
void DeviceEvents::handle(const Port& port, const ibv_async_event& event) noexcept {
  const char* const text = ibv_event_type_str(event.event_type);
  switch (event.event_type) {
    case IBV_EVENT_DEVICE_FATAL:
    case IBV_EVENT_CQ_ERR:
    case IBV_EVENT_SRQ_ERR: {
      log_error("verbs device %s has failed: %s", port.name, text);
      const bool is_first = port.device.context == ports_.all[0].device.context;
      if (is_first) handshakes_.note_event(true);
      disconnector_.disconnect_all("the verbs device has failed", is_first);
      break;
    }
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_PATH_MIG_ERR: {
      auto* const peer = static_cast<Peer*>(event.element.qp->qp_context);
      if (peer == nullptr) {
        log_warning("%s: the handshake queue pair has failed: %s", port.name, text);
        handshakes_.note_event(false);
        break;
      }
      log_warning("the queue pair to %s has failed: %s", name_of(*peer).text, text);
      disconnector_.disconnect(*peer, "its queue pair has failed");
      break;
    }
    case IBV_EVENT_PORT_ERR:
      // Requests under way fail after their retries, unless the port comes back.
      for_each_port(port, event, [](const Port& down) {
        log_warning("%s port %u is down", down.name, down.number);
      });
      break;
    case IBV_EVENT_PORT_ACTIVE:
    case IBV_EVENT_LID_CHANGE:
    case IBV_EVENT_PKEY_CHANGE:
    case IBV_EVENT_GID_CHANGE:
    case IBV_EVENT_CLIENT_REREGISTER:
      log_debug("%s: %s", port.name, text);
      for_each_port(port, event, warn_if_moved);
      break;
    default: log_debug("%s: %s", port.name, text); break;
  }
}

}  // namespace hydrant::ibv
