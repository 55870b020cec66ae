// The process's domains: their handles, and the work on all of them around a fork.
//
// A handle is 32 bits: a place (low 11 bits) and a generation, so that the handle of a destroyed domain is
// recognised although its place serves another.
#pragma once

#include "firehose/cache/domain.hpp"

#include <cstdint>
#include <memory>

namespace hydrant {

// The live domain of a handle; null, with a text, if there is none. Notices an unannounced fork.
Domain* find_domain(uint64_t handle) noexcept;

// The live domain whose slots include this one; null if none.
Domain* domain_of(const RegionSlot* slot) noexcept;

// Returns a handle for a new domain; 0 if kMaxClientDomains are live, or for a peer all other places are in
// use. Notices an unannounced fork, so that no domain born in the child is taken for one of the parent's. The
// caller releases the handle, or makes it live.
enum class DomainOwner { kClient, kPeer };
uint64_t claim_domain_handle(DomainOwner whose = DomainOwner::kClient) noexcept;
void abandon_domain_handle(uint64_t handle) noexcept;
void publish_domain(std::unique_ptr<Domain> domain) noexcept;

// Has the fork handlers include the domain. It becomes live with publish_domain().
void add_to_fork_list(Domain& domain) noexcept;
void remove_from_fork_list(Domain& domain) noexcept;

// Ends the handle; null if it is not live. The domain keeps its place until forget_domain(), so that no other
// domain gets its threads' states, and the fork handlers still include it.
Domain* withdraw_domain(uint64_t handle) noexcept;
void forget_domain(std::unique_ptr<Domain> domain) noexcept;

}  // namespace hydrant
