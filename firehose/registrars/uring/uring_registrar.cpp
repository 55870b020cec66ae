// Implements Registrar over a pool of rings. The cache calls pin() on a miss and unpin() on an eviction;
// uring_pool.cpp chooses the ring.
#include "firehose/registrars/uring/uring_registrar.hpp"

#include "firehose/base/errno_text.hpp"
#include "firehose/base/log.hpp"
#include "firehose/registrars/charge/huge_pages.hpp"
#include "firehose/registrars/uring/uring_pool.hpp"
#include "firehose/registrars/uring/uring_probe.hpp"
#include "firehose/registrars/uring/uring_status.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <unistd.h>

namespace hydrant {
namespace {

constexpr uint64_t kMoveTimeoutNs = 30'000'000'000;

// The part of a limited account that rings may take: where there is little, the pins need it.
constexpr uint64_t kShareOfRings = 16;

Status fail_invalid_range(MemoryRange range) noexcept {
  return fail(Status::kBadArg, "io_uring: [%#zx, +%zu) is empty or wraps around: correct it",
              static_cast<size_t>(range.addr), range.len);
}

struct UringKey {
  uint32_t incarnation;  // of the registrar: keys of another one, or from before a fork, are stale
  uint16_t ring;
  uint16_t first_slot;
  uint32_t generation;
};
static_assert(sizeof(UringKey) == 12 && kUringMaxSlots <= UINT16_MAX + 1);

// Distinguishes registrars of one process, so that a key is never taken for another's. Relaxed: only
// uniqueness matters.
std::atomic<uint32_t> g_incarnations{0};
uint32_t next_incarnation() noexcept {
  return g_incarnations.fetch_add(1, std::memory_order_relaxed) + 1;
}

class PooledUringRegistrar final : public UringRegistrar {
 public:
  explicit PooledUringRegistrar(const UringOptions& options) noexcept
      : options_(options), pool_(options) {}

  Status start() noexcept;

  const RegistrarTraits& traits() const noexcept override { return traits_; }
  Status pin(MemoryRange range, Access access, std::byte* key) noexcept override;
  UnpinResult unpin(MemoryRange range, const std::byte* key) noexcept override {
    return unpin_many(&range, &key, 1);
  }
  UnpinResult unpin_many(const MemoryRange* ranges, const std::byte* const* keys,
                         size_t n) noexcept override;
  uint64_t charge(MemoryRange range) const noexcept override { return huge_pages_.charge(range); }
  uint64_t pending_charge() noexcept override;
  uint64_t losses() const noexcept override { return losses_.load(std::memory_order_relaxed); }
  void forget_in_child() noexcept override;

  Status move(const std::byte* key, MemoryRange within, int fd, uint64_t offset,
              bool to_file) noexcept override;
  bool charge_comes_back_late() const noexcept override { return late_charges_; }
  bool knows_huge_pages() const noexcept override { return huge_pages_.known(); }
  uint32_t rings() const noexcept override { return pool_.size(); }

 private:
  // Neighbouring slots that unpin_many() clears in one call.
  struct Batch {
    UringRing* ring = nullptr;
    uint32_t first = 0;
    UringSize size;
  };

  uint64_t charge_beside_rings(uint64_t limit_bytes, uint64_t ring_bytes) noexcept;
  void fill_traits(const UringFacts& facts) noexcept;
  UringRing* ring_of(const UringKey& key) const noexcept {
    return key.incarnation == incarnation_ ? pool_.at(key.ring) : nullptr;
  }
  UnpinResult finish(const Batch& batch) noexcept;
  void note_losses() noexcept;

  const UringOptions options_;
  RegistrarTraits traits_;
  UringPool pool_;
  HugePages huge_pages_;
  bool late_charges_ = false;
  std::atomic<uint64_t> losses_{0};  // number of times that rings were found lost; relaxed
  // Changes in forget_in_child() only.
  uint32_t incarnation_ = next_incarnation();
};

Status PooledUringRegistrar::start() noexcept {
  UringFailure failure;
  std::unique_ptr<UringRing> first = UringRing::open(pool_.slots_of_ring(0), true, &failure);
  if (first == nullptr) return explain_uring_unusable(failure);
  UringFacts facts;
  const Status status = probe_uring(*first, &facts);
  if (status != Status::kOk) return status;
  // If charges are released late, the trial would cost budget for a second.
  if (!facts.late_charges && huge_pages_pin_whole(*first, huge_pages_)) {
    traits_.block_bytes = huge_pages_.huge_bytes();
  }
  if (options_.assume_late_charges) {
    facts.late_charges = true;
    first->set_tagged(true);
  }
  late_charges_ = facts.late_charges;
  if (facts.limit_bytes != UINT64_MAX) traits_.memlock_bytes = facts.limit_bytes;
  facts.limit_bytes = charge_beside_rings(facts.limit_bytes, first->memory_bytes());
  pool_.adopt_first(std::move(first));
  fill_traits(facts);
  return Status::kOk;
}

// Returns the part of a limited account that is left for pins, and limits the number of rings. Older kernels
// do not charge rings: then it returns a little less than pins could use.
uint64_t PooledUringRegistrar::charge_beside_rings(uint64_t limit_bytes,
                                                   uint64_t ring_bytes) noexcept {
  if (limit_bytes == UINT64_MAX) return limit_bytes;
  const uint64_t rings = limit_bytes / kShareOfRings / ring_bytes;
  pool_.limit_rings(static_cast<uint32_t>(std::clamp<uint64_t>(rings, 1, kUringMaxRings)));
  const uint64_t taken = pool_.max_rings() * ring_bytes;
  const auto page_bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return std::max(limit_bytes - std::min(limit_bytes, taken), page_bytes);
}

void PooledUringRegistrar::fill_traits(const UringFacts& facts) noexcept {
  traits_.name = "uring";
  traits_.key_bytes = sizeof(UringKey);
  traits_.granule_bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  traits_.max_region_bytes = pool_.max_run() * kUringPieceBytes;
  traits_.max_regions = pool_.max_slots();
  traits_.max_charge_bytes = facts.limit_bytes;
  traits_.charge_scope = facts.limit_bytes == UINT64_MAX ? ChargeScope::kNone : ChargeScope::kUser;
  traits_.unpins_in_batches = true;
  traits_.pin_base_ns = facts.pin_base_ns;
  traits_.pin_page_ns = facts.pin_page_ns;
  traits_.unpin_base_ns = facts.unpin_base_ns;
}

Status PooledUringRegistrar::pin(MemoryRange range, Access /*access*/, std::byte* key) noexcept {
  if (!range.valid()) return fail_invalid_range(range);
  if (range.len > traits_.max_region_bytes) {
    return fail(Status::kResource,
                "io_uring: [%#zx, +%zu) is more than one ring takes (%zu bytes): pin it in pieces",
                static_cast<size_t>(range.addr), range.len, traits_.max_region_bytes);
  }
  const uint64_t charge_bytes = late_charges_ ? charge(range) : 0;
  UringRun run;
  uint32_t index = 0;
  int error = 0;
  // A ring with enough free slots may have no neighbours among them: then another is tried.
  bool goes_on = true;
  for (uint64_t avoid = 0; goes_on; avoid |= uint64_t{1} << index) {
    UringFailure failure;
    UringRing* ring = pool_.claim(range.len, avoid, &index, &failure);
    if (ring == nullptr) return explain_uring_growth(failure, pool_.live());
    error = ring->register_run(range, charge_bytes, &run);
    const bool lost = error == -EBADF && ring->is_lost();
    if (lost) note_losses();
    goes_on = lost || error == -EXFULL;
  }
  if (error != 0) return explain_uring_pin(-error, range, pending_charge());
  const UringKey out{incarnation_, static_cast<uint16_t>(index), static_cast<uint16_t>(run.first),
                     run.generation};
  std::memcpy(key, &out, sizeof out);
  return Status::kOk;
}

UnpinResult PooledUringRegistrar::unpin_many(const MemoryRange* ranges,
                                             const std::byte* const* keys, size_t n) noexcept {
  auto worst = late_charges_ && n != 0 ? UnpinResult::kPending : UnpinResult::kDone;
  Batch batch;
  for (size_t i = 0; i < n; ++i) {
    UringKey key;
    std::memcpy(&key, keys[i], sizeof key);
    UringRing* ring = ring_of(key);
    if (ring == nullptr || !ring->begin_unregister(ranges[i], {key.first_slot, key.generation})) {
      (void)fail(Status::kBroken, "io_uring: no live registration of [0x%llx, +%zu) has this key",
                 static_cast<unsigned long long>(ranges[i].addr), ranges[i].len);
      worst = UnpinResult::kBroken;
      continue;
    }
    if (ring != batch.ring || key.first_slot != batch.first + batch.size.slots) {
      worst = std::max(worst, finish(batch));
      batch = {ring, key.first_slot, {}};
    }
    batch.size += UringSize::of(ranges[i].len);
  }
  return std::max(worst, finish(batch));
}

UnpinResult PooledUringRegistrar::finish(const Batch& batch) noexcept {
  if (batch.ring == nullptr) return UnpinResult::kDone;
  const int error = batch.ring->finish_unregister(batch.first, batch.size);
  if (error == 0) return UnpinResult::kDone;
  if (error == -EBADF && batch.ring->is_lost()) {
    note_losses();
    return batch.ring->pending_bytes() != 0 ? UnpinResult::kPending : UnpinResult::kDone;
  }
  (void)fail(Status::kBroken,
             "io_uring: clearing %u slots failed (io_uring_register: %s): their memory stays "
             "pinned until the slots are used again",
             batch.size.slots, errno_text(-error));
  return UnpinResult::kBroken;
}

void PooledUringRegistrar::note_losses() noexcept {
  bool hidden = false;
  if (!pool_.handle_losses(&hidden)) return;
  losses_.fetch_add(1, std::memory_order_relaxed);
  static RateLimit limits[] = {RateLimit(RateLimit::kSecond), RateLimit(RateLimit::kSecond)};
  log_warning(
      limits[hidden ? 1 : 0],
      "io_uring: %s: what they pin stays pinned until all pins of a ring are released, and new "
      "pins take new rings; %s",
      hidden ? "fcntl() and fstat() of rings of the uring registrar are refused (a seccomp filter?)"
             : "the program has closed rings of the uring registrar (by close_range(), or a loop "
               "over all descriptors)",
      hidden ? "allow fcntl, fstat and newfstatat"
             : "close only descriptors that the program has opened, or close them before a domain "
               "is created");
}

uint64_t PooledUringRegistrar::pending_charge() noexcept {
  if (!late_charges_ && losses() == 0) return 0;
  uint64_t bytes = 0;
  const uint32_t n = pool_.size();
  for (uint32_t i = 0; i < n; ++i) bytes += pool_.at(i)->pending_bytes();
  return bytes;
}

void PooledUringRegistrar::forget_in_child() noexcept {
  pool_.forget_in_child();
  huge_pages_.reopen_in_child();
  incarnation_ = next_incarnation();
}

Status PooledUringRegistrar::move(const std::byte* key, MemoryRange within, int fd, uint64_t offset,
                                  bool to_file) noexcept {
  if (!within.valid()) return fail_invalid_range(within);
  UringKey parts;
  std::memcpy(&parts, key, sizeof parts);
  UringRing* ring = ring_of(parts);
  UringMoveEnd end{UringMoveCause::kStaleKey, 0, 0};
  if (ring != nullptr) {
    end = ring->move({parts.first_slot, parts.generation}, within, fd, offset, to_file,
                     kMoveTimeoutNs);
  }
  if (end.cause == UringMoveCause::kNone) return Status::kOk;
  return explain_uring_move(end, fd, kMoveTimeoutNs);
}

}  // namespace

std::unique_ptr<UringRegistrar> make_uring_registrar(const UringOptions& options,
                                                     Status* status) noexcept {
  if (options.ring_slots > kUringMaxSlots || options.max_rings == 0 ||
      options.max_rings > kUringMaxRings) {
    *status = fail(Status::kBadArg, "uring: %u slots a ring, %u rings: at most %u and 1 to %u",
                   options.ring_slots, options.max_rings, kUringMaxSlots, kUringMaxRings);
    return nullptr;
  }
  std::unique_ptr<PooledUringRegistrar> registrar(new (std::nothrow) PooledUringRegistrar(options));
  if (registrar == nullptr) {
    *status =
        fail(Status::kResource,
             "the system has no memory for the uring registrar: free memory, or raise ulimit -v");
    return nullptr;
  }
  *status = registrar->start();
  if (*status != Status::kOk) return nullptr;
  return registrar;
}

}  // namespace hydrant
