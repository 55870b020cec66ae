// Creates the pool of bounce buffers on first use, from firehose/base/buffer_pool/buffer_pool.hpp. Called by
// rma_posted.cpp, rma_pinned.cpp, long_payload.cpp, operation.cpp (collective) and atomic_domain.cpp.
#include "extended/rma/paths/bounce_pool.hpp"

#include "am/exit/exit.hpp"
#include "am/job/job.hpp"
#include "am/progress/waiting.hpp"
#include "firehose/base/buffer_pool/buffer_pool.hpp"
#include "firehose/base/log.hpp"
#include "firehose/base/registrar.hpp"
#include "firehose/base/thread.hpp"
#include "rdma/config/job_knobs.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <memory>
#include <new>

namespace hydrant {
namespace {

// For transports that need no registered memory.
class NoRegistrar final : public Registrar {
 public:
  const RegistrarTraits& traits() const noexcept override { return traits_; }
  Status pin(MemoryRange, Access, std::byte*) noexcept override { return Status::kOk; }
  UnpinResult unpin(MemoryRange, const std::byte*) noexcept override { return UnpinResult::kDone; }
  uint64_t charge(MemoryRange) const noexcept override { return 0; }

 private:
  RegistrarTraits traits_{.name = "none"};
};

// Two size classes with half of the memory each: pieces of the largest size, and small puts.
constexpr size_t kSmallBytes = 1024;

std::unique_ptr<Registrar> make_pool_registrar() noexcept {
  if (job().pinned != nullptr) return job().pinned->make_registrar();
  std::unique_ptr<Registrar> none(new (std::nothrow) NoRegistrar);
  if (none == nullptr) (void)fail(Status::kResource, "no memory for a registrar");
  return none;
}

// The pool's share of the memory that may be registered; the pin cache takes seven eighths.
constexpr uint64_t kPartForPool = 16;

// Sizes from the settings. A default size is limited to the room that is available.
void choose_sizes(const RegistrarTraits& traits, BufferPoolOptions* options) noexcept {
  const KnobValue wanted = read_knob(JobKnob::kBouncePool);
  const size_t largest = std::bit_floor(knob_number(JobKnob::kBounceMax));
  options->total_bytes = std::max<size_t>(wanted.number, 2 * largest);
  const uint64_t room = std::max(traits.max_charge_bytes / kPartForPool, uint64_t{2 * kSmallBytes});
  if (wanted.origin == KnobOrigin::kDefault && options->total_bytes > room)
    options->total_bytes = static_cast<size_t>(room);
  options->largest_bytes = std::min(largest, std::bit_floor(options->total_bytes / 2));
  options->smallest_bytes = std::min(kSmallBytes, options->largest_bytes);
}

// Pool and registrar live as long as the process, because threads may be using them at process exit.
BufferPool* make_pool() noexcept {
  std::unique_ptr<Registrar> registrar = make_pool_registrar();
  BufferPoolOptions options;
  options.name = "bounce buffers";
  if (registrar != nullptr) choose_sizes(registrar->traits(), &options);
  options.shares = {};
  options.shares[0] = 1;
  const int classes =
      std::countr_zero(options.largest_bytes) - std::countr_zero(options.smallest_bytes);
  options.shares[static_cast<size_t>(classes)] = 1;
  options.larger_classes = BufferPoolOptions::kMaxClasses;
  std::unique_ptr<BufferPool> pool;
  if (registrar == nullptr || BufferPool::create(*registrar, options, &pool) != Status::kOk) {
    log_warning(
        "cannot create the pool of bounce buffers (HYDRANT_BOUNCE_POOL): %s; puts and gets use "
        "messages",
        last_error_text());
    return nullptr;
  }
  (void)registrar.release();
  return pool.release();
}

BufferPool* the_buffers() noexcept {
  static BufferPool* const the_pool = make_pool();
  return the_pool;
}

}  // namespace

size_t bounce_buffer_bytes() noexcept {
  const BufferPool* buffers = the_buffers();
  return buffers != nullptr ? buffers->largest_bytes() : 0;
}

Status take_bounce_buffer(size_t bytes, bool immediate, BounceBuffer* buffer) noexcept {
  PoolBuffer taken;
  Status status = the_buffers()->take(bytes, &taken);
  if (status == Status::kNotReady && !immediate) {
    Backoff backoff;
    do {
      if (has_exit_grace_expired()) return fail(Status::kBroken, "the job is ending");
      backoff.polled(poll_all());
      status = the_buffers()->take(bytes, &taken);
    } while (status == Status::kNotReady);
  }
  if (status == Status::kOk) *buffer = {taken.addr, taken.key};
  return status;
}

void release_bounce_buffer(void* buffer) noexcept { (void)the_buffers()->release_buffer(buffer); }

}  // namespace hydrant
