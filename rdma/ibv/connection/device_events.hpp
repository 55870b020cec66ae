// Asynchronous events of the devices: failures of queue pairs, queues and ports. Threads: any.
#pragma once

#include "rdma/ibv/connection/handshakes.hpp"
#include "rdma/ibv/device/ibv_port_choice.hpp"
#include "rdma/ibv/transfer/disconnector.hpp"

namespace hydrant::ibv {

class DeviceEvents {
 public:
  DeviceEvents(const Ports& ports, Disconnector& disconnector, Handshakes& handshakes) noexcept
      : ports_(ports), disconnector_(disconnector), handshakes_(handshakes) {}
  // Reads the events that have arrived: disconnects the peers that they concern, has the queue for handshakes
  // reset, warns if a port has lost its address, and logs the others.
  void read() noexcept;

 private:
  void read_from(const Port& port) noexcept;
  void handle(const Port& port, const ibv_async_event& event) noexcept;
  template <typename Act>
  void for_each_port(const Port& port, const ibv_async_event& event, Act&& act) noexcept;

  const Ports& ports_;
  Disconnector& disconnector_;
  Handshakes& handshakes_;
};

}  // namespace hydrant::ibv
