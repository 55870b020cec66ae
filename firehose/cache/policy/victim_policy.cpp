// Implements the default policy, ClockPolicy, and the adapter for a client's hydrant_policy_t. Evictor gets
// victims from the domain's policy in step 4 of "Tour: a miss with eviction".
#include "firehose/cache/policy/victim_policy.hpp"

#include "firehose/base/status.hpp"

#include <algorithm>
#include <new>

namespace hydrant {

bool ClockPolicy::map(size_t slots) noexcept {
  if (!links_.map(slots + 3) || !is_watched_.map(slots + 1)) return false;
  active_ = static_cast<RegionIndex>(slots + 1);
  watched_ = active_ + 1;
  empty_queues();
  return true;
}

void ClockPolicy::empty_queues() noexcept {
  links_[active_] = {active_, active_};
  links_[watched_] = {watched_, watched_};
  active_count_ = watched_count_ = 0;
}

void ClockPolicy::reset_in_child() noexcept {
  links_.clear();
  empty_queues();
}

void ClockPolicy::push_back(RegionIndex head, RegionIndex region) noexcept {
  const RegionIndex tail = links_[head].previous;
  links_[region] = {tail, head};
  links_[tail].next = region;
  links_[head].previous = region;
  is_watched_[region] = head == watched_;
  ++(head == watched_ ? watched_count_ : active_count_);
}

void ClockPolicy::unlink(RegionIndex region) noexcept {
  Link& link = links_[region];
  if (link.next == 0) return;
  --(is_watched_[region] != 0 ? watched_count_ : active_count_);
  links_[link.previous].next = link.next;
  links_[link.next].previous = link.previous;
  link = {0, 0};
}

void ClockPolicy::insert(RegionIndex region, size_t /*len*/, uint64_t /*charge*/) noexcept {
  push_back(active_, region);
}

void ClockPolicy::touch(RegionIndex region) noexcept {
  unlink(region);
  push_back(active_, region);
}

void ClockPolicy::erase(RegionIndex region) noexcept { unlink(region); }

size_t ClockPolicy::watch(RegionIndex* regions, size_t n) noexcept {
  // Watching everything would make every region pay for its next use: keep at most half under watch.
  const size_t all = active_count_ + watched_count_;
  const size_t room = all / 2 > watched_count_ ? all / 2 - watched_count_ : 0;
  n = std::min({n, std::max<size_t>(room, watched_count_ == 0 ? 1 : 0), active_count_});
  for (size_t i = 0; i < n; ++i) {
    regions[i] = links_[active_].next;
    unlink(regions[i]);
    push_back(watched_, regions[i]);
  }
  return n;
}

size_t ClockPolicy::evict(RegionIndex* regions, size_t n) noexcept {
  size_t found = 0;
  for (RegionIndex r = links_[watched_].next; r != watched_ && found < n; r = links_[r].next) {
    regions[found++] = r;
  }
  // Under pressure from held regions the second queue may be short: go on with the oldest of the first.
  for (RegionIndex r = links_[active_].next; r != active_ && found < n; r = links_[r].next) {
    regions[found++] = r;
  }
  return found;
}

namespace {

class ClientPolicy final : public VictimPolicy {
 public:
  explicit ClientPolicy(const hydrant_policy_t& client) noexcept : client_(client) {}
  ~ClientPolicy() override {
    if (adopted_ && client_.destroy != nullptr) client_.destroy(client_.user);
  }
  void insert(RegionIndex region, size_t len, uint64_t charge) noexcept override {
    client_.insert(client_.user, region, len, charge);
  }
  void touch(RegionIndex region) noexcept override { client_.touch(client_.user, region); }
  void erase(RegionIndex region) noexcept override { client_.erase(client_.user, region); }
  size_t watch(RegionIndex* regions, size_t n) noexcept override {
    return std::min(n, client_.watch(client_.user, regions, n));
  }
  size_t evict(RegionIndex* regions, size_t n) noexcept override {
    return std::min(n, client_.evict(client_.user, regions, n));
  }
  void adopt() noexcept override { adopted_ = true; }

 private:
  const hydrant_policy_t client_;
  bool adopted_ = false;
};

}  // namespace

std::unique_ptr<VictimPolicy> make_client_policy(const hydrant_policy_t& client) noexcept {
  if (client.size < offsetof(hydrant_policy_t, destroy) + sizeof(client.destroy)) {
    (void)fail(Status::kBadArg, "policy.size is %zu: set it to sizeof(hydrant_policy_t) = %zu",
               client.size, sizeof(hydrant_policy_t));
    return nullptr;
  }
  if (client.insert == nullptr || client.touch == nullptr || client.erase == nullptr ||
      client.watch == nullptr || client.evict == nullptr) {
    (void)fail(Status::kBadArg, "a policy needs all of insert, touch, erase, watch and evict");
    return nullptr;
  }
  return std::unique_ptr<VictimPolicy>(new (std::nothrow) ClientPolicy(client));
}

}  // namespace hydrant
