#include "extended/bounce_pool.hpp"

#include "am/exit.hpp"
#include "am/job.hpp"
#include "am/waiting.hpp"
#include "firehose/base/buffer_pool.hpp"
#include "firehose/base/config.hpp"
#include "firehose/base/log.hpp"
#include "firehose/base/registrar.hpp"
#include "firehose/base/thread.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <memory>
#include <new>

namespace hydrant {
namespace {

// For transports that post memory without knowing it before.
class NoRegistrar final : public Registrar {
 public:
  const RegistrarTraits& traits() const noexcept override { return traits_; }
  Status pin(MemoryRange, Access, std::byte*) noexcept override { return Status::kOk; }
  UnpinResult unpin(MemoryRange, const std::byte*) noexcept override { return UnpinResult::kDone; }
  uint64_t charge(MemoryRange) const noexcept override { return 0; }

 private:
  RegistrarTraits traits_{.name = "none"};
};

// Two classes: pieces of the largest size and small puts, half of the memory each.
constexpr size_t kSmallBytes = 1024;

std::unique_ptr<Registrar> make_pool_registrar() noexcept {
  Transport* transport = job().transport.get();
  if (transport != nullptr && (transport->abilities() & Transport::kPinned) != 0)
    return transport->make_registrar();
  std::unique_ptr<Registrar> none(new (std::nothrow) NoRegistrar);
  if (none == nullptr) (void)fail(Status::kResource, "no memory for a registrar");
  return none;
}

// Of what may be registered in all, the cache of pins takes seven eighths.
constexpr uint64_t kPartForPool = 16;

// As the knobs want it; where nobody has asked for so much, no more than there is room for.
void choose_sizes(const RegistrarTraits& traits, BufferPoolOptions* options) noexcept {
  const KnobValue wanted = read_knob(Knob::kBouncePool);
  const size_t largest = std::bit_floor(knob_number(Knob::kBounceMax));
  options->total_bytes = std::max<size_t>(wanted.number, 2 * largest);
  const uint64_t room = std::max(traits.max_charge_bytes / kPartForPool, uint64_t{2 * kSmallBytes});
  if (wanted.origin == KnobOrigin::kDefault && options->total_bytes > room)
    options->total_bytes = static_cast<size_t>(room);
  options->largest_bytes = std::min(largest, std::bit_floor(options->total_bytes / 2));
  options->smallest_bytes = std::min(kSmallBytes, options->largest_bytes);
}

// Pool and registrar live as long as the process: threads may be inside when it ends.
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
        "puts and gets do without buffers of their own (HYDRANT_BOUNCE_POOL) and go by "
        "messages: %s",
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
    Waiter waiter;
    do {
      if (is_over()) return fail(Status::kBroken, "the job is ending");
      waiter.polled(poll_all());
      status = the_buffers()->take(bytes, &taken);
    } while (status == Status::kNotReady);
  }
  if (status == Status::kOk) *buffer = {taken.addr, taken.key};
  return status;
}

void give_bounce_buffer(void* buffer) noexcept { (void)the_buffers()->put_back(buffer); }

}  // namespace hydrant
