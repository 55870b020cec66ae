// Creates and destroys buffer pools: plans sizes, maps memory, registers it. buffer_pool.cpp serves them.
#include "firehose/base/buffer_pool/buffer_pool.hpp"
#include "firehose/base/buffer_pool/buffer_pool_layout.hpp"
#include "firehose/base/errno_text.hpp"
#include "firehose/base/log.hpp"
#include "firehose/base/raw_memory.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <new>
#include <sys/mman.h>
#include <unistd.h>

namespace hydrant {

using pool::Plan;

namespace {

constexpr size_t kHugeBytes = size_t{2} << 20;
constexpr size_t kMaxBytes = size_t{1} << 40;
constexpr size_t kKeyAlignment = 64;

size_t round_up(size_t n, size_t unit) noexcept { return (n + unit - 1) & ~(unit - 1); }

// Inaccessible memory. Calls the kernel directly: a hook in front of libc's mmap() could wait for the cache.
// Null when refused.
std::byte* map_aligned(size_t bytes, size_t alignment) noexcept {
  const size_t reserved = bytes + alignment;
  auto* raw = static_cast<std::byte*>(raw_reserve(reserved));
  if (raw == nullptr) return nullptr;
  const auto first = reinterpret_cast<uintptr_t>(raw);
  const size_t before = round_up(first, alignment) - first;
  const size_t after = reserved - before - bytes;
  if (before != 0) raw_unmap(raw, before);
  if (after != 0) raw_unmap(raw + before + bytes, after);
  return raw + before;
}

// Computes counts from total_bytes and shares: first the whole buffers of each share, then the remainder,
// large classes first.
Status share_out(const BufferPoolOptions& options, Plan* plan) noexcept {
  __extension__ using Wide = unsigned __int128;
  uint64_t sum = 0;
  for (uint32_t i = 0; i < plan->classes; ++i) sum += options.shares[i];
  const auto weight = [&](uint32_t i) { return sum == 0 ? uint32_t{1} : options.shares[i]; };
  const uint64_t weights = sum == 0 ? plan->classes : sum;
  size_t left = options.total_bytes;
  std::array<uint64_t, BufferPoolOptions::kMaxClasses> counts{};
  for (uint32_t i = 0; i < plan->classes; ++i) {
    const auto part = static_cast<uint64_t>(Wide{options.total_bytes} * weight(i) / weights);
    counts[i] = part >> (plan->smallest_shift + i);
    left -= counts[i] << (plan->smallest_shift + i);
  }
  for (uint32_t i = plan->classes; i-- > 0;) {
    const uint32_t shift = plan->smallest_shift + i;
    if (weight(i) == 0) continue;
    counts[i] += left >> shift;
    left &= (size_t{1} << shift) - 1;
    if (counts[i] == 0) {
      return fail(Status::kBadArg,
                  "%s: total_bytes = %zu does not hold a buffer of %zu: raise it, or lower "
                  "largest_bytes",
                  options.name, options.total_bytes, size_t{1} << shift);
    }
    plan->counts[i] =
        static_cast<uint32_t>(std::min<uint64_t>(counts[i], BufferPoolOptions::kMaxBuffers + 1));
  }
  return Status::kOk;
}

Status check_sizes(const BufferPoolOptions& options, Plan* plan) noexcept {
  const size_t smallest = options.smallest_bytes;
  const size_t largest = options.largest_bytes;
  if (!std::has_single_bit(smallest) || !std::has_single_bit(largest) || smallest < pool::kLine ||
      smallest > largest || largest > kMaxBytes) {
    return fail(Status::kBadArg,
                "%s: invalid buffer sizes from %zu to %zu: pass powers of two from 64 to 2^40",
                options.name, smallest, largest);
  }
  plan->smallest_shift = static_cast<uint32_t>(std::countr_zero(smallest));
  plan->classes = static_cast<uint32_t>(std::countr_zero(largest)) - plan->smallest_shift + 1;
  if (plan->classes > BufferPoolOptions::kMaxClasses) {
    return fail(Status::kBadArg,
                "%s: %u size classes are more than %u: raise smallest_bytes or lower largest_bytes",
                options.name, plan->classes, BufferPoolOptions::kMaxClasses);
  }
  if (options.magazine_depth > BufferPoolOptions::kMaxDepth ||
      options.threads > BufferPoolOptions::kMaxThreads) {
    return fail(Status::kBadArg,
                "%s: magazines of depth %u for %u threads exceed the limits %u and %u: lower them",
                options.name, options.magazine_depth, options.threads, BufferPoolOptions::kMaxDepth,
                BufferPoolOptions::kMaxThreads);
  }
  for (uint32_t i = plan->classes; i < BufferPoolOptions::kMaxClasses; ++i) {
    if (options.counts[i] == 0 && options.shares[i] == 0) continue;
    return fail(Status::kBadArg,
                "%s: class %u has buffers, but there are %u classes: raise largest_bytes",
                options.name, i, plan->classes);
  }
  return Status::kOk;
}

}  // namespace

Status pool::make_plan(const BufferPoolOptions& options, const RegistrarTraits& traits,
                       Plan* plan) noexcept {
  if (const Status status = check_sizes(options, plan); status != Status::kOk) return status;
  plan->counts = options.counts;
  if (options.total_bytes > kMaxBytes) {
    return fail(Status::kBadArg, "%s: total_bytes = %zu is more than 2^40: lower it", options.name,
                options.total_bytes);
  }
  if (options.total_bytes != 0) {
    if (const Status status = share_out(options, plan); status != Status::kOk) return status;
  }
  uint64_t buffers = 0;
  size_t bytes = 0;
  for (uint32_t i = 0; i < plan->classes && bytes <= kMaxBytes; ++i) {
    buffers += plan->counts[i];
    bytes += size_t{plan->counts[i]} << (plan->smallest_shift + i);
  }
  if (plan->counts[plan->classes - 1] == 0) {
    return fail(Status::kBadArg,
                "%s: the largest size has no buffers: lower largest_bytes, or raise its count",
                options.name);
  }
  if (buffers > BufferPoolOptions::kMaxBuffers || bytes > kMaxBytes) {
    return fail(Status::kBadArg,
                "%s: more than %u buffers or 2^40 bytes requested: lower total_bytes or counts",
                options.name, BufferPoolOptions::kMaxBuffers);
  }
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t unit = std::max(page, traits.granule_bytes);
  plan->data_bytes = round_up(bytes, unit);
  plan->alignment = plan->data_bytes >= kHugeBytes ? std::max(unit, kHugeBytes) : unit;
  plan->buffers = static_cast<uint32_t>(buffers);
  plan->threads = options.threads;
  plan->depth = options.magazine_depth;
  plan->access = options.access;
  if (plan->data_bytes > traits.max_region_bytes) {
    return fail(Status::kResource,
                "%s: needs %zu bytes, but registrar %s takes at most %zu in one region: make a "
                "smaller pool",
                options.name, plan->data_bytes, traits.name, traits.max_region_bytes);
  }
  return Status::kOk;
}

Status BufferPool::create(Registrar& registrar, const BufferPoolOptions& options,
                          std::unique_ptr<BufferPool>* out) noexcept {
  std::unique_ptr<BufferPool> made(new (std::nothrow) BufferPool);
  if (made == nullptr)
    return fail(Status::kResource,
                "%s: out of memory for the pool: free memory, or raise ulimit -v", options.name);
  if (const Status status = made->set_up(registrar, options); status != Status::kOk) return status;
  *out = std::move(made);
  return Status::kOk;
}

Status BufferPool::set_up(Registrar& registrar, const BufferPoolOptions& options) noexcept {
  Plan plan;
  if (const Status status = pool::make_plan(options, registrar.traits(), &plan);
      status != Status::kOk) {
    return status;
  }
  name_ = options.name;
  registrar_ = &registrar;
  larger_classes_ = std::min(options.larger_classes, plan.classes);
  if (const Status status = map_control(plan); status != Status::kOk) return status;
  lay_out(plan);
  fill_stacks();
  if (!set_up_threads(plan.threads)) {
    return fail(Status::kResource,
                "%s: cannot map a page for the registry of pools: free memory, or raise ulimit -v",
                name_);
  }
  return map_and_pin(plan);
}

// Control, magazines, slots and the key share one mapping. It is separate from the buffers, so devices never
// write to it.
Status BufferPool::map_control(const Plan& plan) noexcept {
  const size_t magazines_at = sizeof(pool::Control);
  const size_t slots_at = magazines_at + plan.threads * sizeof(pool::Magazine);
  const size_t key_at = slots_at + plan.buffers * sizeof(pool::Slot);
  const uint32_t key_bytes = registrar_->traits().key_bytes;
  static_assert(sizeof(pool::Control) % kKeyAlignment == 0 &&
                sizeof(pool::Magazine) % kKeyAlignment == 0);
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  control_bytes_ = round_up(key_at + key_bytes, page);
  std::byte* memory = nullptr;
  const Status status = map("tables", control_bytes_, page, &memory);
  if (status != Status::kOk) return status;
  void* start = memory;
  control_ = static_cast<pool::Control*>(start);
  states_ = control_->states;
  void* magazines = memory + magazines_at;
  magazines_ = static_cast<pool::Magazine*>(magazines);
  void* slots = memory + slots_at;
  slots_ = static_cast<pool::Slot*>(slots);
  key_ = key_bytes != 0 ? memory + key_at : nullptr;
  return Status::kOk;
}

void BufferPool::lay_out(const Plan& plan) noexcept {
  class_count_ = plan.classes;
  largest_bytes_ = size_t{1} << (plan.smallest_shift + plan.classes - 1);
  size_t offset = 0;
  uint32_t slot = 0;
  for (uint32_t i = plan.classes; i-- > 0;) {
    Geometry& geometry = geometry_[i];
    geometry.offset = offset;
    geometry.shift = plan.smallest_shift + i;
    geometry.count = plan.counts[i];
    geometry.first_slot = slot;
    geometry.depth = plan.threads == 0 ? 0 : std::min(plan.depth, plan.counts[i] / 8);
    offset += size_t{geometry.count} << geometry.shift;
    slot += geometry.count;
  }
  // bit_width(bytes - 1) is the exponent of the smallest power of two >= bytes.
  uint32_t index = 0;
  for (uint32_t width = 0; width < plan.smallest_shift + plan.classes; ++width) {
    index = std::max(index, width > plan.smallest_shift ? width - plan.smallest_shift : 0);
    while (geometry_[index].count == 0) ++index;
    class_by_width_[width] = static_cast<uint8_t>(index);
  }
}

void BufferPool::fill_stacks() noexcept {
  for (uint32_t i = 0; i < class_count_; ++i) {
    const Geometry& geometry = geometry_[i];
    for (uint32_t n = 0; n < geometry.count; ++n) {
      pool::Slot& slot = slots_[geometry.first_slot + n];
      slot.state.store(pool::kFree, std::memory_order_relaxed);
      const uint32_t next = n + 1 < geometry.count ? geometry.first_slot + n + 2 : 0;
      slot.next.store(next, std::memory_order_relaxed);
    }
    const uint64_t head = geometry.count != 0 ? geometry.first_slot + 1 : 0;
    states_[i].head.store(head, std::memory_order_relaxed);
  }
  // Relaxed stores: the caller publishes the finished pool to other threads with its own ordering.
  control_->alive.store(1, std::memory_order_relaxed);
}

// The child of a fork sees zeros, so the kernel never copies the parent's pinned pages on write.
Status BufferPool::map(const char* what, size_t bytes, size_t alignment, std::byte** at) noexcept {
  std::byte* memory = map_aligned(bytes, alignment);
  Status status = Status::kOk;
  if (memory != nullptr && !raw_advise(memory, bytes, MADV_WIPEONFORK)) {
    status = fail(Status::kUnsupported,
                  "%s: madvise(MADV_WIPEONFORK) failed: %s; pools need Linux 4.14 or newer", name_,
                  errno_text(errno));
  } else if (memory == nullptr || !raw_open(memory, bytes)) {
    status =
        fail(Status::kResource,
             "%s: cannot map %zu bytes for its %s: %s; raise ulimit -v, or make a smaller pool",
             name_, bytes, what, errno_text(errno));
  }
  if (status == Status::kOk) {
    *at = memory;
  } else if (memory != nullptr) {
    raw_unmap(memory, bytes);
  }
  return status;
}

Status BufferPool::map_and_pin(const Plan& plan) noexcept {
  std::byte* data = nullptr;
  const Status mapped = map("buffers", plan.data_bytes, plan.alignment, &data);
  if (mapped != Status::kOk) return mapped;
  memory_ = {reinterpret_cast<uintptr_t>(data), plan.data_bytes};
  if (plan.data_bytes >= kHugeBytes) (void)raw_advise(data, plan.data_bytes, MADV_HUGEPAGE);
  const Status status = registrar_->pin(memory_, plan.access, const_cast<std::byte*>(key_));
  if (status != Status::kOk) {
    return add_context(status, "%s: pinning %zu bytes with registrar %s", name_, plan.data_bytes,
                       registrar_->traits().name);
  }
  pinned_ = true;
  return Status::kOk;
}

bool BufferPool::is_of_parent() const noexcept {
  return control_->alive.load(std::memory_order_relaxed) == 0;
}

BufferPool::~BufferPool() {
  if (control_ == nullptr) return;
  tear_down_threads();
  if (pinned_ && !is_of_parent()) {
    uint64_t out = 0;
    for (uint32_t i = 0; i < class_count_; ++i) out += stats(i).out();
    if (out != 0) log_warning("%s: destroyed with %lu buffers still out", name_, out);
    if (registrar_->unpin(memory_, key_) == UnpinResult::kBroken) {
      log_warning("%s: unpinning the buffers failed: %s", name_, last_error_text());
    }
  }
  if (memory_.len != 0) raw_unmap(reinterpret_cast<void*>(memory_.addr), memory_.len);
  raw_unmap(control_, control_bytes_);
}

}  // namespace hydrant
