// Keeps the registrars of libfirehose_ibv's clients by handle. ibv_interface.cpp looks a registrar up in each
// function of the struct.
#include "firehose/registrars/ibv/registrar_handles.hpp"

#include <atomic>
#include <cstddef>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>

namespace hydrant::ibv_handles {
namespace {

struct Place {
  // Odd while a registrar is live. Each life has a number of its own.
  std::atomic<uint32_t> generation{0};
  std::atomic<ClientRegistrar*> registrar{nullptr};
};
constinit Place places[kMaxRegistrars];

// Whether each registrar is of this process: a word for each place, in a page that reads 0 in a child.
using Owner = std::atomic<uint32_t>;
constexpr uint32_t kOfParent = 0, kForgetting = 1, kOwn = 2;
constexpr size_t kOwnersBytes = kMaxRegistrars * sizeof(Owner);
Owner* owners = nullptr;

void map_owners() noexcept {
  void* page =
      mmap(nullptr, kOwnersBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return;
  if (madvise(page, kOwnersBytes, MADV_WIPEONFORK) == 0) {
    owners = static_cast<Owner*>(page);
  } else {
    munmap(page, kOwnersBytes);
  }
}

uintptr_t number_of(uint32_t place, uint32_t generation) noexcept {
  return uintptr_t{generation} * kMaxRegistrars + place;
}

// Null if the handle is none of a live registrar.
Place* place_of(void* handle) noexcept {
  const auto number = reinterpret_cast<uintptr_t>(handle);
  Place& place = places[number % kMaxRegistrars];
  const uint32_t generation = place.generation.load(std::memory_order_acquire);
  const bool is_live = generation % 2 == 1;
  const auto index = static_cast<uint32_t>(number % kMaxRegistrars);
  return is_live && number_of(index, generation) == number ? &place : nullptr;
}

// Several threads of a child may come here at once: one does the work, the others wait for it.
void own(Owner& owner, ClientRegistrar& registrar) noexcept {
  uint32_t expected = kOfParent;
  if (owner.compare_exchange_strong(expected, kForgetting, std::memory_order_acquire)) {
    registrar.forget_in_child();
    owner.store(kOwn, std::memory_order_release);
  }
  while (owner.load(std::memory_order_acquire) != kOwn) sched_yield();
}

}  // namespace

Status add(std::unique_ptr<ClientRegistrar> registrar, void** handle) noexcept {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, &map_owners);
  if (owners == nullptr) {
    return fail(Status::kResource,
                "a registrar over verbs cannot be created: the system has no page that a fork "
                "clears (MADV_WIPEONFORK): free memory, or use Linux 4.14 or later");
  }
  for (uint32_t i = 0; i < kMaxRegistrars; ++i) {
    Place& place = places[i];
    uint32_t generation = place.generation.load(std::memory_order_relaxed);
    if (generation % 2 == 1 || !place.generation.compare_exchange_strong(
                                   generation, generation + 1, std::memory_order_acquire)) {
      continue;
    }
    place.registrar.store(registrar.release(), std::memory_order_relaxed);
    owners[i].store(kOwn, std::memory_order_release);
    *handle = reinterpret_cast<void*>(number_of(i, generation + 1));
    return Status::kOk;
  }
  return fail(Status::kResource,
              "a registrar over verbs cannot be created: %u are live, which is the limit of a "
              "process; destroy one, or let domains share a device by one layer",
              kMaxRegistrars);
}

ClientRegistrar* find(void* handle) noexcept {
  Place* const place = place_of(handle);
  if (place == nullptr) return nullptr;
  ClientRegistrar* const registrar = place->registrar.load(std::memory_order_relaxed);
  Owner& owner = owners[place - places];
  if (owner.load(std::memory_order_acquire) != kOwn) own(owner, *registrar);
  return registrar;
}

std::unique_ptr<ClientRegistrar> remove(void* handle) noexcept {
  ClientRegistrar* const registrar = find(handle);
  if (registrar == nullptr) return nullptr;
  Place& place = *place_of(handle);
  auto generation = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(handle) / kMaxRegistrars);
  // Fails if another thread has just ended the handle.
  if (!place.generation.compare_exchange_strong(generation, generation + 1,
                                                std::memory_order_acq_rel))
    return nullptr;
  return std::unique_ptr<ClientRegistrar>(registrar);
}

}  // namespace hydrant::ibv_handles
