// Supplies the defaults of Sleeping: naps, after which the caller polls.
#include "rdma/transport/sleeping.hpp"

#include "firehose/base/thread.hpp"
#include "firehose/base/uncancelled.hpp"

#include <algorithm>
#include <sched.h>

namespace hydrant {
namespace {

constexpr uint64_t kNapNs = 1'000'000;

struct Naps final : Sleeping {};
constinit Naps the_naps;

}  // namespace

Sleeping& Sleeping::naps() noexcept { return the_naps; }

void Sleeping::sleep(uint64_t deadline_ns, const WakeCondition& check) noexcept {
  Announcement announcement;
  if (!announce_sleep(&announcement)) return;
  if (check.holds == nullptr || !check.holds(check.context))
    (void)sleep_announced(announcement, deadline_ns);
  end_sleep();
}

bool Sleeping::announce_sleep(Announcement* announcement) noexcept {
  *announcement = {.deadline_ns = now_ns() + kNapNs};
  return true;
}

bool Sleeping::sleep_announced(const Announcement& announcement, uint64_t deadline_ns) noexcept {
  const uint64_t now = now_ns();
  const uint64_t until = std::min({deadline_ns, announcement.deadline_ns, now + kNapNs});
  uncancelled::sleep_ns(until - std::min(until, now));
  return false;
}

void Sleeping::end_sleep() noexcept {}

void Sleeping::yield() noexcept { sched_yield(); }

bool Sleeping::is_reply_imminent() const noexcept { return false; }

void Sleeping::wake_peer(Rank) noexcept {}

void Sleeping::wake() noexcept {}

}  // namespace hydrant
