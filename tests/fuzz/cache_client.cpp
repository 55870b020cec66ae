// Steps of the random cache client (cache_client.hpp), and the checks after them.
#include "tests/fuzz/cache_client.hpp"

namespace hydrant::fuzz {
namespace {

using testing::check_hold;
using testing::for_each_part;
using testing::kPage;

constexpr size_t kMaxHeld = 48;

bool is_answer(int status) {
  switch (status) {
    case GASNET_OK:
    case GASNET_ERR_BAD_ARG:
    case GASNET_ERR_NOT_INIT:
    case GASNET_ERR_NOT_READY:
    case GASNET_ERR_RESOURCE:
    case HYDRANT_ERR_REFUSED:
    case HYDRANT_ERR_BROKEN:
    case HYDRANT_ERR_UNSUPPORTED: return true;
    default: return false;
  }
}

void check_failure(hydrant_pin_t pin) {
  const int status = hydrant_pin_status(pin);
  HYDRANT_FUZZ_CHECK(is_answer(status) && status != GASNET_OK);
  HYDRANT_FUZZ_CHECK(hydrant_error_text()[0] != 0);
}

}  // namespace

CacheClient::~CacheClient() { finish(); }

void CacheClient::run() {
  while (!input_.empty()) step();
}

void CacheClient::step() {
  const uint32_t kind = input_.below(24);
  if (kind < 8) return pin_step(kind);
  switch (kind) {
    case 8: return pin_async();
    case 9: return pin_many();
    case 10:
    case 11:
    case 12: return release_one();
    case 13: return release_many();
    case 14: return wrong_release();
    case 15:
    case 16:
    case 17:
    case 18: return tell_of_memory(kind);
    case 19: return use_keys();
    case 20: return look();
    case 21: return end_and_begin();
    case 22: return use_dead_handle();
    default: {
      const FuzzedDomain* domain = world_.domains[some_domain()].get();
      if (domain != nullptr) HYDRANT_FUZZ_CHECK(hydrant_poll(domain->handle) >= 0);
    }
  }
}

size_t CacheClient::some_domain() { return input_.below(CacheWorld::kDomains); }

CacheClient::Request CacheClient::request(size_t domain) {
  constexpr uint32_t kRights[] = {HYDRANT_LOCAL_READ,  HYDRANT_LOCAL_WRITE,
                                  HYDRANT_LOCAL_WRITE, HYDRANT_LOCAL_WRITE,
                                  HYDRANT_REMOTE_READ, HYDRANT_LOCAL_WRITE | HYDRANT_REMOTE_WRITE,
                                  HYDRANT_ACCESS_ALL,  HYDRANT_LOCAL_READ};
  const uint8_t shape = input_.byte();
  const size_t page = input_.below(CacheWorld::kPages);
  const size_t most = (CacheWorld::kPages - page) * kPage;
  const size_t inside = (shape & 8) != 0 ? input_.take<uint16_t>() % kPage : 0;
  const size_t len = std::min<size_t>(1 + input_.below(8 * kPage), most - inside);
  Request made{world_.arena.page(page) + inside, len, kRights[shape & 7], true};
  const FuzzedDomain* of = world_.domains[domain].get();
  if (of != nullptr && of->has_oldest) made.oldest = of->oldest;
  if (shape < 240) return made;
  made.is_range = shape % 8 == 3;
  const auto at = [](uintptr_t addr) { return reinterpret_cast<const void*>(addr); };
  switch (shape % 8) {
    case 0: made.len = 0; break;
    case 1: made.len = SIZE_MAX; break;
    case 2: made.addr = at(UINTPTR_MAX - 100); break;
    case 3: made.access = HYDRANT_ACCESS_ALL + 1 + shape; break;
    case 4: made.addr = nullptr; break;
    case 5: made.addr = at(UINTPTR_MAX), made.len = 1; break;
    case 6: made.len = SIZE_MAX - reinterpret_cast<uintptr_t>(made.addr); break;
    default: made.addr = at(kPage), made.len = size_t{1} << 46; break;
  }
  return made;
}

// ---- holds --------------------------------------------------------------------------------------------

void CacheClient::note(const Held& held, int delta) {
  FuzzRegistrar& registrar = world_.domains[held.domain]->registrar;
  for_each_part(held.pin, [&](const hydrant_region_t& part) { registrar.note_hold(part, delta); });
}

void CacheClient::take(size_t i, hydrant_pin_t pin, const Request& request) {
  if (pin.region == nullptr) return check_failure(pin);
  FuzzedDomain& domain = *world_.domains[i];
  HYDRANT_FUZZ_CHECK(request.is_good());
  HYDRANT_FUZZ_CHECK_TEXT(
      check_hold(domain.registrar, pin, reinterpret_cast<uintptr_t>(request.addr), request.len,
                 request.access, request.oldest.empty() ? nullptr : request.oldest.data()));
  HYDRANT_FUZZ_CHECK(hydrant_pin_key_bytes(pin) == domain.registrar.table.key_bytes);
  held_.push_back({pin, i});
  note(held_.back(), 1);
}

void CacheClient::pin_step(uint32_t kind) {
  if (held_.size() >= kMaxHeld) release_one();
  const size_t i = some_domain();
  Request asked = request(i);
  if (world_.domains[i] == nullptr) return;
  const hydrant_domain_t handle = world_.domains[i]->handle;
  hydrant_pin_t pin{};
  if (kind == 5) {
    pin = hydrant_try_pin(handle, asked.addr, asked.len, asked.access);
  } else if (kind == 6) {
    pin = hydrant_pin_wait(handle, asked.addr, asked.len, asked.access, input_.byte() * 100u);
  } else if (kind == 7) {
    pin = hydrant_partial_pin(handle, asked.addr, asked.len, asked.access);
    if (pin.region == nullptr) return check_failure(pin);
    HYDRANT_FUZZ_CHECK(asked.is_good() || asked.len > 8 * kPage);
    // A partial pin may be used only for the part that it has.
    const hydrant_region_t part = *pin.region;
    return take(i, pin, {reinterpret_cast<const void*>(part.addr), part.len, asked.access, true});
  } else {
    pin = hydrant_pin(handle, asked.addr, asked.len, asked.access);
  }
  // A single range: if it was invalidated during the pin, the cache registers it again.
  if (!asked.oldest.empty()) asked.oldest = world_.domains[i]->oldest;
  take(i, pin, asked);
}

void CacheClient::pin_async() {
  if (held_.size() >= kMaxHeld || waiting_.size() >= kMaxHeld) return;
  const size_t i = some_domain();
  const Request asked = request(i);
  if (world_.domains[i] == nullptr) return;
  FuzzedDomain& domain = *world_.domains[i];
  // Only with one thread: callbacks run in the polling thread, so clients would have to lock their holds.
  if (world_.has_threads) return;
  waiting_.push_back(std::make_unique<Waiting>(Waiting{this, i, asked}));
  Waiting* own = waiting_.back().get();
  ++domain.callbacks_due;
  const auto done = [](void* context, hydrant_pin_t pin) {
    auto& it = *static_cast<Waiting*>(context);
    HYDRANT_FUZZ_CHECK(!it.is_done);
    it.is_done = true;
    --it.client->world_.domains[it.domain]->callbacks_due;
    it.client->take(it.domain, pin, it.request);
  };
  const bool forgets_callback = asked.len % 64 == 63;
  const int status = hydrant_pin_async(domain.handle, asked.addr, asked.len, asked.access,
                                       forgets_callback ? nullptr : +done, own);
  HYDRANT_FUZZ_CHECK(is_answer(status));
  if (status == GASNET_OK) {
    // Unmapped memory may be refused later.
    HYDRANT_FUZZ_CHECK((asked.access & ~HYDRANT_ACCESS_ALL) == 0 && !forgets_callback);
    return;
  }
  HYDRANT_FUZZ_CHECK(!own->is_done && hydrant_error_text()[0] != 0);
  --domain.callbacks_due;
  waiting_.pop_back();
}

void CacheClient::pin_many() {
  if (held_.size() + 4 >= kMaxHeld) return;
  const size_t i = some_domain();
  const size_t n = input_.below(5);
  Request asked[4] = {};
  hydrant_range_t ranges[4] = {};
  bool all_good = true;
  for (size_t k = 0; k < n; ++k) {
    asked[k] = request(i);
    asked[k].access = asked[0].access;
    ranges[k] = {reinterpret_cast<uintptr_t>(asked[k].addr), asked[k].len};
    all_good = all_good && asked[k].is_good();
  }
  if (world_.domains[i] == nullptr) return;
  constexpr hydrant_pin_t kMark{nullptr, 0x5eed};
  hydrant_pin_t pins[4] = {kMark, kMark, kMark, kMark};
  const int status = hydrant_pin_many(world_.domains[i]->handle, ranges, n, asked[0].access, pins);
  HYDRANT_FUZZ_CHECK(is_answer(status));
  for (size_t k = 0; k < 4; ++k) {
    if (status == GASNET_OK && k < n) {
      HYDRANT_FUZZ_CHECK(all_good && pins[k].region != nullptr);
      take(i, pins[k], asked[k]);
    } else {
      HYDRANT_FUZZ_CHECK(pins[k].region == nullptr && pins[k].hold == kMark.hold);
    }
  }
}

void CacheClient::release_one() {
  if (held_.empty()) return;
  const size_t i = input_.below(static_cast<uint32_t>(held_.size()));
  const Held held = held_[i];
  held_[i] = held_.back();
  held_.pop_back();
  note(held, -1);
  HYDRANT_FUZZ_CHECK(hydrant_release(held.pin) == GASNET_OK);
#if HYDRANT_TICKETS
  // Builds with tickets always detect a second release.
  if (!world_.has_threads && input_.below(8) == 7) {
    const int status = hydrant_release(held.pin);
    HYDRANT_FUZZ_CHECK(status == GASNET_ERR_BAD_ARG || status == GASNET_ERR_NOT_INIT);
  }
#endif
}

void CacheClient::release_many() {
  std::vector<hydrant_pin_t> pins;
  // Puts an invalid pin in front.
  const bool with_dead = input_.below(8) == 7;
  if (with_dead) pins.push_back(hydrant_pin_t{});
  for (size_t n = input_.below(8); n > 0 && !held_.empty(); --n) {
    note(held_.back(), -1);
    pins.push_back(held_.back().pin);
    held_.pop_back();
  }
  const int status = hydrant_release_many(pins.data(), pins.size());
  HYDRANT_FUZZ_CHECK(with_dead ? status == GASNET_ERR_NOT_INIT || status == GASNET_ERR_BAD_ARG
                               : status == GASNET_OK);
}

void CacheClient::wrong_release() {
  const std::vector<hydrant_pin_t>& dead = world_.dead_pins;
  const hydrant_pin_t pin = dead[input_.byte() % dead.size()];
  const int status = hydrant_release(pin);
  HYDRANT_FUZZ_CHECK(status == GASNET_ERR_NOT_INIT || status == GASNET_ERR_BAD_ARG);
  hydrant_region_t part;
  HYDRANT_FUZZ_CHECK(hydrant_pin_parts(pin, input_.byte(), &part) == 0);
  HYDRANT_FUZZ_CHECK(part.addr == 0 && part.len == 0 && part.key == nullptr);
  HYDRANT_FUZZ_CHECK(hydrant_pin_key_bytes(pin) == 0);
  size_t room = 64;
  char blob[64];
  HYDRANT_FUZZ_CHECK(hydrant_export_key(pin, blob, &room) != GASNET_OK);
}

// ---- other steps -----------------------------------------------------------------------------------------

void CacheClient::tell_of_memory(uint32_t kind) {
  const size_t i = some_domain();
  const Request asked = request(i);
  if (world_.domains[i] == nullptr) return;
  FuzzedDomain& domain = *world_.domains[i];
  const hydrant_domain_t handle = domain.handle;
  if (kind == 17 && input_.below(4) == 3) {
    HYDRANT_FUZZ_CHECK(hydrant_flush(handle) == GASNET_OK);
    domain.registrar.settle();
    return;
  }
  int status = GASNET_OK;
  if (kind <= 16) {
    status = hydrant_invalidate(handle, asked.addr, asked.len);
    if (asked.is_range && !world_.has_threads) {
      const size_t first = world_.arena.index(reinterpret_cast<uintptr_t>(asked.addr));
      const size_t last =
          world_.arena.index(reinterpret_cast<uintptr_t>(asked.addr) + asked.len - 1);
      for (size_t page = first; page <= last; ++page)
        domain.oldest[page] = domain.registrar.next_serial();
    }
  } else if (kind == 17) {
    status = hydrant_vouch(handle, asked.addr, asked.len);
  } else {
    status = hydrant_unvouch(handle, asked.addr, asked.len);
  }
  HYDRANT_FUZZ_CHECK(is_answer(status));
  if (asked.is_range) HYDRANT_FUZZ_CHECK(status == GASNET_OK || status == GASNET_ERR_RESOURCE);
}

void CacheClient::use_keys() {
  const size_t i = some_domain();
  if (world_.domains[i] == nullptr) return;
  FuzzedDomain& domain = *world_.domains[i];
  alignas(16) char key[64];
  char blob[64];
  size_t room = input_.below(65);
  if (!held_.empty()) {
    const hydrant_pin_t pin = held_[input_.byte() % held_.size()].pin;
    const int status = hydrant_export_key(pin, blob, &room);
    HYDRANT_FUZZ_CHECK(is_answer(status));
    if (status == GASNET_OK && domain.registrar.table.key_bytes != 0)
      HYDRANT_FUZZ_CHECK(hydrant_import_key(domain.handle, blob, room, key) == GASNET_OK);
    (void)hydrant_export_key(pin, nullptr, &room);
    HYDRANT_FUZZ_CHECK(hydrant_export_key(pin, blob, nullptr) != GASNET_OK);
  }
  const auto bytes = input_.bytes(input_.below(40));
  HYDRANT_FUZZ_CHECK(is_answer(hydrant_import_key(domain.handle, bytes.data(), bytes.size(), key)));
  HYDRANT_FUZZ_CHECK(hydrant_import_key(domain.handle, nullptr, 24, key) != GASNET_OK);
  HYDRANT_FUZZ_CHECK(hydrant_implicit_key(domain.handle, input_.byte(), key) != GASNET_OK);
}

void CacheClient::look() {
  const size_t i = some_domain();
  const Request asked = request(i);
  if (world_.domains[i] == nullptr) return;
  FuzzedDomain& domain = *world_.domains[i];
  hydrant_stats_t stats{};
  stats.size = sizeof stats;
  HYDRANT_FUZZ_CHECK(hydrant_get_stats(domain.handle, &stats) == GASNET_OK);
  HYDRANT_FUZZ_CHECK(hydrant_get_stats(domain.handle, nullptr) == GASNET_ERR_BAD_ARG);
  if (!world_.has_threads) {
    const auto own = std::count_if(held_.begin(), held_.end(),
                                   [&](const Held& held) { return held.domain == i; });
    HYDRANT_FUZZ_CHECK(stats.live_holds >= static_cast<uint64_t>(own));
    HYDRANT_FUZZ_CHECK(stats.pins == domain.registrar.pins());
    HYDRANT_FUZZ_CHECK(stats.unpins == domain.registrar.unpins());
    HYDRANT_FUZZ_CHECK(stats.regions + stats.dead_regions == domain.registrar.live());
  }
  uint32_t coverage = 99;
  const int status = hydrant_coverage(domain.handle, asked.addr, asked.len, &coverage);
  HYDRANT_FUZZ_CHECK(is_answer(status));
  if (status == GASNET_OK) HYDRANT_FUZZ_CHECK(coverage <= HYDRANT_COVERAGE_WATCHED);
  HYDRANT_FUZZ_CHECK(hydrant_coverage(domain.handle, asked.addr, asked.len, nullptr) != GASNET_OK);
  HYDRANT_FUZZ_CHECK(hydrant_coverage_name(input_.byte())[0] != 0);
  HYDRANT_FUZZ_CHECK(hydrant_status_name(input_.take<int>())[0] != 0);
  HYDRANT_FUZZ_CHECK(hydrant_registrar_name(domain.handle)[0] != 0);
}

// Destroys a domain while pins are held, and creates another one.
void CacheClient::end_and_begin() {
  if (world_.has_threads) return;
  const size_t i = some_domain();
  if (world_.domains[i] != nullptr) {
    before_destroy(i);
    world_.destroy(i, input_.below(2) != 0 ? HYDRANT_FINI_KEEP : HYDRANT_FINI_UNPIN);
  }
  if (world_.dead_handles.size() < 8) world_.create(input_, i);
}

// Destroying a domain completes waiting requests and invalidates its holds.
void CacheClient::before_destroy(size_t i) {
  for (size_t k = held_.size(); k-- > 0;) {
    if (held_[k].domain != i) continue;
    note(held_[k], -1);
    world_.dead_pins.push_back(held_[k].pin);
    held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(k));
  }
}

void CacheClient::use_dead_handle() {
  const std::vector<hydrant_domain_t>& dead = world_.dead_handles;
  // The handle of a destroyed domain, or any number that is not a live handle.
  hydrant_domain_t handle = dead[input_.byte() % dead.size()];
  if (input_.below(2) != 0) handle = input_.take<uint64_t>();
  for (const auto& domain : world_.domains) {
    if (domain != nullptr && domain->handle == handle) return;
  }
  const Request asked = request(0);
  const hydrant_range_t range{reinterpret_cast<uintptr_t>(asked.addr), asked.len};
  hydrant_pin_t pin = hydrant_pin(handle, asked.addr, asked.len, asked.access);
  HYDRANT_FUZZ_CHECK(hydrant_pin_status(pin) != GASNET_OK);
  HYDRANT_FUZZ_CHECK(hydrant_pin_many(handle, &range, 1, asked.access, &pin) != GASNET_OK);
  HYDRANT_FUZZ_CHECK(hydrant_try_pin(handle, asked.addr, asked.len, asked.access).region ==
                     nullptr);
  HYDRANT_FUZZ_CHECK(hydrant_invalidate(handle, asked.addr, asked.len) != GASNET_OK);
  HYDRANT_FUZZ_CHECK(hydrant_vouch(handle, asked.addr, asked.len) != GASNET_OK);
  HYDRANT_FUZZ_CHECK(hydrant_poll(handle) < 0);
  HYDRANT_FUZZ_CHECK(hydrant_flush(handle) == GASNET_ERR_NOT_INIT);
  HYDRANT_FUZZ_CHECK(hydrant_key_bytes(handle) == 0);
  HYDRANT_FUZZ_CHECK(hydrant_domain_destroy(handle, HYDRANT_FINI_UNPIN) == GASNET_ERR_NOT_INIT);
}

void CacheClient::finish() {
  while (!held_.empty()) {
    note(held_.back(), -1);
    HYDRANT_FUZZ_CHECK(hydrant_release(held_.back().pin) == GASNET_OK);
    held_.pop_back();
  }
  if (world_.has_threads) return;
  for (size_t i = 0; i < CacheWorld::kDomains; ++i) {
    if (world_.domains[i] != nullptr) world_.destroy(i, HYDRANT_FINI_UNPIN);
  }
}

}  // namespace hydrant::fuzz
