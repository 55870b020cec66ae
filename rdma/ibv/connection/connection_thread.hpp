// Answers handshakes while the threads of the program compute (HYDRANT_IBV_CONNECT_THREAD). Ranks that
// contact this one need not wait for its next poll.
//
// It runs Handshakes alone: no handler, completion or callback of the program. A connection that fails is
// ended by the next poll. Nor does it read events of devices, which end connections too: the next poll or
// sleep does.
//
// Invariant: the completion queue for handshakes reports to this thread's channel. Between the request for a
// report and the sleep the thread looks for handshakes under the contact lock, so none is missed.
#pragma once

#include "firehose/base/status.hpp"
#include "rdma/ibv/connection/handshakes.hpp"
#include "rdma/ibv/device/ibv_port.hpp"
#include "rdma/ibv/queue/sleeper.hpp"

#include <atomic>
#include <pthread.h>

namespace hydrant::ibv {

class ConnectionThread {
 public:
  // `sleeper`: that of the threads that poll.
  ConnectionThread(Handshakes& handshakes, Sleeper& sleeper) noexcept
      : handshakes_(handshakes), others_(sleeper) {}

  // Makes the channel, before Handshakes::open(). Errors: kResource.
  Status open(const Port& port) noexcept { return own_.open(port, true); }
  ibv_comp_channel* channel() const noexcept { return own_.channel(); }
  // After Handshakes::open(). If no thread can be created, it logs a warning, and only polls answer.
  void start() noexcept;
  // Waits until the thread has ended.
  void stop() noexcept;
  // After Handshakes::close().
  void close() noexcept;

 private:
  static void* run(void* self) noexcept;
  void answer() noexcept;

  Handshakes& handshakes_;
  Sleeper& others_;
  Sleeper own_;
  std::atomic<bool> ends_{false};
  bool is_running_ = false;
  pthread_t thread_ = {};
};

}  // namespace hydrant::ibv
