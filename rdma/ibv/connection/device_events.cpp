// Reads the asynchronous events of devices. Tour "a rank dies": some devices report a failed queue pair here,
// and not by its completions.
#include "rdma/ibv/connection/device_events.hpp"

#include "firehose/base/log.hpp"
#include "firehose/base/uncancelled.hpp"

namespace hydrant::ibv {

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

// Handles an event of the device of `port`.
void DeviceEvents::handle(const Port& port, const ibv_async_event& event) noexcept {
  const char* const text = ibv_event_type_str(event.event_type);
  switch (event.event_type) {
    case IBV_EVENT_DEVICE_FATAL:
    case IBV_EVENT_CQ_ERR:
    case IBV_EVENT_SRQ_ERR:
      log_error("verbs device %s has failed: %s", port.name, text);
      disconnector_.disconnect_all("the verbs device has failed");
      break;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_PATH_MIG_ERR: {
      auto* const peer = static_cast<Peer*>(event.element.qp->qp_context);
      if (peer == nullptr) {
        log_warning("%s: the handshake queue pair has failed: %s", port.name, text);
        handshakes_.note_event();
        break;
      }
      log_warning("the queue pair to %s has failed: %s", name_of(*peer).text, text);
      disconnector_.disconnect(*peer, "its queue pair has failed");
      break;
    }
    case IBV_EVENT_PORT_ERR:
      // Requests under way fail after their retries, unless the port comes back.
      for (uint32_t i = 0; i < ports_.count; ++i) {
        const Port& down = ports_.all[i];
        if (down.device.context == port.device.context && down.number == event.element.port_num)
          log_warning("%s port %u is down", down.name, down.number);
      }
      break;
    default: log_debug("%s: %s", port.name, text); break;
  }
}

}  // namespace hydrant::ibv
