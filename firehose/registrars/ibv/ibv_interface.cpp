// Implements the C functions of include/hydrant/ibv_registrar.h over IbvRegistrar, and adds the name "ibv" to
// the registrars that domains can name. The cache calls the struct's functions on misses and evictions.
#include <hydrant/ibv_registrar.h>

#include "firehose/base/cancellation.hpp"
#include "firehose/base/log.hpp"
#include "firehose/registrars/ibv/client_registrar.hpp"
#include "firehose/registrars/ibv/ibv_registrar.hpp"
#include "firehose/registrars/ibv/registrar_handles.hpp"

#include <infiniband/verbs.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

using hydrant::Access;
using hydrant::CancellationDisabled;
using hydrant::ClientRegistrar;
using hydrant::fail;
using hydrant::IbvKey;
using hydrant::IbvRegistrar;
using hydrant::IbvRegistrarOptions;
using hydrant::last_error_text;
using hydrant::RegistrarTraits;
using hydrant::Status;
using hydrant::ibv_handles::add;
using hydrant::ibv_handles::find;
using hydrant::ibv_handles::remove;

namespace {

static_assert(sizeof(hydrant_ibv_key_t) == sizeof(IbvKey) &&
              offsetof(hydrant_ibv_key_t, lkey) == offsetof(IbvKey, lkey) &&
              offsetof(hydrant_ibv_key_t, rkey) == offsetof(IbvKey, rkey));

// Larger than any future version of a struct: a `size` beyond it is uninitialised.
constexpr size_t kAbsurdSize = 4096;
constexpr uint32_t kKnownFlags =
    HYDRANT_IBV_RELAXED_ORDERING | HYDRANT_IBV_ON_DEMAND | HYDRANT_IBV_HUGE_PAGES;

// libfirehose_ibv.so has a copy of the code that stores error texts, so a text is handed to libfirehose's.
int answer(Status status) noexcept {
  if (status != Status::kOk) hydrant_set_error_text(last_error_text());
  return static_cast<int>(status);
}

// ---- the functions of the struct ----

// A protection domain of the parent of a fork is not a result of a registrar's functions.
Status status_of_call(Status status) noexcept {
  return status == Status::kNotInit ? Status::kBroken : status;
}

// The live registrar; null, with a text, otherwise.
IbvRegistrar* find_registrar(void* user) noexcept {
  ClientRegistrar* const found = find(user);
  if (found != nullptr) [[likely]]
    return &found->registrar();
  (void)answer(fail(
      Status::kBroken,
      "the registrar over verbs was destroyed, by the end of another domain that it was given to, "
      "or by hydrant_ibv_registrar_destroy(): make one for each domain"));
  return nullptr;
}

int pin(void* user, uintptr_t addr, size_t len, uint32_t access, void* key) {
  IbvRegistrar* const self = find_registrar(user);
  if (self == nullptr) return HYDRANT_ERR_BROKEN;
  return answer(status_of_call(
      self->pin({addr, len}, static_cast<Access>(access), static_cast<std::byte*>(key))));
}

int unpin(void* user, uintptr_t addr, size_t len, const void* key) {
  IbvRegistrar* const self = find_registrar(user);
  if (self == nullptr) return HYDRANT_UNPIN_BROKEN;
  const hydrant::UnpinResult result = self->unpin({addr, len}, static_cast<const std::byte*>(key));
  if (result == hydrant::UnpinResult::kBroken) hydrant_set_error_text(last_error_text());
  return static_cast<int>(result);
}

int export_key(void* user, uintptr_t addr, size_t len, const void* key, void* blob,
               size_t* blob_len) {
  IbvRegistrar* const self = find_registrar(user);
  if (self == nullptr) return HYDRANT_ERR_BROKEN;
  return answer(self->export_key({addr, len}, static_cast<const std::byte*>(key),
                                 static_cast<std::byte*>(blob), blob_len));
}

int import_key(void* user, const void* blob, size_t len, void* key) {
  IbvRegistrar* const self = find_registrar(user);
  if (self == nullptr) return HYDRANT_ERR_BROKEN;
  return answer(
      self->import_key(static_cast<const std::byte*>(blob), len, static_cast<std::byte*>(key)));
}

int implicit_key(void* user, uint32_t access, void* key) {
  IbvRegistrar* const self = find_registrar(user);
  if (self == nullptr) return HYDRANT_ERR_BROKEN;
  return answer(status_of_call(
      self->implicit_key(static_cast<Access>(access), static_cast<std::byte*>(key))));
}

// find() forgets what is the parent's.
void forget_in_child(void* user) { (void)find(user); }

void destroy(void* user) { (void)remove(user); }

// Null if `registrar` is of another kind, cleared, or destroyed.
ClientRegistrar* registrar_of(const hydrant_registrar_t* registrar) noexcept {
  if (registrar == nullptr || registrar->pin != &pin) return nullptr;
  return find(registrar->user);
}

// ---- creation ----

Status read_options(const hydrant_ibv_options_t* from, hydrant_ibv_options_t* to) noexcept {
  hydrant_ibv_options_init(to);
  if (from == nullptr) return Status::kOk;
  if (from->size < offsetof(hydrant_ibv_options_t, reserve_bytes) || from->size > kAbsurdSize) {
    return fail(Status::kBadArg,
                "hydrant_ibv_options_t: size is %zu, not sizeof(hydrant_ibv_options_t): call "
                "hydrant_ibv_options_init()",
                from->size);
  }
  const auto* bytes = reinterpret_cast<const unsigned char*>(from);
  if (std::any_of(bytes + std::min(from->size, sizeof *to), bytes + from->size,
                  [](unsigned char byte) { return byte != 0; })) {
    return fail(Status::kUnsupported,
                "hydrant_ibv_options_t: %zu bytes, but this library knows only %zu, and later "
                "fields are not zero",
                from->size, sizeof *to);
  }
  std::memcpy(to, from, std::min(from->size, sizeof *to));
  if ((to->flags & ~kKnownFlags) != 0)
    return fail(Status::kBadArg, "hydrant_ibv_options_t: flags = %#x has unknown bits", to->flags);
  return Status::kOk;
}

Status fill(const hydrant_ibv_options_t& options, std::unique_ptr<IbvRegistrar> made,
            hydrant_registrar_t* out) noexcept {
  made->keep_back(options.reserve_bytes);
  const RegistrarTraits traits = made->traits();
  std::unique_ptr<ClientRegistrar> client(new (std::nothrow) ClientRegistrar(std::move(made)));
  if (!client) return fail(Status::kResource, "no memory for a registrar");
  hydrant_registrar_t filled{};
  filled.size = sizeof filled;
  filled.name = traits.name;
  filled.key_bytes = traits.key_bytes;
  filled.charge_scope = static_cast<uint32_t>(traits.charge_scope);
  filled.supported_access = bits(traits.supported);
  filled.granule_bytes = traits.granule_bytes;
  filled.max_region_bytes = traits.max_region_bytes;
  filled.max_regions = traits.max_regions;
  // In the C struct 0 is no limit: a limit of 0 becomes 1 byte.
  filled.max_charge_bytes = std::max<uint64_t>(traits.max_charge_bytes, 1);
  filled.export_bytes = traits.export_bytes;
  filled.pin = &pin;
  filled.unpin = &unpin;
  filled.export_key = &export_key;
  filled.import_key = &import_key;
  filled.implicit_key = &implicit_key;
  filled.forget_in_child = &forget_in_child;
  filled.destroy = &destroy;
  if (traits.unpin_before_release) filled.flags |= HYDRANT_REGISTRAR_UNPIN_BEFORE_RELEASE;
  const Status status = add(std::move(client), &filled.user);
  if (status == Status::kOk) *out = filled;
  return status;
}

// Makes a registrar by `create(options, made)`.
template <typename Create>
int make(const hydrant_ibv_options_t* options, hydrant_registrar_t* out, Create create) noexcept {
  const CancellationDisabled guard;
  if (out == nullptr) return answer(fail(Status::kBadArg, "no hydrant_registrar_t to fill"));
  hydrant_ibv_options_t wanted;
  if (const Status status = read_options(options, &wanted); status != Status::kOk)
    return answer(status);
  IbvRegistrarOptions used;
  used.relaxed_ordering = (wanted.flags & HYDRANT_IBV_RELAXED_ORDERING) != 0;
  used.on_demand = (wanted.flags & HYDRANT_IBV_ON_DEMAND) != 0;
  used.huge_pages = (wanted.flags & HYDRANT_IBV_HUGE_PAGES) != 0;
  std::unique_ptr<IbvRegistrar> made;
  if (const Status status = create(used, &made); status != Status::kOk) return answer(status);
  return answer(fill(wanted, std::move(made), out));
}

// "ibv" or "ibv:DEVICE", as registrar_name of a domain.
int open_named(const char* device_name, hydrant_registrar_t* registrar) {
  return hydrant_ibv_registrar_open(device_name, nullptr, registrar);
}

[[gnu::constructor]] void add_name() {
  if (hydrant_registrar_add("ibv", &open_named) != GASNET_OK)
    hydrant::log_warning("domains cannot name the registrar ibv: %s", hydrant_error_text());
}

}  // namespace

extern "C" {

int hydrant_ibv_registrar_create(ibv_pd* pd, const hydrant_ibv_options_t* options,
                                 hydrant_registrar_t* registrar) {
  return make(options, registrar,
              [pd](const IbvRegistrarOptions& used, std::unique_ptr<IbvRegistrar>* made) {
                return IbvRegistrar::create(pd, made, used);
              });
}

int hydrant_ibv_registrar_open(const char* device_name, const hydrant_ibv_options_t* options,
                               hydrant_registrar_t* registrar) {
  return make(options, registrar,
              [device_name](const IbvRegistrarOptions& used, std::unique_ptr<IbvRegistrar>* made) {
                return IbvRegistrar::open(device_name, made, used);
              });
}

void hydrant_ibv_registrar_destroy(hydrant_registrar_t* registrar) {
  const CancellationDisabled guard;
  if (registrar == nullptr || registrar->pin != &pin) return;
  destroy(registrar->user);
  *registrar = hydrant_registrar_t{};
}

ibv_pd* hydrant_ibv_pd(const hydrant_registrar_t* registrar) {
  ClientRegistrar* const found = registrar_of(registrar);
  return found == nullptr ? nullptr : found->registrar().protection_domain();
}

unsigned hydrant_ibv_access_flags(uint32_t access) {
  return hydrant::verbs_access(static_cast<Access>(access & HYDRANT_ACCESS_ALL));
}

uint32_t hydrant_ibv_access_rights(unsigned flags) {
  uint32_t access = HYDRANT_LOCAL_READ;
  if ((flags & IBV_ACCESS_LOCAL_WRITE) != 0) access |= HYDRANT_LOCAL_WRITE;
  if ((flags & IBV_ACCESS_REMOTE_READ) != 0) access |= HYDRANT_REMOTE_READ;
  if ((flags & IBV_ACCESS_REMOTE_WRITE) != 0) access |= HYDRANT_REMOTE_WRITE;
  if ((flags & IBV_ACCESS_REMOTE_ATOMIC) != 0) access |= HYDRANT_REMOTE_ATOMIC;
  return access;
}

int hydrant_ibv_register_dmabuf(const hydrant_registrar_t* registrar, int fd, uint64_t offset,
                                uintptr_t addr, size_t len, uint32_t access,
                                hydrant_ibv_key_t* key) {
  const CancellationDisabled guard;
  ClientRegistrar* const found = registrar_of(registrar);
  if (found == nullptr || key == nullptr) {
    return answer(
        fail(Status::kBadArg, found == nullptr
                                  ? "cannot register a dma-buf: not a registrar over verbs, or "
                                    "it was destroyed"
                                  : "cannot register a dma-buf: no key to write"));
  }
  if ((access & ~HYDRANT_ACCESS_ALL) != 0)
    return answer(
        fail(Status::kBadArg, "cannot register a dma-buf: access = %#x has unknown bits", access));
  IbvKey made;
  const Status status =
      found->register_dmabuf(fd, offset, {addr, len}, static_cast<Access>(access), &made);
  if (status == Status::kOk) *key = {made.mr, made.lkey, made.rkey};
  return answer(status_of_call(status));
}

int hydrant_ibv_deregister_dmabuf(const hydrant_registrar_t* registrar, hydrant_ibv_key_t* key) {
  const CancellationDisabled guard;
  ClientRegistrar* const found = registrar_of(registrar);
  if (found == nullptr || key == nullptr) {
    return answer(
        fail(Status::kBadArg, found == nullptr
                                  ? "cannot deregister a dma-buf: not a registrar over verbs, "
                                    "or it was destroyed"
                                  : "cannot deregister a dma-buf: no key"));
  }
  const Status status = found->deregister_dmabuf({key->mr, key->lkey, key->rkey});
  if (status == Status::kOk) *key = hydrant_ibv_key_t{};
  return answer(status);
}

}  // extern "C"
