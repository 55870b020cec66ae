// Creates the registrar of a node: other processes of the node map its pinned memory, and transfers by its
// keys are memory copies. rdma/shm/shm_registrar.hpp says which memory it accepts.
#pragma once

#include "firehose/base/registrar.hpp"
#include "firehose/base/status.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace hydrant {

// Errors: kUnsupported: /proc does not show the start time of this process; kResource. Unchanged on failure.
Status make_node_registrar(std::unique_ptr<Registrar>* registrar) noexcept;

// Address in this process of the owner's [addr, addr+len), by a pinned or imported key of that registrar;
// null if the key does not cover all of it. Cost: some loads.
std::byte* address_by_node_key(const std::byte* key, uintptr_t addr, size_t len) noexcept;

}  // namespace hydrant
