// Failures of queue pairs: controls for tests, and the verbs by which a client finds out and recovers.
#include "tests/fakes/fake_ibverbs.hpp"
#include "tests/fakes/fake_ibverbs_world.hpp"

#include <infiniband/verbs.h>

#include <algorithm>
#include <cstring>

namespace hydrant::fake_verbs {

void empty_pair(FakeQp* qp) {
  qp->work.clear();
  qp->buffers.clear();
  qp->over = qp->posted;
  qp->is_unacknowledged = false;
}

bool is_in_use(const ibv_ah* ah) {
  for (const auto& [number, qp] : world().qps) {
    if (qp->verbs.qp_type != IBV_QPT_UD) continue;
    for (const Work& work : qp->work) {
      if (work.request.wr.ud.ah == ah) return true;
    }
  }
  return false;
}

void fail_datagrams(ibv_wc_status status, uint32_t count) {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mu);
  w.datagram_failure = status;
  w.datagrams_to_fail = count;
}

void break_pair(uint32_t number, bool flushes) {
  ibv_qp* pair = nullptr;
  {
    World& w = world();
    const std::lock_guard<std::mutex> lock(w.mu);
    pair = &w.qps.at(number)->verbs;
    if (!flushes) empty_pair(fake_of(pair));
    flush_pair(pair);
  }
  raise_event(pair->context, IBV_EVENT_QP_FATAL, 0, pair);
}

void kill_device(const char* name, int modify_error) {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mu);
  for (const auto& device : w.devices) {
    if (std::strcmp(device->facts.name, name) != 0) continue;
    device->is_dead = true;
    device->modify_error = modify_error;
  }
}

ibv_context* context_of(const char* name) {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mu);
  const auto found = std::find_if(w.contexts.begin(), w.contexts.end(), [&](ibv_context* context) {
    return std::strcmp(fake_of(context)->device->facts.name, name) == 0;
  });
  return found != w.contexts.end() ? *found : nullptr;
}

void raise_event(ibv_context* context, ibv_event_type type, int port, ibv_qp* qp) {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mu);
  ibv_async_event event{};
  event.event_type = type;
  if (qp != nullptr) {
    event.element.qp = qp;
  } else {
    event.element.port_num = port;
  }
  fake_of(context)->events.push_back(event);
  signal(context->async_fd);
}

void spare_queues(bool spares) {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mu);
  w.spares_queues = spares;
}

}  // namespace hydrant::fake_verbs

using namespace hydrant::fake_verbs;

extern "C" int ibv_query_qp(ibv_qp* qp, ibv_qp_attr* attributes, int /*mask*/,
                            ibv_qp_init_attr* created) {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mu);
  *attributes = {};
  *created = {};
  attributes->qp_state = qp->state;
  return 0;
}
