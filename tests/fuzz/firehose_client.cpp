// Fuzz target: a client of firehose.h in which the input decides every step: sizes of the job, pins, releases
// in any order, a move callback without room, and released memory. Compiled for page and for region clients.
extern "C" void client_poll(void);

#include <firehose.h>

#include "tests/fuzz/fuzz_target.hpp"

#include <array>
#include <sys/mman.h>
#include <vector>

namespace hydrant::fuzz {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kPages = 64;
#ifdef FIREHOSE_PAGE
constexpr size_t kBucket = FH_BUCKET_SIZE;
#else
constexpr size_t kBucket = kPage;
#endif

struct Held {
  const firehose_request_t* request;
  uintptr_t addr;  // address reported by the library when it was taken
  size_t len;
};

// The client: one per process, like the firehose itself.
struct Client {
  Input input{nullptr, 0};
  uintptr_t memory = 0;
  std::array<uint32_t, kPages> pinned{};  // by page: registrations
  std::array<uint32_t, kPages> held{};    // by page: requests
  std::array<bool, kPages> forbidden{};
  std::vector<Held> requests;
  std::array<firehose_request_t, 32> storage{};
  std::vector<firehose_request_t*> free_storage;
  uint64_t next_registration = 1;
  bool is_short_of_room = false;
  bool is_moving = false;
};
Client client;

size_t first_page(uintptr_t addr, size_t len) {
  HYDRANT_FUZZ_CHECK(addr % kBucket == 0 && len % kBucket == 0 && len != 0);
  HYDRANT_FUZZ_CHECK(addr >= client.memory && len <= kPages * kPage &&
                     addr - client.memory <= kPages * kPage - len);
  return (addr - client.memory) / kPage;
}

#ifdef FIREHOSE_CLIENT_T
bool is_forbidden(size_t first, size_t pages) {
  for (size_t i = first; i < first + pages; ++i) {
    if (client.forbidden[i]) return true;
  }
  return false;
}
#endif

void unpin(const firehose_region_t& region) {
  const size_t first = first_page(region.addr, region.len);
#ifdef FIREHOSE_CLIENT_T
  HYDRANT_FUZZ_CHECK(region.client.addr == region.addr && region.client.len == region.len);
  if (region.client.registration == 0) return;
#endif
  for (size_t i = first; i < first + region.len / kPage; ++i) {
    HYDRANT_FUZZ_CHECK(client.pinned[i] != 0);
    --client.pinned[i];
    HYDRANT_FUZZ_CHECK(client.pinned[i] != 0 || client.held[i] == 0);
  }
}

int pin(firehose_region_t& region) {
  const size_t first = first_page(region.addr, region.len);
  const size_t pages = region.len / kPage;
#ifdef FIREHOSE_CLIENT_T
  region.client = {0, region.addr, region.len};
  if (is_forbidden(first, pages)) return GASNET_OK;
  region.client.registration = client.next_registration++;
#endif
  // Simulates a full network: the cache evicts and tries again.
  if (client.is_short_of_room && client.next_registration++ % 4 == 0) return GASNET_ERR_NOT_READY;
  for (size_t i = first; i < first + pages; ++i) ++client.pinned[i];
  return GASNET_OK;
}

void take(const firehose_request_t* request, uintptr_t addr, size_t len) {
  if (request == nullptr) return;
  HYDRANT_FUZZ_CHECK(request->node == 0);
  if (len != 0)
    HYDRANT_FUZZ_CHECK(request->addr <= addr && addr + len <= request->addr + request->len);
  const size_t first = first_page(request->addr, request->len);
  bool is_registered = true;
#ifdef FIREHOSE_CLIENT_T
  is_registered = request->client.registration != 0;
  HYDRANT_FUZZ_CHECK(request->client.addr <= request->addr);
#endif
  for (size_t i = first; is_registered && i < first + request->len / kPage; ++i)
    HYDRANT_FUZZ_CHECK(client.pinned[i] != 0);
  for (size_t i = first; is_registered && i < first + request->len / kPage; ++i) ++client.held[i];
  client.requests.push_back({request, is_registered ? request->addr : 0, request->len});
}

firehose_request_t* some_storage() {
  if (client.input.below(2) != 0 || client.free_storage.empty()) return nullptr;
  firehose_request_t* storage = client.free_storage.back();
  client.free_storage.pop_back();
  return storage;
}

void release(size_t n) {
  std::vector<const firehose_request_t*> gone;
  for (; n > 0 && !client.requests.empty(); --n) {
    const size_t k = client.input.byte() % client.requests.size();
    const Held held = client.requests[k];
    client.requests[k] = client.requests.back();
    client.requests.pop_back();
    if (held.addr != 0) {
      const size_t first = first_page(held.addr, held.len);
      for (size_t i = first; i < first + held.len / kPage; ++i) --client.held[i];
    }
    gone.push_back(held.request);
  }
  firehose_release(gone.data(), static_cast<int>(gone.size()));
  for (const firehose_request_t* request : gone) {
    const auto i = static_cast<size_t>(request - client.storage.data());
    if (request >= client.storage.data() && i < client.storage.size())
      client.free_storage.push_back(&client.storage[i]);
  }
}

void step(const firehose_info_t& info) {
  Input& input = client.input;
  const uint32_t kind = input.below(12);
  const size_t page = input.below(kPages);
  const uintptr_t addr = client.memory + page * kPage + input.byte();
  size_t len = 1 + input.below(6 * kPage);
  len = std::min(len, client.memory + kPages * kPage - addr);
  // The range's partial buckets count, too.
  if (len + kBucket >= info.max_LocalPinSize) len = 1;
  if (client.requests.size() > 20) release(4);
  firehose_request_t* storage = kind < 6 ? some_storage() : nullptr;
  const firehose_request_t* request = nullptr;
  if (kind < 3) {
    request = firehose_local_pin(addr, len, storage);
    HYDRANT_FUZZ_CHECK(request != nullptr);
  } else if (kind < 5) {
    request = firehose_try_local_pin(addr, len, storage);
  } else if (kind == 5) {
    request = firehose_partial_local_pin(addr, len, storage);
  } else if (kind < 9) {
    return release(1 + input.below(4));
  } else if (kind == 9) {
    firehose_local_invalidate(addr, len);
    return;
  } else if (kind == 10) {
    client.is_short_of_room = !client.is_short_of_room;
    return;
  } else {
    firehose_poll();
    uintptr_t bytes = 0, victims = 0;
    firehose_get_params(input.take<uint32_t>(), &bytes, &victims);
    return;
  }
  if (storage != nullptr && request == nullptr) client.free_storage.push_back(storage);
  HYDRANT_FUZZ_CHECK(storage == nullptr || request == nullptr || request == storage);
  take(request, addr, kind == 5 ? 0 : len);
}

void set_up(const uint8_t* data, size_t size) {
  if (client.memory == 0) {
    const size_t bytes = kPages * kPage + kBucket;
    void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    HYDRANT_FUZZ_CHECK(mapped != MAP_FAILED);
    client.memory = (reinterpret_cast<uintptr_t>(mapped) + kBucket - 1) / kBucket * kBucket;
  }
  client.input = Input(data, size);
  client.is_short_of_room = false;
  client.free_storage.clear();
  for (firehose_request_t& one : client.storage) client.free_storage.push_back(&one);
  for (bool& one : client.forbidden) one = false;
  if (client.input.below(2) != 0) client.forbidden[client.input.below(kPages)] = true;
}

}  // namespace
}  // namespace hydrant::fuzz

// Releases like a conduit that reaps completions, so that a waiting pin proceeds.
extern "C" void client_poll(void) {
  using namespace hydrant::fuzz;
  release(2);
}

extern "C" int firehose_move_callback(FIREHOSE_NODE_T node, const firehose_region_t* unpin_list,
                                      size_t unpin_num, firehose_region_t* pin_list,
                                      size_t pin_num) {
  using namespace hydrant::fuzz;
  HYDRANT_FUZZ_CHECK(node == 0 && !client.is_moving && pin_num == (unpin_num == 0));
  client.is_moving = true;
  for (size_t i = 0; i < unpin_num; ++i) unpin(unpin_list[i]);
  const int answer = pin_num != 0 ? pin(pin_list[0]) : GASNET_OK;
  client.is_moving = false;
  return answer;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hydrant::fuzz;
  set_up(data, size);
  const size_t bytes = (32 + client.input.below(48)) * kPage;
  size_t regions = 0, region_bytes = 0;
#ifdef FIREHOSE_REGION
  if (client.input.below(2) != 0) regions = 8 + client.input.below(32);
  if (client.input.below(2) != 0) region_bytes = (4 + client.input.below(8)) * kPage;
#endif
  firehose_info_t info;
  firehose_init(bytes, regions, region_bytes, nullptr, 0,
                FIREHOSE_INIT_FLAG_LOCAL_ONLY | FIREHOSE_INIT_FLAG_UNPIN_ON_FINI |
                    FIREHOSE_INIT_FLAG_MAY_REINIT,
                &info);
  HYDRANT_FUZZ_CHECK(info.max_LocalPinSize >= kBucket);
  while (!client.input.empty()) step(info);
  while (!client.requests.empty()) release(8);
  firehose_fini();
  for (size_t i = 0; i < kPages; ++i)
    HYDRANT_FUZZ_CHECK(client.pinned[i] == 0 && client.held[i] == 0);
  return 0;
}
