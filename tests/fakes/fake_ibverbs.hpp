// A stand-in for libibverbs: its own definitions of the functions that rdma/ibv calls, linked into the
// test program and therefore found before the library's. One process-wide set of imaginary devices.
//
// It keeps count of what is alive, checks what the kernel would check (rights, empty ranges, a second
// deregistration), and fails the n-th call of any function on request.
// Threads: the verbs, any; set-up and questions, between tests.
#pragma once

#include <cstddef>
#include <cstdint>

struct ibv_context;
struct ibv_pd;

namespace hydrant::fake_verbs {

enum class Call : uint32_t {
  kGetDeviceList,
  kOpenDevice,
  kCloseDevice,
  kQueryDevice,
  kAllocPd,
  kDeallocPd,
  kRegMr,
  kDeregMr,
};
inline constexpr size_t kCalls = 8;

struct Device {
  const char* name = "fake0";
  uint64_t max_mr_size = uint64_t{1} << 40;
  int max_mr = 1000;
  bool atomics = true;
  bool odp = false;
  bool implicit_odp = false;
  bool extended = true;  // false: a provider of old, without query_device_ex
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
  bool none() const { return lists == 0 && contexts == 0 && pds == 0 && mrs == 0; }
};
Live live();

// The last registration that worked.
struct Registration {
  uintptr_t addr;
  size_t len;
  unsigned access;  // IBV_ACCESS_*
  uint32_t lkey, rkey;
};
Registration last_registration();

// Forgets what a test has left registered on purpose.
void drop_registrations();

// A context and domain opened by hand, as a client that brings its own would.
ibv_context* open_first();
ibv_pd* alloc_pd(ibv_context* context);
void close(ibv_context* context, ibv_pd* pd);
int command_fd(ibv_pd* pd);

}  // namespace hydrant::fake_verbs
