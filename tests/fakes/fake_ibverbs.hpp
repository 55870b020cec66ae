// A fake libibverbs: defines the functions that rdma/ibv calls. Linked into the test program, its definitions
// are found before the library's. It has one process-wide set of simulated devices on simulated fabrics:
// queue pairs of this process reach each other if fabric, address and partition (P_Key) match.
//
// It counts live objects, makes the checks of the kernel or a device (rights, keys, states, limits, room in
// queues, double deregistration), and makes the n-th call of any function, or each, fail on request. Posted
// work is carried out when any thread polls a completion queue, in order per queue pair, and not before.
// Threads: verbs from any; set-up and queries between tests or from one thread.
#pragma once

#include <infiniband/verbs.h>

#include <cerrno>
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
  kQueryPkey,
  kForkInit,
  kEnd,  // not a call
};
inline constexpr size_t kCalls = static_cast<size_t>(Call::kEnd);

struct Gid {
  ibv_gid gid = {};
  ibv_gid_type type = IBV_GID_TYPE_ROCE_V2;
  uint32_t interface = 0;  // index of its network interface; 0: the device does not say
};
// ::ffff:10.0.0.`last`
Gid ipv4_gid(uint8_t last);

// When memory shows an RDMA write that a device has taken and acknowledged.
enum class WriteOrder : uint32_t {
  kAtOnce,
  kOrdered,  // later, in their order; before a completion of the device, and before a read by it
  // Writes are shown later, in their order, and before a completion of the device. A read may pass earlier
  // writes of its queue pair; a resent write is repeated, perhaps after writes that follow it.
  kUnordered,
  kRelaxed,  // later, in any order; before a completion of the device; resent writes likewise
};

// A device with its ports. The facts below "ports" are those of all its ports; where ports differ,
// `further_ports` has those of port 2, port 3 and so on, and its other facts are ignored.
struct Device {
  const char* name = "fake0";
  ibv_transport_type transport = IBV_TRANSPORT_IB;
  uint64_t max_mr_size = uint64_t{1} << 40;
  int max_mr = 1000;
  bool atomics = true;
  bool atomics_with_processors = false;  // they are also atomic to processors
  bool odp = false;
  bool implicit_odp = false;
  uint32_t rc_odp = IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ;  // capabilities if ODP is offered
  bool dmabuf = true;    // the driver registers dma-bufs; any open file counts as one
  bool extended = true;  // false: an old provider, without query_device_ex
  uint32_t vendor = 0;
  int ports = 1;
  ibv_port_state state = IBV_PORT_ACTIVE;
  bool ethernet = true;
  uint16_t lid = 0;
  uint16_t sm_lid = 0;  // of the subnet manager
  std::vector<Gid> gids = {ipv4_gid(1)};
  std::vector<uint16_t> pkeys = {0xffff};
  uint8_t flags = 0;    // IBV_QPF_GRH_REQUIRED
  uint8_t speed = 32;   // of a lane, coded: 25 Gbit/s
  uint8_t width = 2;    // coded: four lanes
  uint32_t fabric = 0;  // ports reach only those of the same fabric
  uint32_t max_message = 1 << 20;
  int max_cqe = 32767;
  int max_srq_wr = 32767;            // 0: it has no shared receive queues
  bool refuses_longest_srq = false;  // one of max_srq_wr
  int max_qp_wr = 4096;
  uint32_t max_inline = 512;
  bool cuts_inline = false;  // a queue pair for more inline bytes is made, for max_inline
  int max_qp = 1000;
  int max_ah = 100'000;
  int max_reads = 16;  // RDMA reads and atomics under way at once by a queue pair, at either end
  int completion_vectors = 1;
  bool connections = true;  // queue pairs of type RC
  bool datagrams = true;    // queue pairs of type UD
  WriteOrder write_order = WriteOrder::kAtOnce;
  std::vector<Call> absent = {};  // calls that its driver lacks: kResizeCq, kCreateSrq, kCreateAh
  std::vector<Device> further_ports = {};
};
bool has_call(const Device& device, Call call);

// Resets all state; no device is present afterwards.
void reset();
void add_device(const Device& device);
// The facts of this device, which a test may change, as a subnet manager changes a LID.
Device& facts_of(const char* name);
// Later calls are made on another node: the list of devices leaves out those that exist now. They go on
// working.
void next_node();
// The list of devices is in the opposite order from now on, as on another node.
void list_backwards(bool backwards);

// The n-th call from now on (1 = the next) fails with this errno; the others pass.
void fail_call(Call call, int error, uint64_t nth = 1);
// Every call from now on fails with this errno, as of a device that does not have it; 0: none.
void fail_always(Call call, int error);
// The answer of ibv_is_fork_initialized(); reset() sets IBV_FORK_UNNEEDED. ibv_fork_init() activates a
// protection that is disabled, before the first registration or queue since reset().
void set_fork_status(ibv_fork_status status);
// Number of calls since reset().
uint64_t calls(Call call);

struct Live {
  size_t lists, contexts, pds, mrs;
  size_t channels = 0, cqs = 0, srqs = 0, qps = 0, ahs = 0;
  bool none() const {
    return lists + contexts + pds + mrs + channels + cqs + srqs + qps + ahs == 0;
  }
};
Live live();
// The completion vectors of the live completion queues, in ascending order.
std::vector<int> completion_vectors();
// Total bytes of all live registrations.
size_t registered_bytes();

// The last successful registration.
struct Registration {
  uintptr_t addr;
  size_t len;
  unsigned access;  // IBV_ACCESS_*
  uint32_t lkey, rkey;
};
Registration last_registration();

// ---- the network ----

// Stops or resumes the whole network.
void hold(bool held);
// Stops or resumes work that was posted on this device.
void hold_device(const char* name, bool held);
// The n-th send, write, read or atomic of connected queue pairs from now on fails with this status, or the
// n-th read or atomic.
void fail_work(ibv_wc_status status, uint64_t nth = 1, bool only_reads = false);
// Drops the next `count` datagrams, or only those to queue pair `to` if it is not 0.
void lose_datagrams(uint32_t count, uint32_t to = 0);
// Whether memory shows writes only when a completion or a read of their device forces it. Otherwise each poll
// shows some of them, by chance.
void hold_writes(bool held);
// Decides what chance does from now on.
void seed_writes(uint64_t seed);
// Whether an atomic that has read its word waits before it writes it. What processors and other devices write
// there meanwhile is lost; other atomics of the same device wait.
void hold_atomics(bool held);
// The next RDMA write of this queue pair is carried out but not acknowledged: the pair waits for resend().
void lose_acknowledgement(ibv_qp* pair);
// Sends that write again: it is acknowledged, and executed once more if its target's device does that. Later
// writes are acknowledged, even if there was none yet.
void resend(ibv_qp* pair);
// A context of this device that is open.
ibv_context* context_of(const char* name);
// Queues an asynchronous event on this context.
void raise_event(ibv_context* context, ibv_event_type type, int port, ibv_qp* qp);
// All connected queue pairs, the oldest first.
std::vector<ibv_qp*> connected_pairs();
// The address with which the queue pair was connected.
ibv_ah_attr address_of(ibv_qp* pair);
// Delivers a datagram without a sender to queue pair `to`.
void send_stray(uint32_t to, const void* data, uint32_t bytes);
// Sends a message to `to`, as if the owner of its connected queue pair had sent it.
void forge(ibv_qp* to, const void* data, uint32_t bytes);

struct Traffic {
  uint64_t sends = 0, writes = 0, reads = 0, datagrams = 0, atomics = 0;
  uint64_t inline_sends = 0;   // inline sends and writes
  uint64_t signalled = 0;      // signalled requests of all kinds
  uint64_t posts = 0;          // calls of ibv_post_send(), each with one or several requests
  uint64_t not_ready = 0;      // a send found no receive buffer
  uint64_t overruns = 0;       // a completion found no room
  uint64_t bad_keys = 0;       // invalid local keys: an error of the sender
  uint64_t bad_rkeys = 0;      // invalid keys of writes and reads: an error of the sender, too
  uint64_t too_early = 0;      // messages for a queue pair that was not ready to receive
  uint64_t unreachable = 0;    // datagrams whose fabric, address or partition is not the receiver's
  uint64_t receives_left = 0;  // buffers for messages in receive queues now
  size_t max_completions = 0;
};
Traffic traffic();
// The last request that was posted to a send queue, and its address.
struct LastPosted {
  const ibv_send_wr* at = nullptr;
  ibv_send_wr request = {};
  ibv_sge piece = {};  // the first, if there is one
};
LastPosted last_posted();
// Operations and bytes of this device's connected queue pairs.
struct DeviceTraffic {
  uint64_t sends = 0, writes = 0, reads = 0, bytes = 0;
};
DeviceTraffic traffic_of(const char* device);

// drop_registrations() discards registrations that a test left on purpose; forget_all() discards everything.
void drop_registrations();
void forget_all();

// Opens a context and a protection domain by hand, like a client with its own.
ibv_context* open_first();
ibv_pd* alloc_pd(ibv_context* context);
void close(ibv_context* context, ibv_pd* pd);
int command_fd(ibv_pd* pd);

// ---- failures of queue pairs (fake_ibverbs_failures.cpp) ----

// The next `count` datagrams are not sent and complete with this status: the queue pair goes to SQE.
void fail_datagrams(ibv_wc_status status, uint32_t count = 1);
// Moves the queue pair with this number to the error state and raises an event, like a fault of the adapter.
// What is posted to it is flushed, or no completion ever reports it.
void break_pair(uint32_t number, bool flushes = true);
// The device carries out and reports nothing any more. It swallows what is posted, and answers changes of
// queue pairs with this error; 0: it pretends to make them, as some drivers do.
void kill_device(const char* name, int modify_error = EIO);
// Lets time pass. A connected queue pair that is held fails when its head was posted longer ago than all its
// retries take, by the timeout and the count that it was given.
void elapse(uint64_t ms);
// Whether a datagram that is too long for its buffer leaves its queue pair as it is, and is merely lost.
void spare_queues(bool spares);

}  // namespace hydrant::fake_verbs
