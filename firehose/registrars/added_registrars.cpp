// Keeps the registrars that other libraries added by name. libfirehose_ibv adds "ibv" when it is loaded; the
// registrar factory looks names up.
#include "firehose/registrars/added_registrars.hpp"

#include "firehose/base/machine/stay_loaded.hpp"
#include "firehose/base/thread.hpp"

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <sched.h>

namespace hydrant {
namespace {

// A name is written before its function, which publishes it (release). Entries are never removed.
struct Added {
  std::atomic<bool> is_taken{false};
  char name[kAddedNameBytes] = "";
  std::atomic<hydrant_registrar_open_fn> open{nullptr};
};
constinit Added added[kMaxAddedRegistrars];

// Longest time that a name is between its place and its function.
constexpr uint64_t kPublishNs = 1'000'000'000;

// The function of a taken place: waits for the thread that is about to publish it. Null after kPublishNs: in
// the child of a fork, where that thread does not exist.
hydrant_registrar_open_fn published(const Added& entry) noexcept {
  hydrant_registrar_open_fn open = entry.open.load(std::memory_order_acquire);
  if (open != nullptr) return open;
  const uint64_t deadline = now_ns() + kPublishNs;
  while (open == nullptr && now_ns() < deadline) {
    sched_yield();
    open = entry.open.load(std::memory_order_acquire);
  }
  return open;
}

constexpr const char* kReserved[] = {"auto", "uring", "mlock"};

Status check_name(const char* name) noexcept {
  if (name == nullptr || *name == '\0')
    return fail(Status::kBadArg, "cannot add a registrar without a name");
  if (std::strlen(name) >= kAddedNameBytes) {
    return fail(Status::kBadArg, "cannot add registrar '%.32s': its name has more than %zu bytes",
                name, kAddedNameBytes - 1);
  }
  if (std::strchr(name, ':') != nullptr) {
    return fail(Status::kBadArg,
                "cannot add registrar '%s': a colon separates a name from its argument", name);
  }
  for (const char* reserved : kReserved) {
    if (std::strcmp(name, reserved) == 0)
      return fail(Status::kBadArg, "cannot add registrar '%s': libfirehose has one of this name",
                  name);
  }
  return Status::kOk;
}

}  // namespace

Status add_registrar(const char* name, hydrant_registrar_open_fn open) noexcept {
  if (const Status status = check_name(name); status != Status::kOk) return status;
  if (open == nullptr)
    return fail(Status::kBadArg, "cannot add registrar '%s': its function is a null pointer", name);
  // Domains call it later, and so the registrar's functions, which lie beside it.
  keep_loaded(reinterpret_cast<const void*>(open));
  for (Added& entry : added) {
    if (!entry.is_taken.exchange(true, std::memory_order_acq_rel)) {
      std::snprintf(entry.name, sizeof entry.name, "%s", name);
      entry.open.store(open, std::memory_order_release);
      return Status::kOk;
    }
    const hydrant_registrar_open_fn present = published(entry);
    if (present == nullptr || std::strcmp(entry.name, name) != 0) continue;
    if (present == open) return Status::kOk;
    return fail(Status::kBadArg,
                "cannot add registrar '%s': another library has added one of this name", name);
  }
  return fail(Status::kResource, "cannot add registrar '%s': %zu have been added, the most", name,
              kMaxAddedRegistrars);
}

hydrant_registrar_open_fn find_added_registrar(const char* wanted, const char** argument) noexcept {
  const size_t name_bytes = std::strcspn(wanted, ":");
  for (Added& entry : added) {
    const hydrant_registrar_open_fn open = entry.open.load(std::memory_order_acquire);
    if (open == nullptr || std::strlen(entry.name) != name_bytes ||
        std::strncmp(entry.name, wanted, name_bytes) != 0)
      continue;
    *argument = wanted[name_bytes] == ':' ? wanted + name_bytes + 1 : "";
    return open;
  }
  return nullptr;
}

const char* added_registrar_names(char* text, size_t room) noexcept {
  size_t used = 0;
  text[0] = '\0';
  for (Added& entry : added) {
    if (entry.open.load(std::memory_order_acquire) == nullptr || used >= room) continue;
    const int written = std::snprintf(text + used, room - used, ", %s", entry.name);
    used += static_cast<size_t>(written);
  }
  return text;
}

}  // namespace hydrant
