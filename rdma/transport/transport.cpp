// Supplies the default methods of Transport. A transport overrides what its network can do.
#include "rdma/transport/transport.hpp"

#include "firehose/base/thread.hpp"
#include "firehose/base/uncancelled.hpp"

#include <algorithm>

namespace hydrant {
namespace {

constexpr uint64_t kNapNs = 1'000'000;

}  // namespace

bool Transport::announce_sleep(Announcement* announcement) noexcept {
  *announcement = {.deadline_ns = now_ns() + kNapNs};
  return true;
}

bool Transport::sleep_announced(const Announcement& announcement, uint64_t deadline_ns) noexcept {
  const uint64_t now = now_ns();
  const uint64_t until = std::min({deadline_ns, announcement.deadline_ns, now + kNapNs});
  uncancelled::sleep_ns(until - std::min(until, now));
  return false;
}

}  // namespace hydrant
