// State shared by the sources of the fake: the world, and the objects in it.
#pragma once

#include "tests/fakes/fake_ibverbs.hpp"

#include <infiniband/verbs.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

namespace hydrant::fake_verbs {

// An RDMA write that a device has taken, and memory does not show yet.
struct PostedWrite {
  uint64_t addr = 0;
  std::vector<std::byte> data;
};

struct FakeDevice {
  ibv_device verbs{};  // first member: an ibv_device* of the fake is a FakeDevice*
  Device facts;
  bool is_held = false;
  bool is_on_other_node = false;
  DeviceTraffic traffic;
  bool is_dead = false;
  int modify_error = 0;  // of a dead device
  std::deque<PostedWrite> posted_writes;
};

struct FakeContext {
  verbs_context verbs{};
  FakeDevice* device = nullptr;
  std::deque<ibv_async_event> events;
};

struct Failure {
  static constexpr uint64_t kAlways = UINT64_MAX;
  int error = 0;
  uint64_t at = 0;  // the count of calls at which it fails
};

struct FakeQp;

struct FakeChannel {
  ibv_comp_channel verbs{};
  std::deque<ibv_cq*> events;
};

struct FakeCq {
  ibv_cq verbs{};
  struct Entry {
    ibv_wc wc;
    uint32_t sender = 0;    // the queue pair whose send queue it frees; 0: none
    uint64_t position = 0;  // position up to which it frees
  };
  std::deque<Entry> entries;
  size_t capacity = 0;
  int vector = 0;
  bool is_armed = false;
};

struct Buffer {
  uint64_t wr_id = 0;
  ibv_sge piece{};
};

struct FakeSrq {
  ibv_srq verbs{};
  size_t capacity = 0;
  std::deque<Buffer> buffers;
};

struct FakeAh {
  ibv_ah verbs{};
  ibv_ah_attr address{};
};

inline bool is_atomic(const ibv_send_wr& request) {
  return request.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ||
         request.opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
}

// A posted request that has not been carried out.
struct Work {
  ibv_send_wr request{};
  std::vector<ibv_sge> pieces;
  std::vector<std::byte> data;  // copied at posting, if inline
  ibv_ah_attr address{};        // copied at posting, of a datagram
  uint64_t position = 0;
  uint64_t posted_ns = 0;
  bool is_done = false;            // it was carried out before its turn
  std::optional<uint64_t> before;  // of an atomic: the word, once it was read
};

struct FakeQp {
  ibv_qp verbs{};
  ibv_qp_cap cap{};
  bool signals_all = false;
  uint32_t port = 0;
  uint16_t pkey = 0;
  ibv_ah_attr address{};  // of the destination
  uint32_t destination = 0;
  uint32_t reads_out = 0;  // RDMA reads and atomics under way at once, as their initiator
  uint32_t reads_in = 0;   // ... and as their target
  uint32_t qkey = 0;
  unsigned access = 0;
  std::deque<Work> work;
  std::deque<Buffer> buffers;
  uint64_t posted = 0;
  uint64_t over = 0;  // position up to which completions were polled
  uint8_t timeout = 0;
  uint8_t retries = 0;
  bool loses_acknowledgement = false;
  bool is_unacknowledged = false;  // the head of its work was carried out, and waits for resend()
};

struct World {
  std::mutex mu;
  std::vector<std::unique_ptr<FakeDevice>> devices;
  Failure failures[kCalls];
  uint64_t calls[kCalls] = {};
  bool lists_backwards = false;
  std::set<void*> lists;
  std::set<ibv_context*> contexts;
  std::set<ibv_pd*> pds;
  std::map<uint32_t, ibv_mr*> mrs;  // by local key
  uint32_t next_key = 0x100;
  Registration last{};
  ibv_fork_status fork_status = IBV_FORK_UNNEEDED;
  bool has_registered = false;
  std::map<ibv_mr*, unsigned> rights;

  std::set<FakeChannel*> channels;
  std::set<FakeCq*> cqs;
  std::set<FakeSrq*> srqs;
  std::map<uint32_t, FakeQp*> qps;  // by number
  std::set<FakeAh*> ahs;
  uint32_t next_qp = 0x11;
  bool is_held = false;
  ibv_wc_status work_failure = IBV_WC_SUCCESS;
  uint64_t work_fails_in = 0;
  bool only_reads_fail = false;
  uint32_t datagrams_to_lose = 0;
  uint32_t losing_queue = 0;
  Traffic traffic;
  LastPosted last_posted;
  ibv_wc_status datagram_failure = IBV_WC_SUCCESS;
  uint32_t datagrams_to_fail = 0;
  bool spares_queues = false;
  bool holds_writes = false;
  bool holds_atomics = false;
  uint64_t random = 0;
  uint64_t now_ns = 0;  // moved by elapse() alone
};

World& world();

// Counts a call; answers the errno to fail with, or 0. Requires the lock.
int enter(Call call);
// Counts a call that the device of this context may not have: EOPNOTSUPP then. Requires the lock.
int enter(Call call, ibv_context* context);

template <typename T>
T* refuse(int error) {
  errno = error;
  return nullptr;
}

FakeContext* fake_of(ibv_context* context);
// The facts of this port.
const Device& facts_of(ibv_context* context, uint32_t port);
// The kernel's answer to this address: 0, or an errno. Requires the lock.
int check_address(ibv_context* context, const ibv_ah_attr& address);
// Whether a packet that `from` sends to `address` gets to `to`. Requires the lock.
bool reaches(const FakeQp& from, const ibv_ah_attr& address, const FakeQp& to);
// Fills in the operations that are called through the context.
void fill_operations(verbs_context* context);
// Carries out all work that can progress. Requires the lock.
void run();
// Completes the work of a failed queue pair as flushed. Requires the lock.
void flush_pair(ibv_qp* qp);
// Completes the sends of a failed queue pair as flushed, and leaves its buffers. Requires the lock.
void flush_sends(ibv_qp* qp);
// Discards the work of a queue pair that is reset; completions in its queue stay there. Requires the lock.
void empty_pair(FakeQp* qp);
// Makes a descriptor of events readable.
void signal(int fd);
// Takes a write that has reached this queue pair, at once or for later, as its device does. These require the
// lock, too.
void take_write(FakeQp& there, uint64_t addr, std::vector<std::byte> data);
// Makes all writes visible that this device has taken; null: any device.
void show_writes(const FakeDevice* taken_by);
// Makes the writes visible that a read or an atomic of this queue pair's memory pushes; none on devices where
// it pushes none.
void show_before_read(FakeQp& there);
// The target's device reads what an atomic changes, unless it has done so. False: it does not write it yet.
bool read_word(const FakeQp& there, Work& work);
// Makes a number of writes visible, by chance, unless the test holds them.
void show_some_writes();
// Whether a read may pass earlier writes to this queue pair.
bool may_read_pass(const FakeQp& there);
// Whether a write to this queue pair that is sent again is executed again.
bool executes_again(const FakeQp& there);
// Whether a posted datagram uses the address handle. Requires the lock.
bool is_in_use(const ibv_ah* ah);

inline FakeCq* fake_of(ibv_cq* cq) { return reinterpret_cast<FakeCq*>(cq); }
inline FakeQp* fake_of(ibv_qp* qp) { return reinterpret_cast<FakeQp*>(qp); }

}  // namespace hydrant::fake_verbs
