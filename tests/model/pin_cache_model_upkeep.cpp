// The model's operations other than pins: invalidations, vouching, polls, statistics, new domains.
#include "tests/model/pin_cache_model.hpp"

#include <algorithm>
#include <set>
#include <utility>

namespace hydrant::model {

using testing::kPage;
using testing::RecordingRegistrar;

std::string PinCacheModel::invalidate(uintptr_t addr, size_t len) {
  const uint64_t serial = registrar_.next_serial();
  const int status = hydrant_invalidate(domain_, reinterpret_cast<const void*>(addr), len);
  if (status != GASNET_OK) return failed("invalidate", status);
  ++tally_.invalidations;
  for (size_t i = arena_.index(addr); i <= arena_.index(addr + len - 1); ++i) oldest_[i] = serial;
  const uintptr_t inside = addr + random(len);
  const hydrant_pin_t pin = hydrant_try_pin(domain_, reinterpret_cast<const void*>(inside), 1, 0);
  if (pin.region == nullptr) return "";
  (void)hydrant_release(pin);
  return "invalidated memory was hit";
}

std::string PinCacheModel::invalidate_random() {
  const Request request = random_request();
  if (random(20) == 0) return invalidate(arena_.addr(0), arena_.pages() * kPage);
  return invalidate(request.addr, request.len);
}

std::string PinCacheModel::vouch() {
  const Request request = random_request();
  const bool promise = random(2) != 0;
  const auto* addr = reinterpret_cast<const void*>(arena_.addr(arena_.index(request.addr)));
  const size_t last = arena_.index(request.addr + request.len - 1);
  const size_t len = (last - arena_.index(request.addr) + 1) * kPage;
  const int status =
      promise ? hydrant_vouch(domain_, addr, len) : hydrant_unvouch(domain_, addr, len);
  for (size_t i = arena_.index(request.addr); i <= last; ++i) vouched_[i] = promise;
  return status == GASNET_OK ? "" : failed(promise ? "vouch" : "unvouch", status);
}

std::string PinCacheModel::flush() {
  const int status = hydrant_flush(domain_);
  if (status != GASNET_OK) return failed("flush", status);
  if (setup_.key_bytes != 0 && registrar_.live() != held_regions_.size()) {
    return "after flush " + std::to_string(registrar_.live()) + " are registered, " +
           std::to_string(held_regions_.size()) + " are held";
  }
  return "";
}

std::string PinCacheModel::poll() {
  if (random(4) == 0) registrar_.settle();
  const int ran = hydrant_poll(domain_);
  if (ran != 0) return "poll answered " + std::to_string(ran);
  if (setup_.watch != HYDRANT_WATCH_NONE) return "";
  std::set<std::pair<uintptr_t, size_t>> held;
  for (const auto& entry : held_regions_)
    held.emplace(std::get<1>(entry.first), std::get<2>(entry.first));
  for (const auto& region : registrar_.registrations()) {
    if (held.count({region.addr, region.len}) != 0) continue;
    for (size_t i = 0; i < region.len / kPage; ++i) {
      const size_t page = arena_.index(region.addr) + i;
      if (!vouched_[page])
        return "page " + std::to_string(page) + " is cached, unwatched and unvouched";
    }
  }
  return "";
}

// Makes some pages read-only, some refuse all rights, and the others ordinary again.
std::string PinCacheModel::change_refusals() {
  if (!setup_.refusing) return "";
  registrar_.refuse_nothing();
  std::fill(refused_.begin(), refused_.end(), 0u);
  for (int i = 0; i < 4; ++i) {
    const size_t page = random(arena_.pages());
    refused_[page] |= i % 2 == 0 ? RecordingRegistrar::kAnyAccess : HYDRANT_LOCAL_WRITE;
    registrar_.refuse(arena_.addr(page), kPage, refused_[page]);
  }
  return invalidate(arena_.addr(0), arena_.pages() * kPage);
}

std::string PinCacheModel::check_stats() {
  hydrant_stats_t s{};
  s.size = sizeof s;
  if (const int status = hydrant_get_stats(domain_, &s); status != GASNET_OK)
    return failed("stats", status);
  const uint64_t pins = registrar_.pins() - pins_before_;
  const uint64_t unpins = registrar_.unpins() - unpins_before_;
  const auto differs = [](const char* what, uint64_t is, uint64_t should) {
    return std::string("stats.") + what + " is " + std::to_string(is) + ", not " +
           std::to_string(should);
  };
  if (s.pins != pins) return differs("pins", s.pins, pins);
  if (s.unpins != unpins) return differs("unpins", s.unpins, unpins);
  const uint64_t registered = s.regions + s.dead_regions;
  if (registered != pins - unpins) return differs("regions + dead", registered, pins - unpins);
  // In page mode a pin of several buckets holds each of them.
  uint64_t most = held_.size();
  if (setup_.mode == HYDRANT_MODE_PAGE) {
    for (const Held& held : held_) most += hydrant_pin_parts(held.pin, 0, nullptr);
  }
  if (s.live_holds < held_.size() || s.live_holds > most) {
    return differs("live_holds", s.live_holds, held_.size());
  }
  // A registrar without room may have reduced the budget.
  const uint64_t budget = setup_.budget_pages * kPage;
  const bool may_shrink = setup_.failing_per_mille != 0;
  if (may_shrink ? s.budget_bytes > budget : s.budget_bytes != budget) {
    return differs("budget_bytes", s.budget_bytes, budget);
  }
  if (s.charged_bytes > budget) return differs("charged_bytes", s.charged_bytes, budget);
  if (!setup_.late_charges && s.charged_bytes != registrar_.live_bytes()) {
    return differs("charged_bytes", s.charged_bytes, registrar_.live_bytes());
  }
  return "";
}

std::string PinCacheModel::destroy_and_create() {
  std::vector<Held> orphans;
  std::swap(orphans, held_);
  for (const Held& held : orphans) account(held.pin, -1);
  const int status = hydrant_domain_destroy(domain_, HYDRANT_FINI_UNPIN);
  if (status != GASNET_OK) return failed("destroy", status);
  if (registrar_.live() != 0) return "a region is still registered after destroy";
  registrar_.settle();
  if (std::string wrong = create(); !wrong.empty()) return wrong;
  std::fill(vouched_.begin(), vouched_.end(), false);
  for (const Held& held : orphans) {
    const int answer = hydrant_release(held.pin);
    if (answer != GASNET_ERR_NOT_INIT)
      return failed("release of a pin of a destroyed domain", answer);
  }
  return "";
}

}  // namespace hydrant::model
