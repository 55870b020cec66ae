// Atomic domains: the objects behind gex_AD_t, with a row for each member whose segment is mapped here.
//
// A domain's way to execute operations is chosen when it is made, by all members together, and is constant.
// Instructions of processors (atomic_ops.hpp), of this one on mapped memory or of one of the target's in a
// handler, may meet in one word. An adapter's operations may meet them only if it says so and a trial
// (adapter_trial.hpp) finds no lost update: else a domain uses the adapter for all of its operations, also on
// this rank's words, or not at all.
//
// Threads: a domain is constant but for the client's pointer.
#pragma once

#include <hydrant/gasnet/ratomic.h>

#include "extended/atomics/adapter_keys.hpp"
#include "firehose/base/thread.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace hydrant {

class AtomicDomain {
 public:
  // Adds rows for the members whose segments are mapped here. Null: no memory.
  static std::unique_ptr<AtomicDomain> make(gex_TM_t tm, gex_DT_t type, gex_OP_t ops,
                                            gex_Flags_t flags) noexcept;

  hydrant_atomic_domain* get() const noexcept {
    return reinterpret_cast<hydrant_atomic_domain*>(words_.get());
  }
  // True if this rank has rows of all members.
  bool maps_all_members() const noexcept;
  // The reason, for a message, why this rank cannot use its adapter for all of the domain's operations; null
  // if it can. May poll.
  const char* find_adapter_obstacle() const noexcept;
  // Facts that hold on every member.
  struct Agreement {
    bool all_mapped;       // its processor reaches the segments of all
    bool may_use_adapter;  // for all of the domain's operations
    bool with_processors;  // the adapter is atomic with processors
  };
  // Call it once, before the client gets the domain. Collective if the members may use their adapters.
  void decide(const Agreement& agreed) noexcept;

  std::unique_ptr<AtomicDomain> next;  // list of LiveDomains

 private:
  explicit AtomicDomain(std::unique_ptr<uint64_t[]> words) noexcept : words_(std::move(words)) {}
  void add_row(gex_Rank_t member, gex_Rank_t jobrank) noexcept;

  std::unique_ptr<uint64_t[]> words_;  // a hydrant_atomic_domain and its rows
  std::unique_ptr<AdapterKeys> adapter_keys_;
};

// The row of a member; null if the domain has none. Its size may be 0.
inline const hydrant_atomic_row* find_row(const hydrant_atomic_domain& ad,
                                          gex_Rank_t member) noexcept {
  return member < ad.rows ? reinterpret_cast<const hydrant_atomic_row*>(&ad + 1) + member : nullptr;
}

// The domains that the client has made and not destroyed: owns them, and finds misuse.
class LiveDomains {
 public:
  hydrant_atomic_domain* add(std::unique_ptr<AtomicDomain> domain) noexcept HYDRANT_EXCLUDES(mu_);
  // False: there is no such domain.
  bool remove(const hydrant_atomic_domain* ad) noexcept HYDRANT_EXCLUDES(mu_);
  bool has(const hydrant_atomic_domain* ad) noexcept HYDRANT_EXCLUDES(mu_);

 private:
  Mutex mu_;
  std::unique_ptr<AtomicDomain> first_ HYDRANT_GUARDED_BY(mu_);
};

LiveDomains& live_domains() noexcept;

}  // namespace hydrant
