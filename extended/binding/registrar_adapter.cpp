// Forwards C functions to a transport's Registrar. firehose_binding.cpp passes them to the pin cache.
#include "extended/binding/registrar_adapter.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace hydrant {
namespace {

static_assert(static_cast<int>(UnpinResult::kDone) == HYDRANT_UNPIN_DONE &&
              static_cast<int>(UnpinResult::kPending) == HYDRANT_UNPIN_PENDING &&
              static_cast<int>(UnpinResult::kBroken) == HYDRANT_UNPIN_BROKEN);

Registrar& registrar_of(void* user) noexcept { return *static_cast<Registrar*>(user); }
std::byte* bytes_of(void* key) noexcept { return static_cast<std::byte*>(key); }
const std::byte* bytes_of(const void* key) noexcept { return static_cast<const std::byte*>(key); }

// Copies the error text: libhydrant and libfirehose each have their own copy of firehose/base, and
// clients of the cache read the latter's text.
int with_error_text(Status status) noexcept {
  if (status != Status::kOk) hydrant_set_error_text(last_error_text());
  return to_c(status);
}

int pin(void* user, uintptr_t addr, size_t len, uint32_t access, void* key) {
  return with_error_text(
      registrar_of(user).pin({addr, len}, static_cast<Access>(access), bytes_of(key)));
}
int unpin(void* user, uintptr_t addr, size_t len, const void* key) {
  return static_cast<int>(registrar_of(user).unpin({addr, len}, bytes_of(key)));
}
uint64_t charge(void* user, uintptr_t addr, size_t len) {
  return registrar_of(user).charge({addr, len});
}
uint64_t pending_charge(void* user) { return registrar_of(user).pending_charge(); }
int export_key(void* user, uintptr_t addr, size_t len, const void* key, void* blob,
               size_t* blob_len) {
  return with_error_text(
      registrar_of(user).export_key({addr, len}, bytes_of(key), bytes_of(blob), blob_len));
}
int import_key(void* user, const void* blob, size_t len, void* key) {
  return with_error_text(registrar_of(user).import_key(bytes_of(blob), len, bytes_of(key)));
}
void drop_import(void* user, const void* key) { registrar_of(user).drop_import(bytes_of(key)); }
int implicit_key(void* user, uint32_t access, void* key) {
  return with_error_text(
      registrar_of(user).implicit_key(static_cast<Access>(access), bytes_of(key)));
}
void forget_in_child(void* user) { registrar_of(user).forget_in_child(); }
void destroy(void* user) { delete &registrar_of(user); }

}  // namespace

hydrant_registrar_t registrar_functions(std::unique_ptr<Registrar> registrar) noexcept {
  const RegistrarTraits& traits = registrar->traits();
  hydrant_registrar_t functions{};
  functions.size = sizeof functions;
  functions.name = traits.name;
  functions.key_bytes = traits.key_bytes;
  functions.address_kind = static_cast<uint32_t>(traits.address_kind);
  functions.charge_scope = static_cast<uint32_t>(traits.charge_scope);
  functions.supported_access = bits(traits.supported);
  functions.granule_bytes = traits.granule_bytes;
  functions.max_region_bytes = traits.max_region_bytes == SIZE_MAX ? 0 : traits.max_region_bytes;
  functions.max_regions = traits.max_regions == UINT64_MAX ? 0 : traits.max_regions;
  // In the C struct 0 is no limit: a limit of 0 becomes 1 byte.
  functions.max_charge_bytes =
      traits.max_charge_bytes == UINT64_MAX ? 0 : std::max<uint64_t>(traits.max_charge_bytes, 1);
  functions.divisible = traits.divisible ? 1 : 0;
  functions.export_bytes = traits.export_bytes;
  functions.pin_base_ns = traits.pin_base_ns;
  functions.pin_page_ns = traits.pin_page_ns;
  functions.unpin_base_ns = traits.unpin_base_ns;
  functions.pin = pin;
  functions.unpin = unpin;
  functions.charge = charge;
  functions.pending_charge = pending_charge;
  if (traits.exports) {
    functions.export_key = export_key;
    functions.import_key = import_key;
    functions.drop_import = drop_import;
  }
  functions.implicit_key = implicit_key;
  if (traits.unpin_before_release) functions.flags |= HYDRANT_REGISTRAR_UNPIN_BEFORE_RELEASE;
  functions.forget_in_child = forget_in_child;
  functions.destroy = destroy;
  functions.user = registrar.release();
  return functions;
}

}  // namespace hydrant
