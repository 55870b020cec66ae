// The registrars that hydrant_ibv_registrar_create() and hydrant_ibv_registrar_open() have made, by handle.
// The handle is the `user` of the client's struct, which the client may copy and use after the registrar's
// end: a place and a generation, so that the handle of a destroyed registrar is recognised although its place
// serves another. It also tells a registrar of the parent of a fork from one of this process.
//
// Threads: all functions from any; no locks. A registrar must not be destroyed while another call uses it.
#pragma once

#include "firehose/base/status.hpp"
#include "firehose/registrars/ibv/client_registrar.hpp"

#include <cstdint>
#include <memory>

namespace hydrant::ibv_handles {

// Registrars of a process at the same time.
inline constexpr uint32_t kMaxRegistrars = 256;

// Errors: kResource: kMaxRegistrars are live, or no memory. *handle is unchanged then, and the registrar is
// destroyed.
Status add(std::unique_ptr<ClientRegistrar> registrar, void** handle) noexcept;

// The live registrar of a handle; null if it was destroyed. The first call in the child of a fork, made with
// fork handlers or without, calls its forget_in_child().
ClientRegistrar* find(void* handle) noexcept;

// Ends the handle and returns its registrar; null if it was destroyed.
std::unique_ptr<ClientRegistrar> remove(void* handle) noexcept;

}  // namespace hydrant::ibv_handles
