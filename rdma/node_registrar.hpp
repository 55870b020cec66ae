// The registrar of a node, for those above: pinned memory of one process is mapped by the others of the node,
// and what is moved by such a key is copied. rdma/shm/shm_registrar.hpp says which memory that is.
#pragma once

#include "firehose/base/registrar.hpp"
#include "firehose/base/status.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace hydrant {

// Errors: kUnsupported: /proc does not say who this process is; kResource. Unchanged on failure.
Status make_node_registrar(std::unique_ptr<Registrar>* registrar) noexcept;

// Where [addr, addr+len), addresses of the owner, is in this process by a key of that registrar, pinned or
// imported; null if the key does not have all of it. Cost: some loads.
std::byte* address_by_node_key(const std::byte* key, uintptr_t addr, size_t len) noexcept;

}  // namespace hydrant
