// Wraps a Registrar of the project as a hydrant_registrar_t. The Registrar must outlive the domain.
#pragma once

#include <hydrant/pin_cache.h>

#include "firehose/base/registrar.hpp"

namespace hydrant::testing {

inline hydrant_registrar_t registrar_functions(Registrar& registrar) {
  const auto of = [](void* user) -> Registrar& { return *static_cast<Registrar*>(user); };
  using Of = decltype(of);
  const RegistrarTraits& traits = registrar.traits();
  hydrant_registrar_t functions{};
  functions.size = sizeof functions;
  functions.user = &registrar;
  functions.name = traits.name;
  functions.key_bytes = traits.key_bytes;
  functions.granule_bytes = traits.granule_bytes;
  functions.export_bytes = traits.export_bytes;
  functions.pin = [](void* user, uintptr_t addr, size_t len, uint32_t access, void* key) {
    return to_c(
        Of{}(user).pin({addr, len}, static_cast<Access>(access), static_cast<std::byte*>(key)));
  };
  functions.unpin = [](void* user, uintptr_t addr, size_t len, const void* key) {
    return static_cast<int>(Of{}(user).unpin({addr, len}, static_cast<const std::byte*>(key)));
  };
  functions.export_key = [](void* user, uintptr_t addr, size_t len, const void* key, void* blob,
                            size_t* blob_len) {
    return to_c(Of{}(user).export_key({addr, len}, static_cast<const std::byte*>(key),
                                      static_cast<std::byte*>(blob), blob_len));
  };
  functions.import_key = [](void* user, const void* blob, size_t len, void* key) {
    return to_c(Of{}(user).import_key(static_cast<const std::byte*>(blob), len,
                                      static_cast<std::byte*>(key)));
  };
  functions.drop_import = [](void* user, const void* key) {
    Of{}(user).drop_import(static_cast<const std::byte*>(key));
  };
  functions.forget_in_child = [](void* user) { Of{}(user).forget_in_child(); };
  return functions;
}

}  // namespace hydrant::testing
