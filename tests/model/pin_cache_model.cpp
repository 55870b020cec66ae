// The model's operations on pins, and the checks of their answers. pin_cache_model_test.cpp calls step() in a
// loop.
#include "tests/model/pin_cache_model.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <thread>

namespace hydrant::model {

using testing::check_hold;
using testing::kPage;
using testing::RecordingRegistrar;

namespace {

constexpr size_t kMaxHolds = 24;
constexpr size_t kMaxPages = 9;

}  // namespace

std::string failed(const char* what, int status) {
  return std::string(what) + ": " + hydrant_status_name(status) + " (" + hydrant_error_text() + ")";
}

uint64_t test_factor() {
  const char* wanted = std::getenv("HYDRANT_TEST_LONG");
  return wanted != nullptr && wanted[0] == '1' ? 20 : 1;
}

PinCacheModel::PinCacheModel(const ModelSetup& setup, uint64_t seed)
    : setup_(setup),
      random_(seed),
      arena_(setup.arena_pages),
      registrar_(arena_, setup.key_bytes),
      oldest_(setup.arena_pages),
      refused_(setup.arena_pages),
      vouched_(setup.arena_pages) {
  registrar_.table.max_region_bytes = setup.max_region_pages * kPage;
  registrar_.watch_limits(setup.budget_pages * kPage, setup.max_regions);
  registrar_.fail_pins(setup.failing_per_mille, seed);
  if (setup.late_charges) registrar_.answer_unpins(HYDRANT_UNPIN_PENDING);
  broken_at_start_ = create();
}

PinCacheModel::~PinCacheModel() {
  if (domain_ != 0) (void)hydrant_domain_destroy(domain_, HYDRANT_FINI_UNPIN);
}

std::string PinCacheModel::create() {
  hydrant_domain_options_t options;
  hydrant_domain_options_init(&options);
  options.name = setup_.name;
  options.registrar_name = nullptr;
  options.registrar = &registrar_.table;
  options.mode = setup_.mode;
  options.watch = setup_.watch;
  options.eager_access = setup_.eager_access;
  options.budget_bytes = setup_.budget_pages * kPage;
  options.max_regions = setup_.max_regions;
  options.bucket_bytes = setup_.bucket_pages * kPage;
  options.merge_bytes = setup_.merge_pages == 0 ? 1 : setup_.merge_pages * kPage;
  pins_before_ = registrar_.pins();
  unpins_before_ = registrar_.unpins();
  const int status = hydrant_domain_create(&options, &domain_);
  return status == GASNET_OK ? "" : failed("create", status);
}

// ---- requests and their permitted answers ----

PinCacheModel::Request PinCacheModel::random_request() {
  const size_t bytes = arena_.pages() * kPage;
  // Starts cluster in a few pages, so that ranges repeat and stay cached.
  const size_t start = random(2) ? random(bytes) : random(8) * 5 * kPage + random(kPage);
  size_t len = 1 + random(random(3) ? kPage : kMaxPages * kPage);
  len = std::min(len, bytes - start);
  constexpr std::array<uint32_t, 6> kRights = {HYDRANT_LOCAL_READ,  HYDRANT_LOCAL_WRITE,
                                               HYDRANT_LOCAL_WRITE, HYDRANT_REMOTE_READ,
                                               HYDRANT_LOCAL_WRITE, HYDRANT_ACCESS_ALL};
  return {arena_.addr(0) + start, len, kRights[random(kRights.size())]};
}

PinCacheModel::Pages PinCacheModel::pages_of(const Request& request) const {
  const size_t g = granule();
  const size_t first = arena_.index(request.addr) / g * g;
  const size_t last = arena_.index(request.addr + request.len - 1) / g * g + g - 1;
  return {first, last - first + 1};
}

bool PinCacheModel::overlaps_refusal(const Request& request) const {
  const Pages pages = pages_of(request);
  for (size_t i = pages.first; i < pages.first + pages.count; ++i) {
    const uint32_t refused = refused_[i];
    if (refused == RecordingRegistrar::kAnyAccess || (refused & request.access) != 0) return true;
  }
  return false;
}

// Whether even an empty cache could not hold all the requests.
bool PinCacheModel::too_large(const std::vector<Request>& requests) const {
  uint64_t pages = 0, regions = 0;
  for (const Request& request : requests) {
    const Pages wanted = pages_of(request);
    pages += wanted.count;
    regions += setup_.mode == HYDRANT_MODE_PAGE ? wanted.count / granule() : 1;
    const bool region_mode = setup_.mode == HYDRANT_MODE_REGION;
    if (region_mode && setup_.max_region_pages != 0 && wanted.count > setup_.max_region_pages) {
      return true;
    }
  }
  return pages > setup_.budget_pages || regions > setup_.max_regions;
}

// All pages of the registered regions that share one with the request.
uint64_t PinCacheModel::pages_touching(const Request& request) const {
  uint64_t pages = 0;
  for (const auto& region : registrar_.registrations()) {
    const bool touches =
        region.addr < request.addr + request.len && request.addr < region.addr + region.len;
    if (touches) pages += region.len / kPage;
  }
  return pages;
}

// Whether the requests fit beside all current holds, so that "not now" would be wrong.
bool PinCacheModel::must_fit(const std::vector<Request>& requests) const {
  if (setup_.late_charges || setup_.key_bytes == 0) return false;
  uint64_t pages = 0, regions = held_regions_.size();
  for (const auto& entry : held_regions_) pages += std::get<2>(entry.first) / kPage;
  for (const Request& request : requests) {
    const Pages wanted = pages_of(request);
    pages += wanted.count;
    regions += setup_.mode == HYDRANT_MODE_PAGE ? wanted.count / granule() : 1;
    // With several requests, a hold on one may be on a larger region and take room from the others.
    if (requests.size() > 1) pages += pages_touching(request);
  }
  return pages <= setup_.budget_pages && regions <= setup_.max_regions;
}

std::string PinCacheModel::check_failure(int status, const std::vector<Request>& requests) {
  const bool failing = setup_.failing_per_mille != 0;
  const bool refusal = std::any_of(requests.begin(), requests.end(),
                                   [this](const Request& r) { return overlaps_refusal(r); });
  if (status != GASNET_ERR_NOT_READY && *hydrant_error_text() == '\0')
    return "a failure without text";
  switch (status) {
    case GASNET_ERR_NOT_READY:
      ++tally_.not_ready;
      if (requests.size() == 1 && too_large(requests)) return failed("it will never fit", status);
      return failing || !must_fit(requests) ? ""
                                            : failed("although there is room", status) + describe();
    case HYDRANT_ERR_REFUSED:
      ++tally_.refused;
      return refusal ? "" : failed("although no page refuses", status);
    case GASNET_ERR_RESOURCE:
      ++tally_.too_large;
      return too_large(requests) ? "" : failed("although it is small enough", status);
    case HYDRANT_ERR_BROKEN: return failing ? "" : failed("although the registrar works", status);
    default: return failed("unexpected answer", status);
  }
}

// Describes registrations and holds, for messages.
std::string PinCacheModel::describe() const {
  std::string text = "; registered pages:";
  for (const auto& region : registrar_.registrations()) {
    const size_t first = arena_.index(region.addr);
    text += " " + std::to_string(first) + "+" + std::to_string(region.len / kPage);
    for (const auto& entry : held_regions_) {
      if (std::get<1>(entry.first) != region.addr || std::get<2>(entry.first) != region.len)
        continue;
      text += "(held " + std::to_string(entry.second) + ")";
    }
  }
  return text;
}

// ---- pins and releases ----

void PinCacheModel::account(hydrant_pin_t pin, int delta) {
  testing::for_each_part(pin, [&](const hydrant_region_t& part) {
    registrar_.note_hold(part, delta);
    const RegionName name{registrar_.serial_of(part.key), part.addr, part.len};
    uint64_t& count = held_regions_[name];
    count += static_cast<uint64_t>(static_cast<int64_t>(delta));
    if (count == 0) held_regions_.erase(name);
  });
}

std::string PinCacheModel::take(hydrant_pin_t pin, const Request& request) {
  const std::string wrong =
      check_hold(registrar_, pin, request.addr, request.len, request.access, oldest_.data());
  if (!wrong.empty()) return "after pin: " + wrong;
  account(pin, +1);
  held_.push_back({pin, request});
  return "";
}

std::string PinCacheModel::pin_one() {
  const Request request = random_request();
  const auto* addr = reinterpret_cast<const void*>(request.addr);
  const uint64_t calls = registrar_.pin_calls();
  const hydrant_pin_t pin =
      random(16) ? hydrant_pin(domain_, addr, request.len, request.access)
                 : hydrant_pin_wait(domain_, addr, request.len, request.access, 1000);
  if (pin.region == nullptr) return check_failure(hydrant_pin_status(pin), {request});
  ++tally_.pins;
  if (registrar_.pin_calls() == calls) ++tally_.cached;
  if (too_large({request})) return "more than the budget was pinned";
  if (std::string wrong = take(pin, request); !wrong.empty()) return wrong;
  if (setup_.watch == HYDRANT_WATCH_NONE || random(4) != 0) return "";
  const hydrant_pin_t again = hydrant_try_pin(domain_, addr, request.len, request.access);
  if (again.region == nullptr)
    return failed("try_pin of memory that was just pinned", hydrant_pin_status(again));
  return take(again, request);
}

std::string PinCacheModel::try_one() {
  const Request request = random_request();
  const auto* addr = reinterpret_cast<const void*>(request.addr);
  const uint64_t calls = registrar_.pin_calls();
  const hydrant_pin_t pin = hydrant_try_pin(domain_, addr, request.len, request.access);
  if (registrar_.pin_calls() != calls) return "try_pin registered memory";
  if (pin.region != nullptr) return take(pin, request);
  const int status = hydrant_pin_status(pin);
  if (status == GASNET_ERR_RESOURCE && too_large({request})) return "";
  return status == GASNET_ERR_NOT_READY ? "" : failed("try_pin", status);
}

std::string PinCacheModel::partial_one() {
  const Request request = random_request();
  const auto* addr = reinterpret_cast<const void*>(request.addr);
  const hydrant_pin_t pin = hydrant_partial_pin(domain_, addr, request.len, request.access);
  uintptr_t pinned_from = request.addr + request.len;
  if (pin.region != nullptr) {
    const hydrant_region_t region = *pin.region;
    pinned_from = std::max(request.addr, region.addr);
    if (pinned_from >= request.addr + request.len || region.addr + region.len <= request.addr) {
      return "partial_pin answered a region outside the range";
    }
    const std::string wrong = take(pin, {pinned_from, 1, request.access});
    if (!wrong.empty()) return wrong;
  } else if (hydrant_pin_status(pin) != GASNET_ERR_NOT_READY) {
    return failed("partial_pin", hydrant_pin_status(pin));
  }
  for (uintptr_t a = request.addr; a < pinned_from; a += kPage) {
    const hydrant_pin_t lower =
        hydrant_try_pin(domain_, reinterpret_cast<const void*>(a), 1, request.access);
    if (lower.region == nullptr) continue;
    (void)hydrant_release(lower);
    return "partial_pin skipped a pinned page";
  }
  return "";
}

std::string PinCacheModel::pin_several() {
  std::vector<Request> requests(1 + random(4));
  std::vector<hydrant_range_t> ranges;
  const uint32_t access = random_request().access;
  for (Request& request : requests) {
    request = random_request();
    request.access = access;
    ranges.push_back({request.addr, request.len});
  }
  const hydrant_pin_t untouched{nullptr, 4711};
  std::vector<hydrant_pin_t> pins(requests.size(), untouched);
  const int status = hydrant_pin_many(domain_, ranges.data(), ranges.size(), access, pins.data());
  if (status != GASNET_OK) {
    for (const hydrant_pin_t& pin : pins) {
      if (pin.region != nullptr || pin.hold != 4711) return "a failed pin_many wrote its answer";
    }
    return check_failure(status, requests);
  }
  std::string wrong;
  for (size_t i = 0; i < pins.size(); ++i) {
    const std::string text = take(pins[i], requests[i]);
    if (wrong.empty()) wrong = text;
  }
  return wrong;
}

std::string PinCacheModel::before_release(const Held& held) {
  // A held region stays registered unchanged, even if it was invalidated meanwhile.
  const Request& r = held.request;
  const std::string wrong = check_hold(registrar_, held.pin, r.addr, r.len, r.access);
  if (!wrong.empty()) return "while held: " + wrong;
  account(held.pin, -1);
  return "";
}

std::string PinCacheModel::release_in(bool elsewhere) {
  if (held_.empty()) return "";
  std::swap(held_[random(held_.size())], held_.back());
  const Held held = held_.back();
  held_.pop_back();
  if (std::string wrong = before_release(held); !wrong.empty()) return wrong;
  int status = GASNET_OK;
  if (elsewhere) {
    std::thread([&] { status = hydrant_release(held.pin); }).join();
  } else {
    status = hydrant_release(held.pin);
  }
  return status == GASNET_OK ? "" : failed("release", status);
}

std::string PinCacheModel::release_several() {
  std::vector<hydrant_pin_t> pins;
  std::shuffle(held_.begin(), held_.end(), random_);
  for (size_t n = std::min<size_t>(held_.size(), random(8)); n != 0; --n) {
    if (std::string wrong = before_release(held_.back()); !wrong.empty()) return wrong;
    pins.push_back(held_.back().pin);
    held_.pop_back();
  }
  const int status = hydrant_release_many(pins.data(), pins.size());
  return status == GASNET_OK ? "" : failed("release_many", status);
}

std::string PinCacheModel::step() {
  struct Choice {
    uint64_t per_mille;
    std::string (PinCacheModel::*run)();
  };
  static constexpr Choice kChoices[] = {
      {350, &PinCacheModel::pin_one},
      {100, &PinCacheModel::try_one},
      {30, &PinCacheModel::partial_one},
      {50, &PinCacheModel::pin_several},
      {320, &PinCacheModel::release_one},
      {3, &PinCacheModel::release_elsewhere},
      {30, &PinCacheModel::release_several},
      {60, &PinCacheModel::invalidate_random},
      {10, &PinCacheModel::vouch},
      {8, &PinCacheModel::flush},
      {22, &PinCacheModel::poll},
      {10, &PinCacheModel::check_stats},
      {2, &PinCacheModel::change_refusals},
      {1, &PinCacheModel::destroy_and_create},
  };
  if (!broken_at_start_.empty()) return broken_at_start_;
  if (held_.size() >= kMaxHolds) return release_several();
  uint64_t draw = random(996);
  for (const Choice& choice : kChoices) {
    if (draw < choice.per_mille) {
      const std::string wrong = (this->*choice.run)();
      return wrong.empty() ? registrar_.problems() : wrong;
    }
    draw -= choice.per_mille;
  }
  return "the weights do not sum up to the total";
}

std::string PinCacheModel::finish() {
  while (!held_.empty()) {
    if (std::string wrong = release_one(); !wrong.empty()) return wrong;
  }
  registrar_.settle();
  if (std::string wrong = flush(); !wrong.empty()) return wrong;
  if (registrar_.live() != 0)
    return "a region is still registered after the last release and flush";
  if (std::string wrong = check_stats(); !wrong.empty()) return wrong;
  const int status = hydrant_domain_destroy(domain_, HYDRANT_FINI_UNPIN);
  domain_ = 0;
  return status == GASNET_OK ? registrar_.problems() : failed("destroy", status);
}

}  // namespace hydrant::model
