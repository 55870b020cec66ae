// Makes atomic domains and lists them. atomic_calls.cpp creates, uses and destroys them.
#include "extended/atomics/atomic_domain.hpp"

#include "am/job/job.hpp"
#include "am/segment/neighbourhood.hpp"
#include "am/segment/segments.hpp"
#include "extended/atomics/adapter_atomics.hpp"
#include "extended/atomics/adapter_trial.hpp"
#include "extended/atomics/atomic_ops.hpp"
#include "extended/binding/firehose_binding.hpp"
#include "extended/rma/common/rma_path.hpp"
#include "extended/rma/paths/bounce_pool.hpp"
#include "extended/team/team.hpp"
#include "rdma/config/job_knobs.hpp"

#include <algorithm>
#include <bit>
#include <iterator>
#include <new>
#include <utility>

namespace hydrant {
namespace {

// Calls visit(member, jobrank) for the members among this rank and its neighbours.
template <typename Visit>
void for_each_near_member(gex_TM_t tm, Visit visit) noexcept {
  const auto visit_jobrank = [&](Rank jobrank) {
    const Rank member = gex_TM_TranslateJobrankToRank(tm, jobrank);
    if (member != GEX_RANK_INVALID) visit(member, jobrank);
  };
  visit_jobrank(job().rank());
  for (const Neighbourhood::Info& info : neighbourhood().neighbours) {
    if (info.gex_jobrank != job().rank()) visit_jobrank(info.gex_jobrank);
  }
}

// True if calls in the client may skip the library: it would count them, or do work first.
bool may_inline() noexcept { return paths().inlined; }

}  // namespace

std::unique_ptr<AtomicDomain> AtomicDomain::make(gex_TM_t tm, gex_DT_t type, gex_OP_t ops,
                                                 gex_Flags_t flags) noexcept {
  Rank rows = 0;
  for_each_near_member(tm, [&](Rank member, Rank) { rows = std::max(rows, member + 1); });
  constexpr size_t kWord = sizeof(uint64_t);
  static_assert(sizeof(hydrant_atomic_domain) % kWord == 0 &&
                sizeof(hydrant_atomic_row) % kWord == 0);
  const size_t bytes = sizeof(hydrant_atomic_domain) + size_t{rows} * sizeof(hydrant_atomic_row);
  std::unique_ptr<uint64_t[]> memory(new (std::nothrow) uint64_t[bytes / kWord]());
  if (memory == nullptr) return nullptr;
  hydrant_atomic_domain& ad = *new (memory.get()) hydrant_atomic_domain{};
  ad.tm = tm;
  ad.type = type;
  ad.ops = ops;
  ad.flags = flags;
  ad.rows = rows;
  std::unique_ptr<AtomicDomain> made(new (std::nothrow) AtomicDomain(std::move(memory)));
  if (made == nullptr) return nullptr;
  for_each_near_member(tm, [&](Rank member, Rank jobrank) { made->add_row(member, jobrank); });
  return made;
}

void AtomicDomain::add_row(Rank member, Rank jobrank) noexcept {
  const bool is_self = jobrank == job().rank();
  if (is_self ? !paths(jobrank).self : !paths(jobrank).mapped) return;
  SegmentAddress segment;
  // UINTPTR_MAX: all memory is a segment (GASNET_SEGMENT_EVERYTHING).
  if (find_segment(jobrank, &segment) != Status::kOk || segment.size == UINTPTR_MAX) return;
  const void* here = segment.size != 0 ? mapped_address(jobrank, segment) : nullptr;
  if (here == nullptr) return;
  auto* rows = reinterpret_cast<hydrant_atomic_row*>(get() + 1);
  rows[member] = {.addr = segment.addr,
                  .size = segment.size,
                  .shift = reinterpret_cast<uintptr_t>(here) - segment.addr};
}

bool AtomicDomain::maps_all_members() const noexcept {
  const hydrant_atomic_domain& ad = *get();
  for (Rank member = 0; member < ad.tm->size; ++member) {
    const hydrant_atomic_row* row = find_row(ad, member);
    if (row == nullptr || row->size == 0) return false;
  }
  return true;
}

const char* AtomicDomain::find_adapter_obstacle() const noexcept {
  const hydrant_atomic_domain& ad = *get();
  if ((ad.flags & GEX_FLAG_AD_FAVOR_REMOTE) == 0) return "it was made without the flag";
  if (ad.tm->ep->index != 0) return "its team is not of primordial endpoints";
  if (!are_adapter_operations(ad.type, ad.ops)) return "adapters lack one of its operations";
  if (maps_all_members()) return "the segments of all members are mapped";
  if (!is_firehose_enabled() || (job().transport->capabilities() & Transport::kAtomics) == 0)
    return "the transport has no atomic operations on pinned memory";
  if (bounce_buffer_bytes() == 0) return "there is no pool of buffers for results";
  const TeamMembers members = members_of(ad.tm);
  for (Rank member = 0; member < ad.tm->size; ++member) {
    const hydrant_atomic_row* row = find_row(ad, member);
    const bool is_mapped = row != nullptr && row->size != 0;
    if (!is_mapped && !paths(members.jobrank(member)).pinned)
      return "a member is not reached by operations on pinned memory";
  }
  return tried_adapter_atomics() != AdapterAtomics::kNone ? nullptr
                                                          : "a trial of the adapter has failed";
}

void AtomicDomain::decide(const Agreement& agreed) noexcept {
  const auto [all_mapped, may_use_adapter, with_processors] = agreed;
  hydrant_atomic_domain& ad = *get();
  if (!all_mapped && may_use_adapter) {
    adapter_keys_ = AdapterKeys::make(ad.tm);
    ad.adapter_keys = adapter_keys_.get();
    ad.adapter_alone = adapter_keys_ != nullptr && !with_processors ? 1 : 0;
  }
  ad.all_mapped = all_mapped ? 1 : 0;
  const auto index = static_cast<size_t>(std::countr_zero(ad.type));
  // Members that are reached by messages need the polls that the library makes.
  if (!all_mapped || !may_inline() || index >= std::size(ad.inlined)) return;
  ad.inlined[index] = ad.ops;
  ad.inlined_flags = GEX_FLAG_IMMEDIATE | GEX_FLAG_AD_MY_RANK | GEX_FLAG_AD_MY_NBRHD |
                     GEX_FLAG_AD_REL | GEX_FLAG_AD_ACQ;
  if (ad.tm == &hydrant_world) ad.inlined_flags |= GEX_FLAG_RANK_IS_JOBRANK;
}

LiveDomains& live_domains() noexcept {
  // Lives as long as the process, because threads may be using it at process exit.
  alignas(LiveDomains) static std::byte place[sizeof(LiveDomains)];
  static LiveDomains* const all = new (place) LiveDomains;
  return *all;
}

hydrant_atomic_domain* LiveDomains::add(std::unique_ptr<AtomicDomain> domain) noexcept {
  hydrant_atomic_domain* const ad = domain->get();
  const MutexLock lock(mu_);
  domain->next = std::move(first_);
  first_ = std::move(domain);
  return ad;
}

bool LiveDomains::remove(const hydrant_atomic_domain* ad) noexcept {
  std::unique_ptr<AtomicDomain>
      removed;  // deleted without the mutex: its segment may have to be unpinned
  const MutexLock lock(mu_);
  std::unique_ptr<AtomicDomain>* link = &first_;
  while (*link != nullptr && (*link)->get() != ad) link = &(*link)->next;
  if (*link == nullptr) return false;
  removed = std::move(*link);
  *link = std::move(removed->next);
  return true;
}

bool LiveDomains::has(const hydrant_atomic_domain* ad) noexcept {
  const MutexLock lock(mu_);
  const AtomicDomain* each = first_.get();
  while (each != nullptr && each->get() != ad) each = each->next.get();
  return each != nullptr;
}

}  // namespace hydrant
