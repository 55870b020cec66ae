// Implements hydrant_pin() and hydrant_release() for memory that is pinned already: "Tour: a hit" follows
// this file.
//
// A hit: the thread's hit context names the domain; its table proposes a slot for the address; the thread
// posts a hold in its own count, and only then trusts the slot (hold.hpp). It writes no shared memory and
// takes no lock. All else is in slow functions of their own. docs/pin_cache.md counts the instructions and
// argues the order of the loads and stores; bench/instruction_count checks the count, and that no shared
// memory is written.
#include "firehose/cache/domain_registry.hpp"
#include "firehose/hit/find_and_hold.hpp"
#include "firehose/pin/failure_texts.hpp"
#include "firehose/pin/pin_handle.hpp"

namespace hydrant {
namespace {

[[gnu::noinline, gnu::cold]] hydrant_pin_t pin_slowly(hydrant_domain_t handle, uintptr_t addr,
                                                      size_t len, uint32_t access) noexcept {
  Domain* domain = find_domain(handle);
  if (domain == nullptr) return failed_pin(Status::kNotInit);
  if (access > bits(Access::kAll)) {
    return failed_pin(fail_unknown_access(access));
  }
  const RegionSlot* slot = nullptr;
  const Status status =
      domain->pin({addr, len}, static_cast<Access>(access), Domain::MissPolicy::kRegister, &slot);
  return status == Status::kOk ? make_pin(slot) : failed_pin(status);
}

[[gnu::noinline, gnu::cold]] int release_slowly(hydrant_pin_t pin) noexcept {
  if (pin.region == nullptr) {
    return to_c(
        fail(Status::kBadArg,
             "an all-zero pin cannot be released: hydrant_pin_status() says why it was not taken"));
  }
  const RegionSlot* slot = RegionSlot::from_public(pin.region);
  Domain* domain = domain_of(slot);
  if (domain == nullptr) {
    return to_c(
        in_released_arena(slot)
            ? fail(Status::kNotInit,
                   "the domain of this pin was destroyed, and the pin with it: drop the handle")
            : fail(Status::kBadArg,
                   "%p is not a pin: it is no region of a live domain; pass what a pinning call "
                   "returned",
                   static_cast<const void*>(slot)));
  }
  return to_c(domain->release(slot));
}

}  // namespace
}  // namespace hydrant

using namespace hydrant;

#if defined(__x86_64__) && !HYDRANT_TSAN && !HYDRANT_TICKETS

static_assert(offsetof(HitContext, domain) == 0 && offsetof(HitContext, mask) == 8 &&
              offsetof(HitContext, scale) == 16 && offsetof(HitContext, table) == 24 &&
              offsetof(HitContext, counts) == 32 && kHitsBefore * sizeof(HoldCount) == 64);
static_assert(offsetof(RegionSlot, addr) == 0 && offsetof(RegionSlot, gate) == 24 &&
              offsetof(RegionSlot, denied) == 32 && offsetof(RegionSlot, tag) == 36 &&
              offsetof(RegionSlot, index) == 40);

// Written out because compilers spend eight more instructions on it. It is proposed_slot() and
// hold_if_open() of a thread whose context shows this domain, in the same order; x86-64 keeps loads in
// program order and the asymmetric fence stands in for the one between posting and checking.
extern "C" hydrant_pin_t hydrant_pin(hydrant_domain_t domain, const void* addr, size_t len,
                                     uint32_t access) {
  const auto first = reinterpret_cast<uintptr_t>(addr);
  // Kept in an otherwise unused register, and opaque, so that `len` need not be kept for the slow path.
  register uintptr_t last asm("r11") = first + len - 1;
  asm("" : "+r"(last));
  const RegionSlot* slot;
  uint64_t hold;
  asm goto(
      "movq hydrant_thread_window@gottpoff(%%rip), %%r10\n\t"
      "cmpq %[domain], %%fs:(%%r10)\n\t"
      "jne %l[slow]\n\t"
      "movq %%fs:8(%%r10), %%rax\n\t"  // the table's proposal
      "andq %[first], %%rax\n\t"
      "mulq %%fs:16(%%r10)\n\t"
      "addq %%fs:24(%%r10), %%rdx\n\t"
      "movq (%%rdx), %%rax\n\t"
      "movl 40(%%rax), %%r8d\n\t"
      "movq %%fs:32(%%r10), %%r9\n\t"
      "addl $1, (%%r9,%%r8,4)\n\t"  // post
      "cmpq %[first], %[last]\n\t"  // empty, or wraps around
      "jb 1f\n\t"
      "cmpq (%%rax), %[first]\n\t"
      "jb 1f\n\t"
      "cmpq %[last], 24(%%rax)\n\t"  // the gate: the end, 0 when shut
      "jbe 1f\n\t"
      "testl %[access], 32(%%rax)\n\t"  // rights denied
      "jnz 1f\n\t"
      "addq $1, -64(%%r9)\n\t"  // hits
      ".pushsection .text.unlikely,\"ax\",@progbits\n"
      "1:\n\t"
      "subl $1, (%%r9,%%r8,4)\n\t"
      "jmp %l[slow]\n\t"
      ".popsection\n\t"
      : "=&a"(slot), "=&d"(hold)
      : [domain] "D"(domain), [first] "S"(first), [last] "r"(last), [access] "c"(access)
      : "r8", "r9", "r10", "cc", "memory"
      : slow);
  // `hold` contains a leftover of the multiplication: without tickets it is never read.
  return {slot->as_public(), hold};
slow:
  return pin_slowly(domain, first, last - first + 1, access);
}

extern "C" int hydrant_release(hydrant_pin_t pin) {
  if (pin.region == nullptr) [[unlikely]]
    return release_slowly(pin);
  asm goto(
      "movq hydrant_thread_window@gottpoff(%%rip), %%r10\n\t"
      "movl 36(%[region]), %%eax\n\t"  // tag: the domain, unless the last release has work to do
      "cmpq %%rax, %%fs:(%%r10)\n\t"
      "jne %l[slow]\n\t"
      "movl 40(%[region]), %%eax\n\t"
      "movq %%fs:32(%%r10), %%r9\n\t"
      "subl $1, (%%r9,%%rax,4)\n\t"
      :
      : [region] "D"(pin.region)
      : "rax", "r9", "r10", "cc", "memory"
      : slow);
  return GASNET_OK;
slow:
  return release_slowly(pin);
}

#else

extern "C" hydrant_pin_t hydrant_pin(hydrant_domain_t domain, const void* addr, size_t len,
                                     uint32_t access) {
  const auto first = reinterpret_cast<uintptr_t>(addr);
  const uintptr_t last = first + len - 1;
  HitContext& context = t_hit_context;
  if (context.domain.load(std::memory_order_relaxed) == domain && first <= last &&
      access <= bits(Access::kAll)) {
    const RegionSlot* slot = proposed_slot(context, first);
    if (hold_proposed(*slot, context.counts, first, last, access)) {
      return {slot->as_public(), issue_hold_ticket()};
    }
  }
  return pin_slowly(domain, first, len, access);
}

extern "C" int hydrant_release(hydrant_pin_t pin) {
  HitContext& context = t_hit_context;
  if (HYDRANT_TICKETS && pin.region != nullptr && !redeem_ticket(pin.hold)) {
    return to_c(fail(Status::kBadArg,
                     "pin %p/%llu is not live: it was released before, or never taken; "
                     "release each pin once",
                     static_cast<const void*>(pin.region),
                     static_cast<unsigned long long>(pin.hold)));
  }
  if (pin.region == nullptr) [[unlikely]]
    return release_slowly(pin);
  const RegionSlot* slot = RegionSlot::from_public(pin.region);
  if (context.domain.load(std::memory_order_relaxed) != slot->tag.load(std::memory_order_relaxed))
      [[unlikely]] {
    return release_slowly(pin);
  }
  drop_hold(context.counts[slot->index]);
  return GASNET_OK;
}

#endif
