// Devices, domains and registrations; queues and the network are in fake_ibverbs_network.cpp.
#include "tests/fakes/fake_ibverbs.hpp"

#include "tests/fakes/fake_ibverbs_world.hpp"

#include <infiniband/verbs.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <mutex>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

// The header wraps these in macros or gives them inline forms; the fakes define the functions themselves.
#undef ibv_reg_mr
#undef ibv_get_device_list

namespace hydrant::fake_verbs {

World& world() {
  static World the_world;
  return the_world;
}

int enter(Call call) {
  World& w = world();
  const auto i = static_cast<size_t>(call);
  ++w.calls[i];
  const Failure& failure = w.failures[i];
  return failure.at == w.calls[i] || failure.at == Failure::kAlways ? failure.error : 0;
}

int enter(Call call, ibv_context* context) {
  const int error = enter(call);
  return has_call(fake_of(context)->device->facts, call) ? error : EOPNOTSUPP;
}

FakeContext* fake_of(ibv_context* context) {
  auto* fake = reinterpret_cast<FakeContext*>(verbs_get_ctx(context));
  if (fake == nullptr) std::abort();  // not a context from ibv_open_device() below
  return fake;
}

namespace {

void fill(const Device& facts, ibv_device_attr* attr) {
  *attr = {};
  attr->max_mr_size = facts.max_mr_size;
  attr->max_mr = facts.max_mr;
  attr->vendor_id = facts.vendor;
  attr->phys_port_cnt = static_cast<uint8_t>(facts.ports);
  attr->max_cqe = facts.max_cqe;
  attr->max_srq_wr = facts.max_srq_wr;
  attr->max_qp_wr = facts.max_qp_wr;
  attr->max_qp = facts.max_qp;
  attr->max_ah = facts.max_ah;
  attr->max_qp_rd_atom = attr->max_qp_init_rd_atom = facts.max_reads;
  attr->atomic_cap = !facts.atomics                  ? IBV_ATOMIC_NONE
                     : facts.atomics_with_processors ? IBV_ATOMIC_GLOB
                                                     : IBV_ATOMIC_HCA;
}

int query_extended(ibv_context* context, const ibv_query_device_ex_input* /*input*/,
                   ibv_device_attr_ex* attr, size_t size) {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mu);
  if (const int error = enter(Call::kQueryDevice)) return error;
  const FakeContext* fake = fake_of(context);
  // Simulates a provider without the extended query: the library falls back to the plain one.
  if (!fake->device->facts.extended) {
    --w.calls[static_cast<size_t>(Call::kQueryDevice)];
    return EOPNOTSUPP;
  }
  std::memset(attr, 0, size);
  fill(fake->device->facts, &attr->orig_attr);
  if (fake->device->facts.odp) attr->odp_caps.general_caps |= IBV_ODP_SUPPORT;
  if (fake->device->facts.odp)
    attr->odp_caps.per_transport_caps.rc_odp_caps = fake->device->facts.rc_odp;
  if (fake->device->facts.implicit_odp) attr->odp_caps.general_caps |= IBV_ODP_SUPPORT_IMPLICIT;
  return 0;
}

// The kernel's answer to invalid rights (ib_check_mr_access()) and to an empty range.
int check_registration(const Device& device, const void* addr, size_t len, unsigned access) {
  const bool remote_write = (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) != 0;
  if (remote_write && (access & IBV_ACCESS_LOCAL_WRITE) == 0) return EINVAL;
  if (len == 0) return EINVAL;
  const bool whole_space = addr == nullptr && len == SIZE_MAX;
  const bool on_demand = (access & IBV_ACCESS_ON_DEMAND) != 0;
  if (whole_space && !on_demand) return EINVAL;
  if (on_demand && !device.odp) return EOPNOTSUPP;
  return 0;
}

size_t count_registrations(const ibv_device& device) {
  World& w = world();
  // A test may have left a registration whose context is closed.
  return static_cast<size_t>(std::count_if(w.mrs.begin(), w.mrs.end(), [&](const auto& one) {
    return w.contexts.contains(one.second->context) && one.second->context->device == &device;
  }));
}

ibv_mr* register_memory(ibv_pd* pd, void* addr, size_t len, unsigned access,
                        Call call = Call::kRegMr, int error_now = 0) {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mu);
  if (const int error = enter(call)) return refuse<ibv_mr>(error);
  if (error_now != 0) return refuse<ibv_mr>(error_now);
  if (!w.pds.contains(pd)) return refuse<ibv_mr>(EBADF);
  const Device& device = fake_of(pd->context)->device->facts;
  if (const int error = check_registration(device, addr, len, access)) return refuse<ibv_mr>(error);
  const auto most = static_cast<size_t>(device.max_mr);
  if (w.mrs.size() >= most && count_registrations(*pd->context->device) >= most)
    return refuse<ibv_mr>(ENOMEM);
  w.has_registered = true;
  const uint32_t key = w.next_key++;
  auto* mr = new ibv_mr{pd->context, pd, addr, len, key, key, key | 0x80000000U};
  w.mrs[key] = mr;
  w.rights[mr] = access;
  w.last = {reinterpret_cast<uintptr_t>(addr), len, access, mr->lkey, mr->rkey};
  return mr;
}

}  // namespace

void reset() {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mu);
  w.devices.clear();
  for (auto& failure : w.failures) failure = {};
  for (auto& count : w.calls) count = 0;
  w.last = {};
  w.fork_status = IBV_FORK_UNNEEDED;
  w.has_registered = false;
  w.lists_backwards = false;
  w.is_held = false;
  w.work_fails_in = 0;
  w.datagrams_to_lose = 0;
  w.traffic = {};
  w.last_posted = {};
  w.datagrams_to_fail = 0;
  w.spares_queues = false;
  w.holds_writes = false;
  w.holds_atomics = false;
  w.random = 0;
}

bool has_call(const Device& device, Call call) {
  return std::find(device.absent.begin(), device.absent.end(), call) == device.absent.end();
}

void add_device(const Device& device) {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mu);
  auto made = std::make_unique<FakeDevice>();
  made->facts = device;
  made->verbs.transport_type = device.transport;
  std::strncpy(made->verbs.name, device.name, sizeof made->verbs.name - 1);
  w.devices.push_back(std::move(made));
}

Device& facts_of(const char* name) {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mu);
  for (const auto& device : w.devices) {
    if (std::strcmp(device->facts.name, name) == 0) return device->facts;
  }
  std::abort();
}

void next_node() {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mu);
  for (const auto& device : w.devices) device->is_on_other_node = true;
}

void list_backwards(bool backwards) {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mu);
  w.lists_backwards = backwards;
}

void fail_call(Call call, int error, uint64_t nth) {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mu);
  const auto i = static_cast<size_t>(call);
  w.failures[i] = {error, w.calls[i] + nth};
}

void fail_always(Call call, int error) {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mu);
  w.failures[static_cast<size_t>(call)] = {error, Failure::kAlways};
}

void set_fork_status(ibv_fork_status status) {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mu);
  w.fork_status = status;
}

uint64_t calls(Call call) {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mu);
  return w.calls[static_cast<size_t>(call)];
}

Live live() {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mu);
  return {w.lists.size(), w.contexts.size(), w.pds.size(), w.mrs.size(), w.channels.size(),
          w.cqs.size(),   w.srqs.size(),     w.qps.size(), w.ahs.size()};
}

std::vector<int> completion_vectors() {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mu);
  std::vector<int> vectors;
  for (const FakeCq* queue : w.cqs) vectors.push_back(queue->vector);
  std::sort(vectors.begin(), vectors.end());
  return vectors;
}

size_t registered_bytes() {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mu);
  size_t bytes = 0;
  for (const auto& [key, mr] : w.mrs) bytes += mr->length;
  return bytes;
}

Registration last_registration() {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mu);
  return w.last;
}

LastPosted last_posted() {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mu);
  return w.last_posted;
}

void drop_registrations() {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mu);
  for (const auto& [key, mr] : w.mrs) delete mr;
  w.mrs.clear();
  w.rights.clear();
}

void forget_all() {
  drop_registrations();
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mu);
  for (FakeAh* ah : w.ahs) delete ah;
  w.ahs.clear();
  for (FakeChannel* channel : w.channels) {
    ::close(channel->verbs.fd);
    delete channel;
  }
  w.channels.clear();
  for (ibv_pd* pd : w.pds) delete pd;
  w.pds.clear();
}

ibv_context* open_first() { return ibv_open_device(&world().devices.front()->verbs); }
ibv_pd* alloc_pd(ibv_context* context) { return ibv_alloc_pd(context); }
void close(ibv_context* context, ibv_pd* pd) {
  ibv_dealloc_pd(pd);
  ibv_close_device(context);
}
int command_fd(ibv_pd* pd) { return pd->context->cmd_fd; }

}  // namespace hydrant::fake_verbs

using namespace hydrant::fake_verbs;

extern "C" {

ibv_device** ibv_get_device_list(int* count) {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mu);
  if (const int error = enter(Call::kGetDeviceList)) return refuse<ibv_device*>(error);
  auto** list = new ibv_device*[w.devices.size() + 1]();
  int listed = 0;
  for (const auto& device : w.devices) {
    if (!device->is_on_other_node) list[listed++] = &device->verbs;
  }
  if (w.lists_backwards) std::reverse(list, list + listed);
  if (count != nullptr) *count = listed;
  w.lists.insert(list);
  return list;
}

void ibv_free_device_list(ibv_device** list) {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mu);
  w.lists.erase(list);
  delete[] list;
}

const char* ibv_get_device_name(ibv_device* device) { return device->name; }

ibv_context* ibv_open_device(ibv_device* device) {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mu);
  if (const int error = enter(Call::kOpenDevice)) return refuse<ibv_context>(error);
  auto* fake = new FakeContext;
  fake->device = reinterpret_cast<FakeDevice*>(device);
  fake->verbs.sz = sizeof fake->verbs;
  fake->verbs.query_device_ex = &query_extended;
  ibv_context* context = &fake->verbs.context;
  context->device = device;
  context->abi_compat = __VERBS_ABI_IS_EXTENDED;
  context->num_comp_vectors = fake->device->facts.completion_vectors;
  context->cmd_fd =
      memfd_create("command file of a fake device", MFD_CLOEXEC);  // has its own inode
  context->async_fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
  fill_operations(&fake->verbs);
  w.contexts.insert(context);
  return context;
}

int ibv_close_device(ibv_context* context) {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mu);
  if (enter(Call::kCloseDevice) != 0) return -1;
  if (w.contexts.erase(context) == 0) return -1;
  ::close(context->cmd_fd);
  ::close(context->async_fd);
  delete fake_of(context);
  return 0;
}

int ibv_query_device(ibv_context* context, ibv_device_attr* attr) {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mu);
  if (const int error = enter(Call::kQueryDevice)) return error;
  fill(fake_of(context)->device->facts, attr);
  return 0;
}

ibv_pd* ibv_alloc_pd(ibv_context* context) {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mu);
  if (const int error = enter(Call::kAllocPd)) return refuse<ibv_pd>(error);
  auto* pd = new ibv_pd{context, 1};
  w.pds.insert(pd);
  return pd;
}

int ibv_dealloc_pd(ibv_pd* pd) {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mu);
  if (const int error = enter(Call::kDeallocPd)) return error;
  for (const auto& [key, mr] : w.mrs) {
    if (mr->pd == pd) return EBUSY;
  }
  for (const auto& [number, qp] : w.qps) {
    if (qp->verbs.pd == pd) return EBUSY;
  }
  if (w.pds.erase(pd) == 0) return EINVAL;
  delete pd;
  return 0;
}

ibv_fork_status ibv_is_fork_initialized() {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mu);
  return w.fork_status;
}

int ibv_fork_init() {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mu);
  if (const int error = enter(Call::kForkInit)) return error;
  if (w.fork_status != IBV_FORK_DISABLED) return 0;
  if (w.has_registered) return EINVAL;
  w.fork_status = IBV_FORK_ENABLED;
  return 0;
}

ibv_mr* ibv_reg_mr(ibv_pd* pd, void* addr, size_t length, int access) {
  return register_memory(pd, addr, length, static_cast<unsigned>(access));
}

ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* addr, size_t length, uint64_t iova,
                         unsigned int access) {
  if (iova != reinterpret_cast<uintptr_t>(addr)) return refuse<ibv_mr>(EINVAL);
  return register_memory(pd, addr, length, access);
}

// As in the kernel: `iova` defines the addresses under which the memory is accessed.
ibv_mr* ibv_reg_dmabuf_mr(ibv_pd* pd, uint64_t offset, size_t length, uint64_t iova, int fd,
                          int access) {
  int error = 0;
  if (!fake_of(pd->context)->device->facts.dmabuf) {
    error = EOPNOTSUPP;
  } else if (fcntl(fd, F_GETFD) == -1) {
    error = EBADF;
  } else if (((offset ^ iova) & 4095) != 0) {
    error = EINVAL;
  }
  return register_memory(pd, reinterpret_cast<void*>(iova), length, static_cast<unsigned>(access),
                         Call::kRegDmabufMr, error);
}

int ibv_dereg_mr(ibv_mr* mr) {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mu);
  if (const int error = enter(Call::kDeregMr)) return error;
  if (w.rights.erase(mr) == 0) return EINVAL;
  show_writes(nullptr);
  w.mrs.erase(mr->lkey);
  delete mr;
  return 0;
}

}  // extern "C"
