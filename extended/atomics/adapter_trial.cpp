// Carries out atomic operations on own memory through the adapter, once per process.
#include "extended/atomics/adapter_trial.hpp"

#include <hydrant/pin_cache.h>

#include "am/exit/exit.hpp"
#include "am/job/job.hpp"
#include "am/progress/waiting.hpp"
#include "extended/binding/firehose_binding.hpp"
#include "firehose/base/log.hpp"
#include "firehose/base/thread.hpp"

#include <atomic>
#include <cstring>

namespace hydrant {
namespace {

using Atomic = PinnedOperations::Atomic;

constexpr uint64_t kTrialNs = 5'000'000'000;
constexpr size_t kMaxKey = 4096;

// The word, and the place of its old value. An operation that is given up may still write here.
struct alignas(4096) TrialPage {
  uint64_t word;
  uint64_t old;
};
constinit TrialPage page = {};

struct Trial : Completion {
  std::atomic<bool> is_done{false};
  Status status = Status::kNotReady;
};
constinit Trial trial;

void on_completion(Completion& completion, Status status) noexcept {
  auto& ended = static_cast<Trial&>(completion);
  ended.status = status;
  ended.is_done.store(true, std::memory_order_release);
}

// Errors: kNotReady: it takes longer than until the deadline; those of PinnedOperations::start_atomic().
Status carry_out(const Atomic& what, const std::byte* remote_key, const std::byte* local_key,
                 uint64_t deadline_ns) noexcept {
  trial.done = on_completion;
  trial.is_done.store(false, std::memory_order_relaxed);
  const PinnedOperations::Pinned word{reinterpret_cast<uintptr_t>(&page.word), remote_key};
  const PinnedOperations::Pinned old{reinterpret_cast<uintptr_t>(&page.old), local_key};
  Backoff backoff;
  for (bool is_posted = false;;) {
    if (!is_posted) {
      const Status status = job().pinned->start_atomic(job().rank(), word, old, what, &trial);
      if (status != Status::kOk && status != Status::kNotReady) return status;
      is_posted = status == Status::kOk;
    }
    if (trial.is_done.load(std::memory_order_acquire)) return trial.status;
    if (has_exit_grace_expired() || now_ns() >= deadline_ns)
      return fail_literal(Status::kNotReady, "it takes too long");
    backoff.polled(poll_all(), {.max_ns = 1'000'000});
  }
}

// The word, as the adapter has left it.
uint64_t word_now() noexcept {
  return std::atomic_ref<uint64_t>(page.word).load(std::memory_order_relaxed);
}

Status try_operations(const std::byte* remote_key, const std::byte* local_key) noexcept {
  const struct {
    Atomic what;
    uint64_t old;
    uint64_t word;
  } steps[] = {{{Atomic::Kind::kFetchAdd, 41, 0}, 0, 41},
               {{Atomic::Kind::kCompareSwap, 7, 41}, 41, 7},
               {{Atomic::Kind::kCompareSwap, 9, 41}, 7, 7}};
  const uint64_t deadline_ns = now_ns() + kTrialNs;
  for (const auto& step : steps) {
    const Status status = carry_out(step.what, remote_key, local_key, deadline_ns);
    if (status != Status::kOk) return status;
    const uint64_t old = std::atomic_ref<uint64_t>(page.old).load(std::memory_order_relaxed);
    if (old != step.old || word_now() != step.word)
      return fail(Status::kUnsupported, "it leaves the word %#llx and returns %#llx",
                  static_cast<unsigned long long>(word_now()),
                  static_cast<unsigned long long>(old));
  }
  return Status::kOk;
}

bool try_adapter() noexcept {
  alignas(16) std::byte key[kMaxKey];
  std::byte blob[kMaxKey];
  size_t blob_bytes = sizeof blob;
  const hydrant_pin_t pin = hydrant_pin(firehose().domain, &page, sizeof page,
                                        HYDRANT_LOCAL_WRITE | HYDRANT_REMOTE_ATOMIC);
  Status status = Status::kResource;
  if (pin.region != nullptr && firehose().key_bytes <= sizeof key &&
      hydrant_export_key(pin, blob, &blob_bytes) == GASNET_OK &&
      hydrant_import_key(firehose().domain, blob, blob_bytes, key) == GASNET_OK)
    status = try_operations(key, static_cast<const std::byte*>(pin.region->key));
  if (status != Status::kOk)
    log_info("atomic domains do not use the adapter: an operation on an own word: %s",
             last_error_text());
  // An operation that was given up may still use the registration.
  if (pin.region != nullptr && status != Status::kNotReady) (void)hydrant_release(pin);
  return status == Status::kOk;
}

}  // namespace

bool do_adapter_atomics_work() noexcept {
  static const bool works = try_adapter();
  return works;
}

}  // namespace hydrant
