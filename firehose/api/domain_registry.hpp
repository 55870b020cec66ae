// The process's domains: handles, and what must happen to all of them around a fork.
//
// A handle is 32 bits: a place (low 11 bits) and a generation, so that one of a domain that has ended is
// recognised although its slot serves another.
#pragma once

#include "firehose/cache/domain.hpp"

#include <cstdint>
#include <memory>

namespace hydrant {

// The live domain of a handle; null, with a text, if there is none. Notices an unannounced fork.
Domain* find_domain(uint64_t handle) noexcept;

// The live domain whose slots include this one; null if none.
Domain* domain_of(const RegionSlot* slot) noexcept;

// A handle for a new domain; 0 when kMaxClientDomains are live, or all the others where it is a peer's.
// Notices an unannounced fork, so that no domain born in the child is taken for one of the parent's. Give it
// back, or
// make it live.
enum class DomainOwner { kClient, kPeer };
uint64_t claim_domain_handle(DomainOwner whose = DomainOwner::kClient) noexcept;
void abandon_domain_handle(uint64_t handle) noexcept;
void publish_domain(std::unique_ptr<Domain> domain) noexcept;

// Makes the domain known to what happens around a fork. It is not live: that begins with publish_domain().
void add_to_fork_list(Domain& domain) noexcept;
void remove_from_fork_list(Domain& domain) noexcept;

// Ends the handle; null if it is not live. The domain keeps its place, so that no other one gets its threads'
// states, and what happens around a fork still reaches it, until forget_domain().
Domain* withdraw_domain(uint64_t handle) noexcept;
void forget_domain(std::unique_ptr<Domain> domain) noexcept;

}  // namespace hydrant
