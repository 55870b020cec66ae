// Verbs that are called through the context: posting and polling. They queue work; fake_ibverbs_network.cpp
// runs it.
#include "tests/fakes/fake_ibverbs.hpp"
#include "tests/fakes/fake_ibverbs_world.hpp"

#include <infiniband/verbs.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace hydrant::fake_verbs {
namespace {

int poll_cq(ibv_cq* cq, int count, ibv_wc* completions) {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mu);
  if (enter(Call::kPollCq) != 0) return -1;
  run();
  FakeCq& fake = *fake_of(cq);
  int found = 0;
  for (; found < count && !fake.entries.empty(); ++found) {
    const FakeCq::Entry entry = fake.entries.front();
    fake.entries.pop_front();
    completions[found] = entry.wc;
    const auto sender = w.qps.find(entry.sender);
    if (sender == w.qps.end()) continue;
    uint64_t& over = sender->second->over;
    over = std::max(over, entry.position);  // a reset has freed more
  }
  return found;
}

int req_notify_cq(ibv_cq* cq, int /*solicited_only*/) {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mu);
  if (const int error = enter(Call::kNotifyCq)) return error;
  fake_of(cq)->is_armed = true;
  return 0;
}

int post_srq_recv(ibv_srq* srq, ibv_recv_wr* request, ibv_recv_wr** bad) {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mu);
  auto& fake = *reinterpret_cast<FakeSrq*>(srq);
  for (; request != nullptr; request = request->next) {
    *bad = request;
    if (const int error = enter(Call::kPostSrqRecv)) return error;
    if (fake.buffers.size() >= fake.capacity) return ENOMEM;
    fake.buffers.push_back({request->wr_id, *request->sg_list});
  }
  return 0;
}

int post_recv(ibv_qp* qp, ibv_recv_wr* request, ibv_recv_wr** bad) {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mu);
  FakeQp& fake = *fake_of(qp);
  for (; request != nullptr; request = request->next) {
    *bad = request;
    if (const int error = enter(Call::kPostRecv)) return error;
    if (qp->srq != nullptr || fake.buffers.size() >= fake.cap.max_recv_wr) return ENOMEM;
    fake.buffers.push_back({request->wr_id, *request->sg_list});
  }
  if (qp->state == IBV_QPS_ERR) flush_pair(qp);
  return 0;
}

int post_one(FakeQp& qp, const ibv_send_wr& request) {
  World& w = world();
  if (const int error = enter(Call::kPostSend)) return error;
  if (qp.verbs.state != IBV_QPS_RTS && qp.verbs.state < IBV_QPS_SQE) return EINVAL;
  if (qp.posted - qp.over >= qp.cap.max_send_wr) return ENOMEM;
  if (request.num_sge > static_cast<int>(qp.cap.max_send_sge)) return EINVAL;
  if (fake_verbs::fake_of(qp.verbs.context)->device->is_dead) {
    ++qp.posted;
    return 0;
  }
  Work work;
  work.request = request;
  work.pieces.assign(request.sg_list, request.sg_list + request.num_sge);
  work.request.sg_list = nullptr;
  if ((request.send_flags & IBV_SEND_INLINE) != 0) {
    if (request.opcode == IBV_WR_RDMA_READ || is_atomic(request)) return EINVAL;
    for (const ibv_sge& piece : work.pieces) {
      const auto* from = reinterpret_cast<const std::byte*>(piece.addr);
      work.data.insert(work.data.end(), from, from + piece.length);
    }
    if (work.data.size() > qp.cap.max_inline_data) return EINVAL;
    ++w.traffic.inline_sends;
  }
  if ((request.send_flags & IBV_SEND_SIGNALED) != 0) ++w.traffic.signalled;
  if (qp.verbs.qp_type == IBV_QPT_UD)
    work.address = reinterpret_cast<const FakeAh*>(request.wr.ud.ah)->address;
  work.position = qp.posted++;
  work.posted_ns = w.now_ns;
  w.last_posted = {&request, request, request.num_sge > 0 ? *request.sg_list : ibv_sge{}};
  qp.work.push_back(std::move(work));
  if (qp.verbs.state == IBV_QPS_ERR) flush_pair(&qp.verbs);
  if (qp.verbs.state == IBV_QPS_SQE) flush_sends(&qp.verbs);
  return 0;
}

int post_send(ibv_qp* qp, ibv_send_wr* request, ibv_send_wr** bad) {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mu);
  ++w.traffic.posts;
  for (; request != nullptr; request = request->next) {
    *bad = request;
    if (const int error = post_one(*fake_of(qp), *request)) return error;
  }
  return 0;
}

int query_port(ibv_context* context, uint8_t number, ibv_port_attr* attributes, size_t size) {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mu);
  if (const int error = enter(Call::kQueryPort)) return error;
  const Device& facts = fake_verbs::fake_of(context)->device->facts;
  if (number == 0 || number > facts.ports) return EINVAL;
  const Device& port = facts_of(context, number);
  ibv_port_attr read{};
  read.state = port.state;
  read.link_layer = port.ethernet ? IBV_LINK_LAYER_ETHERNET : IBV_LINK_LAYER_INFINIBAND;
  read.lid = port.lid;
  read.sm_lid = port.sm_lid;
  read.flags = port.flags;
  read.active_speed = port.speed;
  read.active_width = port.width;
  read.active_mtu = IBV_MTU_1024;
  read.max_msg_sz = port.max_message;
  read.gid_tbl_len = static_cast<int>(port.gids.size());
  read.pkey_tbl_len = static_cast<uint16_t>(port.pkeys.size());
  std::memcpy(attributes, &read, std::min(size, sizeof read));
  return 0;
}

}  // namespace

void fill_operations(verbs_context* context) {
  context->query_port = &query_port;
  ibv_context_ops& operations = context->context.ops;
  operations.poll_cq = &poll_cq;
  operations.req_notify_cq = &req_notify_cq;
  operations.post_srq_recv = &post_srq_recv;
  operations.post_recv = &post_recv;
  operations.post_send = &post_send;
}

}  // namespace hydrant::fake_verbs
