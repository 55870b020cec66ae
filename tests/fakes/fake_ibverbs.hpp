// A stand-in for libibverbs: its own definitions of the functions that rdma/ibv calls, linked into the
// test program and therefore found before the library's. One process-wide set of imaginary devices on one
// imaginary network: queue pairs of this process reach each other.
//
// It keeps count of what is alive, checks what the kernel or a device would check (rights, keys, states,
// room in queues, a second deregistration), and fails the n-th call of any function on request. What is
// posted moves when anybody looks at a completion queue, in order per queue pair, and not before.
// Threads: the verbs, any; set-up and questions, between tests or from one thread.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace hydrant::fake_verbs {

enum class Call : uint32_t {
  kGetDeviceList,
  kOpenDevice,
  kCloseDevice,
  kQueryDevice,
  kAllocPd,
  kDeallocPd,
  kRegMr,
  kRegDmabufMr,
  kDeregMr,
  kQueryPort,
  kQueryGid,
  kCreateChannel,
  kDestroyChannel,
  kCreateCq,
  kResizeCq,
  kDestroyCq,
  kNotifyCq,
  kPollCq,
  kCreateSrq,
  kDestroySrq,
  kPostSrqRecv,
  kCreateQp,
  kModifyQp,
  kDestroyQp,
  kPostSend,
  kPostRecv,
  kCreateAh,
  kDestroyAh,
  kEnd,  // not a call
};
inline constexpr size_t kCalls = static_cast<size_t>(Call::kEnd);

struct Gid {
  ibv_gid gid = {};
  ibv_gid_type type = IBV_GID_TYPE_ROCE_V2;
};
// ::ffff:10.0.0.`last`
Gid ipv4_gid(uint8_t last);

struct Device {
  const char* name = "fake0";
  uint64_t max_mr_size = uint64_t{1} << 40;
  int max_mr = 1000;
  bool atomics = true;
  bool odp = false;
  bool implicit_odp = false;
  uint32_t rc_odp = IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ;  // where there is any
  bool dmabuf = true;    // its driver registers them; any open file passes for one
  bool extended = true;  // false: a provider of old, without query_device_ex
  int ports = 1;
  ibv_port_state state = IBV_PORT_ACTIVE;
  bool ethernet = true;
  uint16_t lid = 0;
  std::vector<Gid> gids = {ipv4_gid(1)};
  uint32_t max_message = 1 << 20;
  int max_cqe = 32767;
  int max_srq_wr = 32767;
  int max_qp_wr = 4096;
  uint32_t max_inline = 512;
};

// Forgets everything; no device is present afterwards.
void reset();
void add_device(const Device& device);

// The n-th call from now on (1 = the next) fails with this errno; the others pass.
void fail_call(Call call, int error, uint64_t nth = 1);
// How often it was called since reset().
uint64_t calls(Call call);

struct Live {
  size_t lists, contexts, pds, mrs;
  size_t channels = 0, cqs = 0, srqs = 0, qps = 0, ahs = 0;
  bool none() const {
    return lists + contexts + pds + mrs + channels + cqs + srqs + qps + ahs == 0;
  }
};
Live live();
// Of all registrations that there are.
size_t registered_bytes();

// The last registration that worked.
struct Registration {
  uintptr_t addr;
  size_t len;
  unsigned access;  // IBV_ACCESS_*
  uint32_t lkey, rkey;
};
Registration last_registration();

// ---- the network ----

// Nothing moves any more, or again.
void hold(bool held);
// Nothing that was posted on this device does.
void hold_device(const char* name, bool held);
// The n-th send, write or read that a connected queue pair carries out from now on fails so.
void fail_work(ibv_wc_status status, uint64_t nth = 1);
// The next `count` datagrams get lost; of those to queue pair `to`, if it is not 0.
void lose_datagrams(uint32_t count, uint32_t to = 0);
// Comes to whoever asks this context for events.
void raise_event(ibv_context* context, ibv_event_type type, int port, ibv_qp* qp);
// The connected queue pairs that there are, the oldest first.
std::vector<ibv_qp*> connected_pairs();
// A datagram to queue pair `to`, from nowhere.
void send_stray(uint32_t to, const void* data, uint32_t bytes);
// A message on the queue pair that is connected to `to`, as if its owner had sent it.
void forge(ibv_qp* to, const void* data, uint32_t bytes);

struct Traffic {
  uint64_t sends = 0, writes = 0, reads = 0, datagrams = 0, atomics = 0;
  uint64_t inline_sends = 0;   // of sends and writes
  uint64_t signalled = 0;      // of all
  uint64_t posts = 0;          // calls of ibv_post_send(), each with one or several of them
  uint64_t not_ready = 0;      // a send found no receive buffer
  uint64_t overruns = 0;       // a completion found no room
  uint64_t bad_keys = 0;       // local ones: a breach of the rules by the sender
  uint64_t too_early = 0;      // something came for a queue pair that could not receive
  uint64_t receives_left = 0;  // buffers in shared receive queues now
  size_t most_completions = 0;
};
Traffic traffic();
// The last request that was posted to a send queue, and where it lay.
struct LastPosted {
  const ibv_send_wr* at = nullptr;
  ibv_send_wr request = {};
  ibv_sge piece = {};  // the first, if there is one
};
LastPosted last_posted();
// What connected queue pairs of this device have carried out, and how many bytes that were.
struct DeviceTraffic {
  uint64_t sends = 0, writes = 0, reads = 0, bytes = 0;
};
DeviceTraffic traffic_of(const char* device);

// Forgets what a test has left registered on purpose; and everything that could not be given back.
void drop_registrations();
void forget_all();

// A context and domain opened by hand, as a client that brings its own would.
ibv_context* open_first();
ibv_pd* alloc_pd(ibv_context* context);
void close(ibv_context* context, ibv_pd* pd);
int command_fd(ibv_pd* pd);

}  // namespace hydrant::fake_verbs
