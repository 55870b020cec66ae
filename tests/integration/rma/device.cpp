// Device memory as the local side of puts and gets, in a program whose fake driver reports it.
#include "tests/integration/rma/client.hpp"
#include "tests/integration/rma/fake_cuda_driver.h"

#include <string_view>

namespace rma_client {
namespace {

void put_from(void* device, gex_Rank_t rank, std::byte* far, std::string_view size) {
  const volatile size_t some = 100;
  if (size == "word") {
    answered(gex_RMA_PutBlocking(team, rank, far, device, 8, 0));
  } else if (size == "constant") {
    answered(gex_RMA_PutBlocking(team, rank, far, device, 48, 0));
  } else if (size == "some") {
    answered(gex_RMA_PutBlocking(team, rank, far, device, some, 0));
  } else if (size == "implicit") {
    answered(gex_RMA_PutNBI(team, rank, far, device, some, GEX_EVENT_DEFER, 0));
  } else {
    const hydrant_rma_op_t op = {rank, far, device, 100};
    answered(hydrant_put_many(team, &op, 1, 100, nullptr));
  }
}

void get_to(void* device, gex_Rank_t rank, std::byte* far, std::string_view size) {
  const volatile size_t some = 100;
  if (size == "word") {
    answered(gex_RMA_GetBlocking(team, device, rank, far, 8, 0));
  } else if (size == "constant") {
    answered(gex_RMA_GetBlocking(team, device, rank, far, 48, 0));
  } else if (size == "some") {
    answered(gex_RMA_GetBlocking(team, device, rank, far, some, 0));
  } else if (size == "implicit") {
    answered(gex_RMA_GetNBI(team, device, rank, far, some, 0));
  } else {
    const hydrant_rma_op_t op = {rank, far, device, 100};
    answered(hydrant_get_many(team, &op, 1, 100, nullptr));
  }
}

}  // namespace

void use_device(const char* direction, const char* place, const char* size_name) {
  if (me == 0) {
    auto* const device = reinterpret_cast<void*>(uintptr_t{FAKE_DEVICE_FIRST} + 64);
    const bool is_self = std::string_view(place) == "self";
    const gex_Rank_t rank = is_self ? me : size - 1;
    std::byte* const far = area(rank, std::string_view(place) == "mapped" ? kSegment : kHeap);
    // After its first call a thread may inline, because it knows the peer's segment.
    uint64_t word = 1;
    gasnet_put(rank, far, &word, sizeof word);
    if (std::string_view(direction) == "put") {
      put_from(device, rank, far, size_name);
    } else {
      get_to(device, rank, far, size_name);
    }
    gasnet_get(&word, rank, far, sizeof word);
    if (word != 1) wrong("something was put");
  }
}

}  // namespace rma_client
