// Waits for budget on behalf of firehose_local_pin: polls the client, and logs the holders of the budget when
// the wait is long.
#include "firehose/base/cancellation.hpp"
#include "firehose/base/config/knobs.hpp"
#include "firehose/base/log.hpp"
#include "firehose/gasnet_compat/firehose_state.hpp"

#include <algorithm>

namespace hydrant {
namespace {

constexpr uint64_t kMillisecond = 1'000'000;
// Time between two polls of a client whose releases happen in its poll; guess: a few RDMA round trips.
constexpr uint64_t kPolledSliceNs = 20'000;
// Without a poll another thread has to release: this only bounds how late a warning may come.
constexpr uint64_t kIdleSliceNs = 100 * kMillisecond;
constexpr size_t kLinesShown = 16;

// Reports a long wait. Unheld regions would have been evicted for this pin, so after a flush every pinned
// region is held.
void report(hydrant_fh& fh, uintptr_t addr, size_t len, uint64_t waited_ns) noexcept {
  static_cast<void>(hydrant_flush(fh.domain));
  hydrant_stats_t stats{};
  stats.size = sizeof stats;
  if (hydrant_get_stats(fh.domain, &stats) != GASNET_OK) return;
  const auto number = [](uint64_t n) { return static_cast<unsigned long long>(n); };
  log_warning(
      "firehose_local_pin has waited %llu ms for budget to pin [%#zx, +%zu) and goes on: "
      "%llu requests hold %llu bytes in %zu pieces; limits %llu bytes, %llu regions; held:",
      number(waited_ns / kMillisecond), static_cast<size_t>(addr), len, number(stats.live_holds),
      number(stats.charged_bytes), fh.registrar.pinned_ranges(), number(stats.budget_bytes),
      number(stats.max_regions));
  fh.registrar.log_pinned(kLinesShown);
}

hydrant_pin_t pin_for(hydrant_fh& fh, uintptr_t addr, size_t len, uint64_t timeout_ns) noexcept {
  const auto* start = reinterpret_cast<const void*>(addr);
  const CompatRegistrar::RequestedRange asking({addr, len});
  return hydrant_pin_wait(fh.domain, start, len, kCompatAccess, timeout_ns);
}

[[noreturn]] void explain_and_abort(const hydrant_fh& fh, uintptr_t addr, size_t len,
                                    int status) noexcept {
  const auto start = static_cast<size_t>(addr);
  if (status == HYDRANT_ERR_REFUSED) {
    compat_fatal("firehose_local_pin of [%#zx, +%zu): firehose_move_callback returned %d", start,
                 len, fh.registrar.last_failure());
  }
  compat_fatal("firehose_local_pin of [%#zx, +%zu): %s", start, len, hydrant_error_text());
}

}  // namespace

hydrant_pin_t wait_for_compat_pin(hydrant_fh& fh, uintptr_t addr, size_t len) noexcept {
  const CancellationDisabled guard;
  const uint64_t began = now_ns();
  const uint64_t patience = knob_number(Knob::kWaitWarn);
  uint64_t next_report = patience == 0 ? UINT64_MAX : began + patience;
  const uint64_t slice = fh.client.poll != nullptr ? kPolledSliceNs : kIdleSliceNs;
  for (;;) {
    const hydrant_pin_t pin =
        pin_for(fh, addr, len, std::min(slice, patience == 0 ? slice : patience));
    if (pin.region != nullptr) return pin;
    if (hydrant_pin_status(pin) != GASNET_ERR_NOT_READY) {
      explain_and_abort(fh, addr, len, hydrant_pin_status(pin));
    }
    if (fh.client.poll != nullptr) fh.client.poll();
    static_cast<void>(hydrant_poll(fh.domain));
    if (fh.remote != nullptr) fh.remote->progress();  // peers get requests for idle firehoses
    const uint64_t now = now_ns();
    if (now < next_report) continue;
    report(fh, addr, len, now - began);
    next_report = now + (now - began);  // ever more rarely
  }
}

}  // namespace hydrant
