// Writes the error texts of refused pins, with what was lacking and how to get it. Every step of a miss may
// end here.
#include "firehose/cache/refusal_texts.hpp"

#include "firehose/base/access_names.hpp"
#include "firehose/base/errno_text.hpp"

#include <cstdio>

namespace hydrant {
namespace {

const char* plural(uint64_t count) noexcept { return count == 1 ? "" : "s"; }

// The remedy for a budget that is too small. If the memlock limit or the registrar sets the budget, that
// limit must be raised: it refuses what a larger budget allows.
class Remedy {
 public:
  Remedy(const DomainConfig& config, const RegistrarTraits& traits) noexcept {
    if (config.memlock_bytes) {
      std::snprintf(text_, sizeof text_,
                    "raise RLIMIT_MEMLOCK, which is %llu bytes and gives the budget, by ulimit -l, "
                    "LimitMEMLOCK= of systemd or a memlock line in /etc/security/limits.conf",
                    ull(*config.memlock_bytes));
    } else if (config.registrar_bytes) {
      std::snprintf(text_, sizeof text_,
                    "raise max_charge_bytes = %llu of registrar %s (over verbs RLIMIT_MEMLOCK less "
                    "what is reserved of it)",
                    ull(*config.registrar_bytes), traits.name);
    }
  }
  const char* text() const noexcept { return text_; }

 private:
  char text_[192] = "raise options.budget_bytes or FIREHOSE_BUDGET";
};

}  // namespace

Status RefusalTexts::too_large(MemoryRange requested) const noexcept {
  const size_t by_registrar = traits_.max_region_bytes;
  return fail(Status::kResource,
              "domain %s: [%#zx, +%zu) is more than the largest region of %zu bytes; pin it in "
              "pieces%s",
              config_.name, static_cast<size_t>(requested.addr), requested.len,
              config_.max_region_bytes,
              config_.max_region_bytes == by_registrar
                  ? ", the registrar takes no more at once"
                  : ", or raise options.max_region_bytes or FIREHOSE_MAX_REGION_SIZE");
}

Status RefusalTexts::beyond_budget(MemoryRange first, size_t ranges, uint64_t charge,
                                   size_t regions) const noexcept {
  char several[48] = "";
  if (ranges > 1) std::snprintf(several, sizeof several, "%zu ranges, the first ", ranges);
  return fail(Status::kResource,
              "domain %s: pinning %s[%#zx, +%zu) charges %llu bytes in %zu region%s, more than the "
              "whole budget of %llu bytes and %u regions: %s (for regions options.max_regions or "
              "FIREHOSE_MAX_REGIONS), pin less at once, or copy",
              config_.name, several, static_cast<size_t>(first.addr), first.len, ull(charge),
              regions, plural(regions), ull(config_.budget_bytes), config_.max_regions,
              Remedy(config_, traits_).text());
}

Status RefusalTexts::not_now(const CacheLock& lock, const Budget& budget,
                             const Shortage& lack) const noexcept {
  const uint64_t in_force = budget.in_force(lock);
  const auto addr = static_cast<size_t>(lack.requested.addr);
  const size_t len = lack.requested.len;
  if (lack.wanted.bytes > in_force && !config_.is_remote) {
    return fail(Status::kNotReady,
                "domain %s: [%#zx, +%zu) charges %llu bytes, and registrar %s had room for %llu of "
                "the budget of %llu bytes at the last attempt: release pins of this and other "
                "processes, and try again after a second, or copy",
                config_.name, addr, len, ull(lack.wanted.bytes), traits_.name, ull(in_force),
                ull(config_.budget_bytes));
  }
  const uint64_t used_bytes = budget.charged(lock) - lack.idle.bytes;
  const uint32_t used_regions = budget.regions(lock) - lack.idle.regions;
  if (config_.is_remote) {
    return fail(
        Status::kNotReady,
        "%s: [%#zx, +%zu) needs %llu bytes in %u region%s of the peer's lease of %llu bytes "
        "and %u regions: %llu bytes in %u region%s are held or being requested, %llu bytes "
        "in %u region%s are idle; release pins, or raise budget_bytes or "
        "FIREHOSE_REMOTE_BUDGET at the peer",
        config_.name, addr, len, ull(lack.wanted.bytes), lack.wanted.regions,
        plural(lack.wanted.regions), ull(in_force), config_.max_regions, ull(used_bytes),
        used_regions, plural(used_regions), ull(lack.idle.bytes), lack.idle.regions,
        plural(lack.idle.regions));
  }
  return fail(
      Status::kNotReady,
      "domain %s: [%#zx, +%zu) charges %llu bytes in %u region%s, which do not fit now: of %llu "
      "bytes and %u regions, %llu and %u are held, or being registered or unpinned, %llu and %u "
      "are idle, and the kernel has yet to give back %llu bytes; release pins, or %s (for regions "
      "options.max_regions or FIREHOSE_MAX_REGIONS)",
      config_.name, addr, len, ull(lack.wanted.bytes), lack.wanted.regions,
      plural(lack.wanted.regions), ull(in_force), config_.max_regions, ull(used_bytes),
      used_regions, ull(lack.idle.bytes), lack.idle.regions, ull(lack.pending),
      Remedy(config_, traits_).text());
}

Status RefusalTexts::until_uncharged(MemoryRange requested, uint64_t charge,
                                     uint64_t pending) const noexcept {
  return fail(
      Status::kNotReady,
      "domain %s: [%#zx, +%zu) charges %llu bytes, which do not fit into the budget of %llu "
      "bytes before the kernel gives back %llu bytes that were unpinned: try again soon, or %s",
      config_.name, static_cast<size_t>(requested.addr), requested.len, ull(charge),
      ull(config_.budget_bytes), ull(pending), Remedy(config_, traits_).text());
}

Status RefusalTexts::no_free_slot(MemoryRange requested) const noexcept {
  return fail(Status::kNotReady,
              "domain %s: [%#zx, +%zu) needs a region slot, and all %u are taken by regions that "
              "are held, or were invalidated while they were held: release pins, or raise "
              "options.max_regions or FIREHOSE_MAX_REGIONS",
              config_.name, static_cast<size_t>(requested.addr), requested.len, slots_);
}

Status RefusalTexts::being_registered(MemoryRange requested) const noexcept {
  return fail(Status::kNotReady,
              "domain %s: [%#zx, +%zu) is being registered by another call, which has not ended "
              "yet: try again, call hydrant_poll(), or use hydrant_pin_wait()",
              config_.name, static_cast<size_t>(requested.addr), requested.len);
}

Status RefusalTexts::invalidated(MemoryRange requested, int times) const noexcept {
  return fail(Status::kNotReady,
              "domain %s: [%#zx, +%zu) was invalidated during each of %d tries to register it: do "
              "not release or replace memory while it is being pinned, or try again",
              config_.name, static_cast<size_t>(requested.addr), requested.len, times);
}

Status RefusalTexts::beyond_rights(MemoryRange requested, Access need) const noexcept {
  return fail(Status::kRefused,
              "domain %s: [%#zx, +%zu) for access %s is more than registrar %s can grant: ask "
              "for %s at most, or take another registrar",
              config_.name, static_cast<size_t>(requested.addr), requested.len,
              AccessNames(need).text(), traits_.name, AccessNames(traits_.supported).text());
}

Status RefusalTexts::refused_recently(MemoryRange requested, Access need) const noexcept {
  return fail(Status::kRefused,
              "domain %s: [%#zx, +%zu) was refused for access %s a moment ago (remembered for "
              "a second, or until invalidated): ask for fewer rights, or copy",
              config_.name, static_cast<size_t>(requested.addr), requested.len,
              AccessNames(need).text());
}

}  // namespace hydrant
