// Carries out atomic operations on own memory through the adapter, once per process.
#include "extended/atomics/adapter_trial.hpp"

#include <hydrant/pin_cache.h>

#include "am/exit/exit.hpp"
#include "am/job/job.hpp"
#include "am/progress/waiting.hpp"
#include "extended/binding/firehose_binding.hpp"
#include "firehose/base/errno_text.hpp"
#include "firehose/base/log.hpp"
#include "firehose/base/thread.hpp"
#include "firehose/base/thread_without_signals.hpp"
#include "firehose/base/uncancelled.hpp"

#include <atomic>
#include <pthread.h>
#include <sched.h>

namespace hydrant {
namespace {

using Atomic = PinnedOperations::Atomic;

constexpr uint64_t kTrialNs = 5'000'000'000;
constexpr size_t kMaxKey = 4096;
// The adapter and a thread add at least so often to one word. An adapter that is not atomic with processors
// loses in each of its additions what the thread adds meanwhile.
constexpr uint64_t kAdditions = 1000;
constexpr uint64_t kAdditionsNs = 1'000'000'000;

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

Status try_operations(const std::byte* remote_key, const std::byte* local_key,
                      uint64_t deadline_ns) noexcept {
  const struct {
    Atomic what;
    uint64_t old;
    uint64_t word;
  } steps[] = {{{Atomic::Kind::kFetchAdd, 41, 0}, 0, 41},
               {{Atomic::Kind::kCompareSwap, 7, 41}, 41, 7},
               {{Atomic::Kind::kCompareSwap, 9, 41}, 7, 7}};
  std::atomic_ref<uint64_t>(page.word).store(0, std::memory_order_relaxed);
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

// A thread that adds 1 to the word until it is stopped.
struct Adder {
  std::atomic<bool> stops{false};
  std::atomic<uint64_t> added{0};

  static void* run(void* self) noexcept {
    auto& adder = *static_cast<Adder*>(self);
    pthread_setname_np(pthread_self(), "hydrant trial");
    uint64_t added = 0;
    while (!adder.stops.load(std::memory_order_relaxed)) {
      std::atomic_ref<uint64_t>(page.word).fetch_add(1, std::memory_order_relaxed);
      adder.added.store(++added, std::memory_order_relaxed);
      // The thread that polls may have no other processor.
      if (added % 256 == 0) sched_yield();
    }
    return nullptr;
  }
};

// The adapter adds to the word, one operation after the other, while a thread adds to it. *exact: the sum is
// right. Errors: as carry_out().
Status try_with_processor(const std::byte* remote_key, const std::byte* local_key,
                          uint64_t deadline_ns, bool* exact) noexcept {
  constexpr const char* kNot = "atomic domains do not mix the adapter with processors";
  std::atomic_ref<uint64_t>(page.word).store(0, std::memory_order_relaxed);
  Adder adder;
  pthread_t thread{};
  if (const int error = create_thread_without_signals(&thread, Adder::run, &adder); error != 0) {
    log_info("%s: no thread to try it with: %s", kNot, errno_text(error));
    return Status::kOk;
  }
  const uint64_t until_ns = now_ns() + kAdditionsNs;
  const auto have_both = [&](uint64_t added) {
    return added >= kAdditions && adder.added.load(std::memory_order_relaxed) >= kAdditions;
  };
  uint64_t added = 0;
  Status status = Status::kOk;
  while (!have_both(added) && now_ns() < until_ns) {
    status = carry_out({Atomic::Kind::kFetchAdd, 1, 0}, remote_key, local_key, deadline_ns);
    if (status != Status::kOk) break;
    ++added;
  }
  adder.stops.store(true, std::memory_order_relaxed);
  uncancelled::pthread_join(thread, nullptr);
  if (status != Status::kOk) return status;
  const uint64_t by_thread = adder.added.load(std::memory_order_relaxed);
  *exact = have_both(added) && word_now() == added + by_thread;
  if (!*exact)
    log_info(
        "%s, although it claims to be atomic with them: %llu additions of the adapter and %llu of "
        "a thread to one word left it at %llu",
        kNot, static_cast<unsigned long long>(added), static_cast<unsigned long long>(by_thread),
        static_cast<unsigned long long>(word_now()));
  return Status::kOk;
}

}  // namespace

AdapterAtomics try_adapter_atomics() noexcept {
  alignas(16) std::byte key[kMaxKey];
  std::byte blob[kMaxKey];
  size_t blob_bytes = sizeof blob;
  const bool claims = (job().transport->capabilities() & Transport::kAtomicWithProcessors) != 0;
  bool exact = false;
  const hydrant_pin_t pin = hydrant_pin(firehose().domain, &page, sizeof page,
                                        HYDRANT_LOCAL_WRITE | HYDRANT_REMOTE_ATOMIC);
  Status status = Status::kResource;
  if (pin.region != nullptr && firehose().key_bytes <= sizeof key &&
      hydrant_export_key(pin, blob, &blob_bytes) == GASNET_OK &&
      hydrant_import_key(firehose().domain, blob, blob_bytes, key) == GASNET_OK) {
    const auto* const local_key = static_cast<const std::byte*>(pin.region->key);
    const uint64_t deadline_ns = now_ns() + kTrialNs;
    status = try_operations(key, local_key, deadline_ns);
    if (status == Status::kOk && claims)
      status = try_with_processor(key, local_key, deadline_ns, &exact);
  }
  if (status != Status::kOk)
    log_info("atomic domains do not use the adapter: an operation on an own word: %s",
             last_error_text());
  // An operation that was given up may still use the registration.
  if (pin.region != nullptr && status != Status::kNotReady) (void)hydrant_release(pin);
  if (status != Status::kOk) return AdapterAtomics::kNone;
  return exact ? AdapterAtomics::kWithProcessors : AdapterAtomics::kAmongAdapters;
}

AdapterAtomics tried_adapter_atomics() noexcept {
  static const AdapterAtomics result = try_adapter_atomics();
  return result;
}

}  // namespace hydrant
