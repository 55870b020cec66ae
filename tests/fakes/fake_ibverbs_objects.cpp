// The verbs that create, change and destroy queues, and that report ports and events.
#include "tests/fakes/fake_ibverbs_world.hpp"

#include <infiniband/verbs.h>

#include <algorithm>
#include <arpa/inet.h>
#include <cstring>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#undef ibv_query_port

using namespace hydrant::fake_verbs;

namespace {

// Takes a count from an eventfd, which may be empty.
bool take_signal(int fd) {
  uint64_t count = 0;
  return ::read(fd, &count, sizeof count) == sizeof count;
}

// Whether the context, which may be closed, is one of the domain's device.
bool is_on_device_of(const ibv_pd* pd, ibv_context* context) {
  return world().contexts.contains(context) && context->device == pd->context->device;
}

// The kernel's answer to this state change.
int check_change(const FakeQp& qp, const ibv_qp_attr& to, int mask) {
  const ibv_qp_state from = qp.verbs.state;
  if ((mask & IBV_QP_STATE) == 0) return EINVAL;
  if (to.qp_state == IBV_QPS_ERR || to.qp_state == IBV_QPS_RESET) return 0;
  const bool is_next = (from == IBV_QPS_RESET && to.qp_state == IBV_QPS_INIT) ||
                       (from == IBV_QPS_INIT && to.qp_state == IBV_QPS_RTR) ||
                       (from == IBV_QPS_RTR && to.qp_state == IBV_QPS_RTS) ||
                       (from == IBV_QPS_SQE && to.qp_state == IBV_QPS_RTS);
  if (!is_next) return EINVAL;
  const Device& facts = fake_of(qp.verbs.context)->device->facts;
  if (to.qp_state == IBV_QPS_INIT) {
    if (to.port_num == 0 || to.port_num > facts.ports) return EINVAL;
    return to.pkey_index < facts_of(qp.verbs.context, to.port_num).pkeys.size() ? 0 : EINVAL;
  }
  if (qp.verbs.qp_type != IBV_QPT_RC) return 0;
  if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) != 0 && to.max_rd_atomic > facts.max_reads) return EINVAL;
  if (to.qp_state != IBV_QPS_RTR) return 0;
  constexpr int kNeeded = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  if ((mask & kNeeded) != kNeeded || to.max_dest_rd_atomic > facts.max_reads) return EINVAL;
  return check_address(qp.verbs.context, to.ah_attr);
}

}  // namespace

namespace hydrant::fake_verbs {

const Device& facts_of(ibv_context* context, uint32_t port) {
  const Device& facts = fake_of(context)->device->facts;
  if (port < 2 || port - 2 >= facts.further_ports.size()) return facts;
  return facts.further_ports[port - 2];
}

int check_address(ibv_context* context, const ibv_ah_attr& address) {
  const Device& facts = fake_of(context)->device->facts;
  if (address.port_num == 0 || address.port_num > facts.ports) return EINVAL;
  const Device& port = facts_of(context, address.port_num);
  if (port.ethernet && port.state != IBV_PORT_ACTIVE) return ENETUNREACH;  // it has no routes
  const bool needs_grh = port.ethernet || (port.flags & IBV_QPF_GRH_REQUIRED) != 0;
  if (address.is_global == 0) return needs_grh ? EINVAL : 0;
  return address.grh.sgid_index < port.gids.size() ? 0 : EINVAL;
}

// ---- reports to tests ----

Gid ipv4_gid(uint8_t last) {
  Gid made;
  const uint8_t raw[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, last};
  std::memcpy(made.gid.raw, raw, sizeof raw);
  return made;
}

std::vector<ibv_qp*> connected_pairs() {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mu);
  std::vector<ibv_qp*> pairs;
  for (const auto& [number, qp] : w.qps) {
    if (qp->verbs.qp_type == IBV_QPT_RC) pairs.push_back(&qp->verbs);
  }
  return pairs;
}

ibv_ah_attr address_of(ibv_qp* pair) {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mu);
  return fake_of(pair)->address;
}

DeviceTraffic traffic_of(const char* device) {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mu);
  for (const auto& one : w.devices) {
    if (std::strcmp(one->facts.name, device) == 0) return one->traffic;
  }
  return {};
}

}  // namespace hydrant::fake_verbs

extern "C" {

int ibv_query_port(ibv_context*, uint8_t, _compat_ibv_port_attr*) { return EOPNOTSUPP; }

int _ibv_query_gid_ex(ibv_context* context, uint32_t port, uint32_t index, ibv_gid_entry* entry,
                      uint32_t /*flags*/, size_t /*size*/) {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mu);
  if (const int error = enter(Call::kQueryGid)) return error;
  const Device& facts = facts_of(context, port);
  if (index >= facts.gids.size()) return EINVAL;
  const Gid& found = facts.gids[index];
  *entry = {found.gid, index, port, static_cast<uint32_t>(found.type), found.interface};
  return 0;
}

int ibv_query_pkey(ibv_context* context, uint8_t port, int index, __be16* pkey) {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mu);
  if (enter(Call::kQueryPkey) != 0) return -1;
  const Device& facts = facts_of(context, port);
  if (index < 0 || static_cast<size_t>(index) >= facts.pkeys.size()) return -1;
  *pkey = htons(facts.pkeys[static_cast<size_t>(index)]);
  return 0;
}

const char* ibv_wc_status_str(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_RETRY_EXC_ERR: return "transport retry counter exceeded";
    case IBV_WC_REM_ACCESS_ERR: return "remote access error";
    case IBV_WC_WR_FLUSH_ERR: return "Work Request Flushed Error";
    default: return "another error";
  }
}

const char* ibv_event_type_str(ibv_event_type event) {
  return event == IBV_EVENT_DEVICE_FATAL ? "local catastrophic error" : "an event";
}

int ibv_get_async_event(ibv_context* context, ibv_async_event* event) {
  if (!take_signal(context->async_fd)) return -1;
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mu);
  auto& events = fake_of(context)->events;
  *event = events.front();
  events.pop_front();
  return 0;
}

void ibv_ack_async_event(ibv_async_event*) {}

// ---- completion queues ----

ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mu);
  if (const int error = enter(Call::kCreateChannel)) return refuse<ibv_comp_channel>(error);
  auto* made = new FakeChannel;
  made->verbs.context = context;
  made->verbs.fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
  w.channels.insert(made);
  return &made->verbs;
}

int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mu);
  if (const int error = enter(Call::kDestroyChannel)) return error;
  auto* fake = reinterpret_cast<FakeChannel*>(channel);
  for (const FakeCq* cq : w.cqs) {
    if (cq->verbs.channel == channel) return EBUSY;
  }
  w.channels.erase(fake);
  ::close(channel->fd);
  delete fake;
  return 0;
}

ibv_cq* ibv_create_cq(ibv_context* context, int entries, void* own, ibv_comp_channel* channel,
                      int vector) {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mu);
  if (const int error = enter(Call::kCreateCq)) return refuse<ibv_cq>(error);
  if (entries <= 0 || entries > fake_of(context)->device->facts.max_cqe)
    return refuse<ibv_cq>(EINVAL);
  if (vector < 0 || vector >= context->num_comp_vectors) return refuse<ibv_cq>(EINVAL);
  w.has_registered = true;  // drivers treat the memory of queues like that
  auto* made = new FakeCq;
  made->vector = vector;
  made->verbs.context = context;
  made->verbs.channel = channel;
  made->verbs.cq_context = own;
  made->verbs.cqe = entries;
  made->capacity = static_cast<size_t>(entries);
  w.cqs.insert(made);
  return &made->verbs;
}

int ibv_resize_cq(ibv_cq* cq, int entries) {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mu);
  if (const int error = enter(Call::kResizeCq, cq->context)) return error;
  if (entries > fake_of(cq->context)->device->facts.max_cqe) return EINVAL;
  reinterpret_cast<FakeCq*>(cq)->capacity = static_cast<size_t>(entries);
  cq->cqe = entries;
  return 0;
}

int ibv_destroy_cq(ibv_cq* cq) {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mu);
  if (const int error = enter(Call::kDestroyCq)) return error;
  for (const auto& [number, qp] : w.qps) {
    if (qp->verbs.send_cq == cq || qp->verbs.recv_cq == cq) return EBUSY;
  }
  auto* fake = reinterpret_cast<FakeCq*>(cq);
  if (cq->channel != nullptr) std::erase(reinterpret_cast<FakeChannel*>(cq->channel)->events, cq);
  w.cqs.erase(fake);
  delete fake;
  return 0;
}

int ibv_get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** own) {
  if (!take_signal(channel->fd)) return -1;
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mu);
  auto& events = reinterpret_cast<FakeChannel*>(channel)->events;
  *cq = events.front();
  *own = (*cq)->cq_context;
  events.pop_front();
  return 0;
}

void ibv_ack_cq_events(ibv_cq*, unsigned int) {}

// ---- queue pairs ----

ibv_srq* ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr* attributes) {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mu);
  if (const int error = enter(Call::kCreateSrq, pd->context)) return refuse<ibv_srq>(error);
  const Device& facts = fake_of(pd->context)->device->facts;
  const auto longest = static_cast<uint32_t>(facts.max_srq_wr);
  if (attributes->attr.max_wr > longest - (facts.refuses_longest_srq ? 1 : 0))
    return refuse<ibv_srq>(EINVAL);
  auto* made = new FakeSrq;
  made->verbs.context = pd->context;
  made->verbs.pd = pd;
  made->capacity = attributes->attr.max_wr;
  w.srqs.insert(made);
  return &made->verbs;
}

int ibv_destroy_srq(ibv_srq* srq) {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mu);
  if (const int error = enter(Call::kDestroySrq)) return error;
  for (const auto& [number, qp] : w.qps) {
    if (qp->verbs.srq == srq) return EBUSY;
  }
  auto* fake = reinterpret_cast<FakeSrq*>(srq);
  w.srqs.erase(fake);
  delete fake;
  return 0;
}

ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* attributes) {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mu);
  if (const int error = enter(Call::kCreateQp)) return refuse<ibv_qp>(error);
  const Device& facts = fake_of(pd->context)->device->facts;
  ibv_qp_cap& cap = attributes->cap;
  if (attributes->qp_type == IBV_QPT_UD ? !facts.datagrams : !facts.connections)
    return refuse<ibv_qp>(EOPNOTSUPP);
  if (facts.cuts_inline) cap.max_inline_data = std::min(cap.max_inline_data, facts.max_inline);
  if (cap.max_inline_data > facts.max_inline ||
      cap.max_send_wr > static_cast<uint32_t>(facts.max_qp_wr))
    return refuse<ibv_qp>(EINVAL);
  const auto pairs = std::count_if(w.qps.begin(), w.qps.end(), [pd](const auto& one) {
    return is_on_device_of(pd, one.second->verbs.context);
  });
  if (pairs >= facts.max_qp) return refuse<ibv_qp>(ENOMEM);
  auto* made = new FakeQp;
  made->cap = cap;
  made->signals_all = attributes->sq_sig_all != 0;
  made->verbs.context = pd->context;
  made->verbs.qp_context = attributes->qp_context;
  made->verbs.pd = pd;
  made->verbs.send_cq = attributes->send_cq;
  made->verbs.recv_cq = attributes->recv_cq;
  made->verbs.srq = attributes->srq;
  made->verbs.qp_num = w.next_qp++;
  made->verbs.state = IBV_QPS_RESET;
  made->verbs.qp_type = attributes->qp_type;
  w.qps[made->verbs.qp_num] = made;
  return &made->verbs;
}

int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask) {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mu);
  if (const int error = enter(Call::kModifyQp)) return error;
  FakeQp& fake = *reinterpret_cast<FakeQp*>(qp);
  const FakeDevice& device = *fake_of(qp->context)->device;
  if (device.is_dead) return device.modify_error;
  if (const int error = check_change(fake, *attributes, mask)) return error;
  if ((mask & IBV_QP_PORT) != 0) fake.port = attributes->port_num;
  if ((mask & IBV_QP_PKEY_INDEX) != 0)
    fake.pkey = facts_of(qp->context, fake.port).pkeys[attributes->pkey_index];
  if ((mask & IBV_QP_AV) != 0) fake.address = attributes->ah_attr;
  if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) != 0) fake.reads_out = attributes->max_rd_atomic;
  if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) != 0) fake.reads_in = attributes->max_dest_rd_atomic;
  if ((mask & IBV_QP_DEST_QPN) != 0) fake.destination = attributes->dest_qp_num;
  if ((mask & IBV_QP_QKEY) != 0) fake.qkey = attributes->qkey;
  if ((mask & IBV_QP_ACCESS_FLAGS) != 0) fake.access = attributes->qp_access_flags;
  if ((mask & IBV_QP_TIMEOUT) != 0) fake.timeout = attributes->timeout;
  if ((mask & IBV_QP_RETRY_CNT) != 0) fake.retries = attributes->retry_cnt;
  qp->state = attributes->qp_state;
  if (qp->state == IBV_QPS_ERR) flush_pair(qp);
  if (qp->state == IBV_QPS_RESET) empty_pair(&fake);
  return 0;
}

int ibv_destroy_qp(ibv_qp* qp) {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mu);
  if (const int error = enter(Call::kDestroyQp)) return error;
  w.qps.erase(qp->qp_num);
  delete reinterpret_cast<FakeQp*>(qp);
  return 0;
}

ibv_ah* ibv_create_ah(ibv_pd* pd, ibv_ah_attr* attributes) {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mu);
  if (const int error = enter(Call::kCreateAh, pd->context)) return refuse<ibv_ah>(error);
  if (const int error = check_address(pd->context, *attributes)) return refuse<ibv_ah>(error);
  const auto handles = std::count_if(w.ahs.begin(), w.ahs.end(), [pd](const FakeAh* one) {
    return is_on_device_of(pd, one->verbs.context);
  });
  if (handles >= fake_of(pd->context)->device->facts.max_ah) return refuse<ibv_ah>(ENOMEM);
  auto* made = new FakeAh;
  made->address = *attributes;
  made->verbs.context = pd->context;
  made->verbs.pd = pd;
  w.ahs.insert(made);
  return &made->verbs;
}

int ibv_destroy_ah(ibv_ah* ah) {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mu);
  if (const int error = enter(Call::kDestroyAh)) return error;
  if (is_in_use(ah)) return EBUSY;
  auto* fake = reinterpret_cast<FakeAh*>(ah);
  w.ahs.erase(fake);
  delete fake;
  return 0;
}

}  // extern "C"
