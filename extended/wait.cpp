#include "extended/wait.hpp"

#include "firehose/base/config.hpp"
#include "firehose/base/thread.hpp"

#include <atomic>

namespace hydrant {
namespace {

// Looks before the clock is asked how long it takes.
constexpr uint32_t kLooksWithoutClock = 500;

uint64_t warn_after_ns() noexcept {
  static const uint64_t value = knob_number(Knob::kJobWaitWarn);
  return value;
}

}  // namespace

void wait_patiently(const WaitFor& what) noexcept {
  const Awaited awaited{.holds = what.ready, .context = what.context};
  Waiter waiter;
  uint64_t warn_at_ns = 0;
  bool warned = what.complain == nullptr || warn_after_ns() == 0;
  for (uint32_t looks = 0; !what.done(what.context); ++looks) {
    const uint32_t events = poll_all();
    if (what.done(what.context)) return;
    waiter.polled(events, awaited);
    if (warned || looks < kLooksWithoutClock) continue;
    const uint64_t now = now_ns();
    if (warn_at_ns == 0) warn_at_ns = now + warn_after_ns();
    if (now < warn_at_ns) continue;
    what.complain(what.context);
    warned = true;
  }
}

}  // namespace hydrant
