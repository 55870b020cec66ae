// Runs the thread that answers handshakes. Tour "first contact": with HYDRANT_IBV_CONNECT_THREAD the peer's
// handshake may be answered from here.
#include "rdma/ibv/connection/connection_thread.hpp"

#include "firehose/base/errno_text.hpp"
#include "firehose/base/log.hpp"
#include "firehose/base/thread.hpp"
#include "firehose/base/thread_without_signals.hpp"
#include "firehose/base/uncancelled.hpp"

#include <algorithm>

namespace hydrant::ibv {
namespace {

// The longest sleep if the adapter refuses to report completions.
constexpr uint64_t kUnreportedNs = 10'000'000;

}  // namespace

void ConnectionThread::start() noexcept {
  const int error = create_thread_without_signals(&thread_, run, this);
  is_running_ = error == 0;
  if (is_running_) {
    handshakes_.wake_for_contacts(own_);
    pthread_setname_np(thread_, "hydrant connect");
  } else {
    log_warning("HYDRANT_IBV_CONNECT_THREAD: cannot create the thread: %s; only polls connect",
                errno_text(error));
  }
}

void ConnectionThread::stop() noexcept {
  if (!is_running_) return;
  ends_.store(true, std::memory_order_relaxed);
  own_.wake();
  uncancelled::pthread_join(thread_, nullptr);
  is_running_ = false;
}

void ConnectionThread::close() noexcept {
  (void)own_.has_channel();
  own_.close();
}

void* ConnectionThread::run(void* self) noexcept {
  static_cast<ConnectionThread*>(self)->answer();
  return nullptr;
}

void ConnectionThread::answer() noexcept {
  while (!ends_.load(std::memory_order_relaxed)) {
    if (!own_.enter()) continue;
    const bool is_reported = handshakes_.request_notice();
    if (handshakes_.wait_and_poll() != 0) {
      // A thread may wait for what has arrived.
      others_.wake();
    } else if (!own_.was_woken()) {
      const uint64_t limit_ns = is_reported ? UINT64_MAX : now_ns() + kUnreportedNs;
      (void)own_.wait(
          std::min({limit_ns, handshakes_.next_handshake_ns(), handshakes_.next_reset_ns()}), {});
    }
    own_.leave();
    if (!own_.is_always_woken()) {
      log_warning(
          "HYDRANT_IBV_CONNECT_THREAD: the program has closed a descriptor of the thread, which "
          "ends: only polls connect");
      return;
    }
  }
}

}  // namespace hydrant::ibv
