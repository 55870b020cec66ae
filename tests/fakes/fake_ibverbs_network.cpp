// Carries out queued work between queue pairs, and implements the network controls for tests.
#include "tests/fakes/fake_ibverbs.hpp"
#include "tests/fakes/fake_ibverbs_world.hpp"

#include <infiniband/verbs.h>

#include <algorithm>
#include <cstring>
#include <unistd.h>

namespace hydrant::fake_verbs {

void signal(int fd) {
  const uint64_t one = 1;
  if (::write(fd, &one, sizeof one) != sizeof one) std::abort();
}

namespace {

constexpr uint32_t kGrhBytes = 40;

void complete(FakeCq& cq, const FakeCq::Entry& entry) {
  World& w = world();
  show_writes(fake_of(cq.verbs.context)->device);
  if (cq.entries.size() >= cq.capacity) {
    ++w.traffic.overruns;
    return;
  }
  cq.entries.push_back(entry);
  w.traffic.max_completions = std::max(w.traffic.max_completions, cq.entries.size());
  if (!cq.is_armed || cq.verbs.channel == nullptr) return;
  cq.is_armed = false;
  reinterpret_cast<FakeChannel*>(cq.verbs.channel)->events.push_back(&cq.verbs);
  signal(cq.verbs.channel->fd);
}

void complete_send(FakeQp& qp, const Work& work, ibv_wc_status status) {
  const bool told = status != IBV_WC_SUCCESS || qp.signals_all ||
                    (work.request.send_flags & IBV_SEND_SIGNALED) != 0;
  if (!told) return;
  FakeCq::Entry entry{};
  entry.wc.wr_id = work.request.wr_id;
  entry.wc.status = status;
  entry.wc.qp_num = qp.verbs.qp_num;
  entry.sender = qp.verbs.qp_num;
  entry.position = work.position + 1;
  complete(*fake_of(qp.verbs.send_cq), entry);
}

void complete_receive(FakeQp& qp, const Buffer& buffer, uint32_t bytes, ibv_wc_status status) {
  FakeCq::Entry entry{};
  entry.wc.wr_id = buffer.wr_id;
  entry.wc.status = status;
  entry.wc.opcode = IBV_WC_RECV;
  entry.wc.byte_len = bytes;
  entry.wc.qp_num = qp.verbs.qp_num;
  complete(*fake_of(qp.verbs.recv_cq), entry);
}

void flush_work(FakeQp& qp) {
  while (!qp.work.empty()) {
    const Work work = std::move(qp.work.front());
    qp.work.pop_front();
    complete_send(qp, work, IBV_WC_WR_FLUSH_ERR);
  }
}

void flush(FakeQp& qp) {
  qp.verbs.state = IBV_QPS_ERR;
  for (const Buffer& buffer : qp.buffers) complete_receive(qp, buffer, 0, IBV_WC_WR_FLUSH_ERR);
  qp.buffers.clear();
  flush_work(qp);
}

// Whether a registration covers the range and grants the rights.
bool allows(const ibv_mr* mr, uint64_t addr, uint64_t bytes, unsigned rights) {
  const auto first = reinterpret_cast<uintptr_t>(mr->addr);
  return addr >= first && addr + bytes <= first + mr->length &&
         (world().rights[const_cast<ibv_mr*>(mr)] & rights) == rights;
}

bool local_allows(const FakeQp& qp, const ibv_sge& piece, unsigned rights) {
  World& w = world();
  const auto found = w.mrs.find(piece.lkey);
  return found != w.mrs.end() && found->second->pd == qp.verbs.pd &&
         allows(found->second, piece.addr, piece.length, rights);
}

bool remote_allows(const FakeQp& there, uint32_t rkey, uint64_t addr, uint64_t bytes,
                   unsigned rights) {
  if (bytes == 0) return true;
  if ((there.access & rights) != rights) return false;
  for (const auto& [key, mr] : world().mrs) {
    if (mr->rkey == rkey && mr->pd == there.verbs.pd) return allows(mr, addr, bytes, rights);
  }
  return false;
}

uint64_t length_of(const Work& work) {
  if ((work.request.send_flags & IBV_SEND_INLINE) != 0) return work.data.size();
  uint64_t bytes = 0;
  for (const ibv_sge& piece : work.pieces) bytes += piece.length;
  return bytes;
}

// Reads the data to send; false if a local key does not permit it.
bool gather(const FakeQp& qp, const Work& work, std::vector<std::byte>* data) {
  if ((work.request.send_flags & IBV_SEND_INLINE) != 0) {
    *data = work.data;
    return true;
  }
  for (const ibv_sge& piece : work.pieces) {
    if (!local_allows(qp, piece, 0)) {
      ++world().traffic.bad_keys;
      return false;
    }
    const auto* from = reinterpret_cast<const std::byte*>(piece.addr);
    data->insert(data->end(), from, from + piece.length);
  }
  return true;
}

enum class Outcome { kDone, kBlocked, kFailed };

// Executes an atomic operation on 8 bytes of `there`; writes the old value to the local piece.
Outcome change_word(const FakeQp& qp, FakeQp& there, Work& work, ibv_wc_status* status) {
  World& w = world();
  const auto& what = work.request.wr.atomic;
  if (what.remote_addr % sizeof(uint64_t) != 0) {
    *status = IBV_WC_REM_INV_REQ_ERR;
    return Outcome::kFailed;
  }
  if (!remote_allows(there, what.rkey, what.remote_addr, sizeof(uint64_t),
                     IBV_ACCESS_REMOTE_ATOMIC)) {
    *status = IBV_WC_REM_ACCESS_ERR;
    return Outcome::kFailed;
  }
  if (length_of(work) != sizeof(uint64_t) ||
      !local_allows(qp, work.pieces[0], IBV_ACCESS_LOCAL_WRITE)) {
    ++w.traffic.bad_keys;
    *status = IBV_WC_LOC_PROT_ERR;
    return Outcome::kFailed;
  }
  show_before_read(there);
  if (!read_word(there, work)) return Outcome::kBlocked;
  uint64_t& word = *reinterpret_cast<uint64_t*>(what.remote_addr);
  const uint64_t before = *work.before;
  if (work.request.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    word = before + what.compare_add;
  } else if (before == what.compare_add) {
    word = what.swap;
  }
  std::memcpy(reinterpret_cast<void*>(work.pieces[0].addr), &before, sizeof before);
  ++w.traffic.atomics;
  return Outcome::kDone;
}

// Writes data into a receive buffer of `there`.
Outcome put_into_buffer(FakeQp& there, const std::vector<std::byte>& data, uint32_t offset) {
  World& w = world();
  auto* srq = reinterpret_cast<FakeSrq*>(there.verbs.srq);
  std::deque<Buffer>& buffers = srq != nullptr ? srq->buffers : there.buffers;
  if (buffers.empty()) {
    ++w.traffic.not_ready;
    return Outcome::kBlocked;
  }
  const Buffer buffer = buffers.front();
  buffers.pop_front();
  const auto bytes = static_cast<uint32_t>(data.size()) + offset;
  if (bytes > buffer.piece.length || !local_allows(there, buffer.piece, IBV_ACCESS_LOCAL_WRITE)) {
    complete_receive(there, buffer, bytes, IBV_WC_LOC_LEN_ERR);
    if (there.verbs.qp_type != IBV_QPT_UD || !w.spares_queues) flush(there);
    return Outcome::kFailed;
  }
  std::memcpy(reinterpret_cast<std::byte*>(buffer.piece.addr) + offset, data.data(), data.size());
  complete_receive(there, buffer, bytes, IBV_WC_SUCCESS);
  return Outcome::kDone;
}

Outcome carry_out(FakeQp& qp, FakeQp& there, Work& work, ibv_wc_status* status) {
  World& w = world();
  if (is_atomic(work.request)) {
    const Outcome outcome = change_word(qp, there, work, status);
    if (outcome == Outcome::kFailed && *status != IBV_WC_LOC_PROT_ERR) flush(there);
    return outcome;
  }
  const uint64_t bytes = length_of(work);
  std::vector<std::byte> data;
  if (work.request.opcode != IBV_WR_RDMA_READ && !gather(qp, work, &data)) {
    *status = IBV_WC_LOC_PROT_ERR;
    return Outcome::kFailed;
  }
  switch (work.request.opcode) {
    case IBV_WR_SEND: {
      *status = IBV_WC_REM_INV_REQ_ERR;
      const Outcome outcome = put_into_buffer(there, data, 0);
      if (outcome == Outcome::kDone) ++w.traffic.sends;
      return outcome;
    }
    case IBV_WR_RDMA_WRITE: {
      const auto& to = work.request.wr.rdma;
      if (!remote_allows(there, to.rkey, to.remote_addr, bytes, IBV_ACCESS_REMOTE_WRITE)) break;
      take_write(there, to.remote_addr, std::move(data));
      ++w.traffic.writes;
      return Outcome::kDone;
    }
    case IBV_WR_RDMA_READ: {
      const auto& from = work.request.wr.rdma;
      if (!remote_allows(there, from.rkey, from.remote_addr, bytes, IBV_ACCESS_REMOTE_READ)) break;
      show_before_read(there);
      uint64_t done = 0;
      for (const ibv_sge& piece : work.pieces) {
        if (!local_allows(qp, piece, IBV_ACCESS_LOCAL_WRITE)) {
          ++w.traffic.bad_keys;
          *status = IBV_WC_LOC_PROT_ERR;
          return Outcome::kFailed;
        }
        std::memcpy(reinterpret_cast<void*>(piece.addr),
                    reinterpret_cast<const void*>(from.remote_addr + done), piece.length);
        done += piece.length;
      }
      ++w.traffic.reads;
      return Outcome::kDone;
    }
    default: std::abort();
  }
  ++w.traffic.bad_rkeys;
  flush(there);
  *status = IBV_WC_REM_ACCESS_ERR;
  return Outcome::kFailed;
}

void fail_work_of(FakeQp& qp, ibv_wc_status status) {
  const Work work = std::move(qp.work.front());
  qp.work.pop_front();
  complete_send(qp, work, status);
  flush(qp);
}

void count_work(const FakeQp& qp, const Work& work) {
  DeviceTraffic& traffic = fake_verbs::fake_of(qp.verbs.context)->device->traffic;
  switch (work.request.opcode) {
    case IBV_WR_SEND: ++traffic.sends; break;
    case IBV_WR_RDMA_READ: ++traffic.reads; break;
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
    case IBV_WR_ATOMIC_CMP_AND_SWP: break;  // counted for the whole network only
    default: ++traffic.writes; break;
  }
  traffic.bytes += length_of(work);
}

bool is_read(const Work& work) {
  return work.request.opcode == IBV_WR_RDMA_READ || is_atomic(work.request);
}

// Whether the initiator has more reads and atomics under way at once than the target's queue pair accepts.
bool exceeds_reads(const FakeQp& qp, const FakeQp& there) {
  uint32_t under_way = 0;
  for (const Work& work : qp.work) {
    if (!is_read(work) || under_way == qp.reads_out) break;
    ++under_way;
  }
  return under_way > there.reads_in;
}

// Carries out the first read behind nothing but writes, if reads pass writes. It completes in its turn.
void let_read_pass(FakeQp& qp, FakeQp& there) {
  if (!may_read_pass(there)) return;
  for (Work& work : qp.work) {
    if (work.request.opcode == IBV_WR_RDMA_WRITE) continue;
    ibv_wc_status status = IBV_WC_SUCCESS;
    if (is_read(work) && !work.is_done)
      work.is_done = carry_out(qp, there, work, &status) == Outcome::kDone;
    return;
  }
}

// Behind a write that has to be sent again, those that follow are carried out. They complete in their turn.
void let_writes_pass(FakeQp& qp) {
  if (!qp.is_unacknowledged) return;
  const auto found = world().qps.find(qp.destination);
  if (found == world().qps.end() || !executes_again(*found->second)) return;
  for (size_t i = 1; i < qp.work.size(); ++i) {
    Work& work = qp.work[i];
    ibv_wc_status status = IBV_WC_SUCCESS;
    if (work.request.opcode != IBV_WR_RDMA_WRITE) return;
    if (!work.is_done)
      work.is_done = carry_out(qp, *found->second, work, &status) == Outcome::kDone;
    if (!work.is_done) return;
  }
}

void run_connected(FakeQp& qp) {
  World& w = world();
  let_writes_pass(qp);
  while (!qp.work.empty() && qp.verbs.state == IBV_QPS_RTS && !qp.is_unacknowledged) {
    const auto found = w.qps.find(qp.destination);
    FakeQp* there = found != w.qps.end() ? found->second : nullptr;
    // The acknowledgement has to get back, too.
    const bool hears = there != nullptr && there->destination == qp.verbs.qp_num &&
                       !fake_verbs::fake_of(there->verbs.context)->device->is_dead &&
                       (there->verbs.state == IBV_QPS_RTR || there->verbs.state == IBV_QPS_RTS) &&
                       reaches(qp, qp.address, *there) && reaches(*there, there->address, qp);
    if (!hears) {
      if (there != nullptr && there->verbs.state < IBV_QPS_RTR) ++w.traffic.too_early;
      fail_work_of(qp, IBV_WC_RETRY_EXC_ERR);
      return;
    }
    const bool may_fail = w.work_fails_in != 0 && (!w.only_reads_fail || is_read(qp.work.front()));
    if (may_fail && --w.work_fails_in == 0) {
      fail_work_of(qp, w.work_failure);
      return;
    }
    if (exceeds_reads(qp, *there)) {
      fail_work_of(qp, IBV_WC_REM_INV_REQ_ERR);
      flush(*there);
      return;
    }
    let_read_pass(qp, *there);
    ibv_wc_status status = IBV_WC_SUCCESS;
    const Outcome outcome =
        qp.work.front().is_done ? Outcome::kDone : carry_out(qp, *there, qp.work.front(), &status);
    if (outcome == Outcome::kBlocked) {
      if (may_fail) ++w.work_fails_in;
      return;
    }
    if (outcome == Outcome::kFailed) {
      fail_work_of(qp, status);
      return;
    }
    if (qp.loses_acknowledgement && qp.work.front().request.opcode == IBV_WR_RDMA_WRITE) {
      qp.loses_acknowledgement = false;
      qp.is_unacknowledged = true;
      return;
    }
    const Work work = std::move(qp.work.front());
    qp.work.pop_front();
    count_work(qp, work);
    complete_send(qp, work, IBV_WC_SUCCESS);
  }
}

void deliver_datagram(uint32_t to, uint32_t qkey, const std::vector<std::byte>& data) {
  World& w = world();
  const auto found = w.qps.find(to);
  if (found == w.qps.end()) return;
  FakeQp& there = *found->second;
  if (there.verbs.qp_type != IBV_QPT_UD || there.qkey != qkey || there.buffers.empty()) return;
  (void)put_into_buffer(there, data, kGrhBytes);
  ++w.traffic.datagrams;
}

void run_datagrams(FakeQp& qp) {
  World& w = world();
  while (!qp.work.empty() && qp.verbs.state == IBV_QPS_RTS) {
    const Work work = std::move(qp.work.front());
    qp.work.pop_front();
    std::vector<std::byte> data;
    const bool allowed = gather(qp, work, &data);
    const bool fails = w.datagrams_to_fail != 0;
    if (fails) --w.datagrams_to_fail;
    if (fails || !allowed) {
      complete_send(qp, work, fails ? w.datagram_failure : IBV_WC_LOC_PROT_ERR);
      qp.verbs.state = IBV_QPS_SQE;
      flush_work(qp);
      return;
    }
    complete_send(qp, work, IBV_WC_SUCCESS);
    const uint32_t to = work.request.wr.ud.remote_qpn;
    const auto found = w.qps.find(to);
    if (w.datagrams_to_lose != 0 && (w.losing_queue == 0 || w.losing_queue == to)) {
      --w.datagrams_to_lose;
    } else if (found != w.qps.end() && !reaches(qp, work.address, *found->second)) {
      ++w.traffic.unreachable;
    } else {
      deliver_datagram(to, work.request.wr.ud.remote_qkey, data);
    }
  }
}

// Two ports talk if their partitions are one, and one of them at least is a full member.
bool do_partitions_match(uint16_t one, uint16_t other) {
  constexpr uint16_t kFull = 0x8000;
  return ((one ^ other) & ~kFull & 0xffff) == 0 && ((one | other) & kFull) != 0;
}

}  // namespace

bool reaches(const FakeQp& from, const ibv_ah_attr& address, const FakeQp& to) {
  const Device& here = facts_of(from.verbs.context, from.port);
  const Device& there = facts_of(to.verbs.context, to.port);
  if (here.fabric != there.fabric || here.ethernet != there.ethernet ||
      !do_partitions_match(from.pkey, to.pkey))
    return false;
  const auto is_there = [&](const Gid& gid) {
    return std::memcmp(gid.gid.raw, address.grh.dgid.raw, sizeof gid.gid.raw) == 0 &&
           (!here.ethernet || gid.type == here.gids[address.grh.sgid_index].type);
  };
  const bool has_gid =
      address.is_global != 0 && std::any_of(there.gids.begin(), there.gids.end(), is_there);
  if (here.ethernet) return has_gid;
  return address.dlid == there.lid && (has_gid || (there.flags & IBV_QPF_GRH_REQUIRED) == 0);
}

void run() {
  World& w = world();
  if (w.is_held) return;
  show_some_writes();
  for (const auto& [number, qp] : w.qps) {
    if (qp->work.empty()) continue;
    const FakeDevice& device = *fake_of(qp->verbs.context)->device;
    if (device.is_held || device.is_dead) continue;
    if (qp->verbs.qp_type == IBV_QPT_UD) {
      run_datagrams(*qp);
    } else {
      run_connected(*qp);
    }
  }
}

void flush_pair(ibv_qp* qp) { flush(*fake_of(qp)); }

void flush_sends(ibv_qp* qp) { flush_work(*fake_of(qp)); }

// ---- controls for tests ----

void hold(bool held) {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mu);
  w.is_held = held;
}

void hold_device(const char* name, bool held) {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mu);
  for (const auto& device : w.devices) {
    if (std::strcmp(device->facts.name, name) == 0) device->is_held = held;
  }
}

void fail_work(ibv_wc_status status, uint64_t nth, bool only_reads) {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mu);
  w.work_failure = status;
  w.work_fails_in = nth;
  w.only_reads_fail = only_reads;
}

void lose_datagrams(uint32_t count, uint32_t to) {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mu);
  w.datagrams_to_lose = count;
  w.losing_queue = to;
}

void send_stray(uint32_t to, const void* data, uint32_t bytes) {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mu);
  const auto* first = static_cast<const std::byte*>(data);
  const auto found = w.qps.find(to);
  if (found != w.qps.end()) deliver_datagram(to, found->second->qkey, {first, first + bytes});
}

void forge(ibv_qp* to, const void* data, uint32_t bytes) {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mu);
  const auto* first = static_cast<const std::byte*>(data);
  (void)put_into_buffer(*fake_of(to), {first, first + bytes}, 0);
}

void elapse(uint64_t ms) {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mu);
  w.now_ns += ms * 1'000'000;
  for (const auto& [number, qp] : w.qps) {
    if (qp->work.empty()) continue;
    const bool is_held = w.is_held || fake_of(qp->verbs.context)->device->is_held;
    if (!is_held || qp->verbs.state != IBV_QPS_RTS || qp->timeout == 0) continue;
    const uint64_t gives_up_ns = (qp->retries + uint64_t{1}) * (uint64_t{4096} << qp->timeout);
    if (w.now_ns - qp->work.front().posted_ns >= gives_up_ns)
      fail_work_of(*qp, IBV_WC_RETRY_EXC_ERR);
  }
}

Traffic traffic() {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mu);
  Traffic now = w.traffic;
  for (const FakeSrq* srq : w.srqs) now.receives_left += srq->buffers.size();
  for (const auto& [number, qp] : w.qps) {
    if (qp->verbs.qp_type == IBV_QPT_RC) now.receives_left += qp->buffers.size();
  }
  return now;
}

}  // namespace hydrant::fake_verbs
