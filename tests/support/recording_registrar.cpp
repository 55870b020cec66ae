// The registrar of the cache's unit tests: records registrations and holds, injects faults, checks holds.
#include "tests/support/recording_registrar.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <utility>

namespace hydrant::testing {
namespace {

constexpr size_t kSerialBytes = sizeof(uint64_t);

std::string text_of(uintptr_t addr, size_t len) {
  char text[64];
  std::snprintf(text, sizeof text, "[0x%zx, +%zu)", static_cast<size_t>(addr), len);
  return text;
}

// Filler after the serial, which detects keys that were copied only in part.
std::byte filler(uint64_t serial, size_t i) {
  return static_cast<std::byte>((serial * 31 + i * 7) & 0xff);
}

}  // namespace

Arena::Arena(size_t pages) : pages_(pages) {
  const size_t bytes = pages * kPage + 2 * kAlignment;
  void* all = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (all == MAP_FAILED) std::abort();
  mapping_ = static_cast<std::byte*>(all);
  const auto start = reinterpret_cast<uintptr_t>(all);
  base_ = mapping_ + (kAlignment - start % kAlignment);
  if (mprotect(base_, pages * kPage, PROT_READ | PROT_WRITE) != 0) std::abort();
}

Arena::~Arena() { munmap(mapping_, pages_ * kPage + 2 * kAlignment); }

RecordingRegistrar::RecordingRegistrar(const Arena& arena, uint32_t key_bytes)
    : arena_(arena),
      pin_records_(new PinRecord[kPinRecords]),
      page_pins_(new std::atomic<int32_t>[arena.pages()]()),
      page_holds_(new std::atomic<int32_t>[arena.pages()]()) {
  if (key_bytes != 0 && key_bytes < kSerialBytes) std::abort();
  table.size = sizeof table;
  table.user = this;
  table.name = "test";
  table.key_bytes = key_bytes;
  table.pin = [](void* user, uintptr_t addr, size_t len, uint32_t access, void* key) {
    return static_cast<RecordingRegistrar*>(user)->pin(addr, len, access, key);
  };
  table.unpin = [](void* user, uintptr_t addr, size_t len, const void* key) {
    return static_cast<RecordingRegistrar*>(user)->unpin(addr, len, key);
  };
  table.pending_charge = [](void* user) {
    return static_cast<RecordingRegistrar*>(user)->pending_.load();
  };
  table.forget_in_child = [](void* user) { ++static_cast<RecordingRegistrar*>(user)->forgotten_; };
  table.destroy = [](void* user) { ++static_cast<RecordingRegistrar*>(user)->destroyed_; };
}

// ---- faults ----

void RecordingRegistrar::fail_pin(uint64_t nth, int status) {
  locked([&] { fail_at_ = nth, fail_status_ = status; });
}

void RecordingRegistrar::fail_pins(uint32_t per_mille, uint64_t seed) {
  locked([&] { fail_per_mille_ = per_mille, random_state_ = seed | 1; });
}

void RecordingRegistrar::refuse(uintptr_t addr, size_t len, uint32_t rights) {
  locked([&] { refusals_.push_back({addr, len, rights}); });
}

void RecordingRegistrar::refuse_nothing() {
  locked([&] { refusals_.clear(); });
}

void RecordingRegistrar::allow_bytes(uint64_t bytes) {
  locked([&] { allowed_bytes_ = bytes; });
}

void RecordingRegistrar::watch_limits(uint64_t bytes, uint64_t regions) {
  locked([&] { watched_bytes_ = bytes, watched_regions_ = regions; });
}

void RecordingRegistrar::stop_pins() {
  locked([&] { stopped_ = true; });
}

void RecordingRegistrar::resume_pins() {
  locked([&] { stopped_ = false; });
  gate_changed_.notify_all();
}

bool RecordingRegistrar::wait_for_stopped(uint64_t n) {
  std::unique_lock lock(mutex_);
  return gate_changed_.wait_for(lock, patiently(kDeadline), [&] { return stopped_calls_ >= n; });
}

void RecordingRegistrar::pass_gate() {
  std::unique_lock lock(mutex_);
  if (!stopped_) return;
  ++stopped_calls_;
  gate_changed_.notify_all();
  if (!gate_changed_.wait_for(lock, patiently(kDeadline), [&] { return !stopped_; })) {
    problem_locked("a stopped pin was not released in time");
  }
  --stopped_calls_;
}

void RecordingRegistrar::offer_async() {
  table.pin_async = [](void* user, uintptr_t addr, size_t len, uint32_t access, void*,
                       hydrant_pin_done_fn done, void* context) -> int {
    auto* self = static_cast<RecordingRegistrar*>(user);
    self->locked([&] { self->jobs_.push_back({{addr, len, access}, done, context}); });
    return GASNET_ERR_NOT_READY;
  };
}

bool RecordingRegistrar::complete_async(int status) {
  std::vector<std::byte> key(table.key_bytes);
  Job job{};
  const bool found = locked([&] {
    if (jobs_.empty()) return false;
    job = jobs_.front();
    jobs_.erase(jobs_.begin());
    return true;
  });
  if (!found) return false;
  if (status == GASNET_OK) {
    status = pin(job.what.addr, job.what.len, job.what.access, key.data());
  }
  job.done(job.context, status, key.data());
  return true;
}

// ---- the registrar's own functions ----

int RecordingRegistrar::pin(uintptr_t addr, size_t len, uint32_t access, void* key) {
  ++pin_calls_;
  // Numbered at the start: a pin that began before an invalidation must not be found after it.
  const uint64_t serial = new_serial();
  pass_gate();
  if (const int64_t us = pin_sleep_us_.load(); us != 0) {
    std::this_thread::sleep_for(std::chrono::microseconds(us));
  }
  return locked([&] {
    const int status = answer_locked(addr, len, access);
    if (status == GASNET_OK) register_locked(serial, addr, len, access, key);
    return status;
  });
}

int RecordingRegistrar::answer_locked(uintptr_t addr, size_t len, uint32_t access) {
  const size_t granule = table.granule_bytes != 0 ? table.granule_bytes : kPage;
  if (len == 0 || addr % granule != 0 || len % granule != 0 || !arena_.contains(addr, len) ||
      (access & ~HYDRANT_ACCESS_ALL) != 0) {
    problem_locked("requested to pin " + text_of(addr, len) + " access " + std::to_string(access));
    return HYDRANT_ERR_BROKEN;
  }
  if (table.max_region_bytes != 0 && len > table.max_region_bytes) {
    problem_locked("requested to pin more than the largest region: " + text_of(addr, len));
  }
  if (fail_at_ != 0 && --fail_at_ == 0) return fail_status_;
  if (fail_per_mille_ != 0) {
    random_state_ = random_state_ * 6364136223846793005u + 1442695040888963407u;
    const auto draw = static_cast<uint32_t>((random_state_ >> 33) % 1000);
    if (draw < fail_per_mille_) return draw % 8 == 0 ? HYDRANT_ERR_BROKEN : GASNET_ERR_NOT_READY;
  }
  for (const Refusal& refusal : refusals_) {
    const bool overlaps = addr < refusal.addr + refusal.len && refusal.addr < addr + len;
    const bool concerns = refusal.rights == kAnyAccess || (refusal.rights & access) != 0;
    if (overlaps && concerns) return HYDRANT_ERR_REFUSED;
  }
  if (live_bytes_ + charge_of(addr, len) > allowed_bytes_) return GASNET_ERR_NOT_READY;
  return GASNET_OK;
}

uint64_t RecordingRegistrar::new_serial() {
  for (;;) {
    const uint64_t serial = next_serial_.fetch_add(1);
    if (card(serial).live_serial.load(relaxed) == 0) return serial;  // its card is free
  }
}

void RecordingRegistrar::register_locked(uint64_t serial, uintptr_t addr, size_t len,
                                         uint32_t access, void* key) {
  registrations_[serial] = {addr, len, access};
  live_bytes_ += charge_of(addr, len);
  ++pins_;
  PinRecord& c = card(serial);
  c.addr.store(addr, relaxed);
  c.len.store(len, relaxed);
  c.access.store(access, relaxed);
  c.live_serial.store(serial, relaxed);
  for (size_t i = 0; i < len / kPage; ++i) page_pins_[arena_.index(addr) + i].fetch_add(1, relaxed);
  write_key(serial, key);
  if (live_bytes_ + pending_ > watched_bytes_) {
    problem_locked("over the budget: " + std::to_string(live_bytes_) + " registered, " +
                   std::to_string(pending_) + " pending");
  }
  if (registrations_.size() > watched_regions_) {
    problem_locked(std::to_string(registrations_.size()) + " regions registered");
  }
}

int RecordingRegistrar::unpin(uintptr_t addr, size_t len, const void* key) {
  return locked([&] {
    const uint64_t serial = find_locked(addr, len, key);
    if (serial == 0) {
      problem_locked("unpin of an unregistered range: " + text_of(addr, len));
      return HYDRANT_UNPIN_BROKEN;
    }
    PinRecord& c = card(serial);
    if (c.held.load(relaxed) != 0) problem_locked("unpin of a held region " + text_of(addr, len));
    c.live_serial.store(0, relaxed);
    const uint64_t charge = charge_of(addr, len);
    registrations_.erase(serial);
    live_bytes_ -= charge;
    ++unpins_;
    for (size_t i = 0; i < len / kPage; ++i) {
      const size_t page = arena_.index(addr) + i;
      const bool last = page_pins_[page].fetch_sub(1, relaxed) == 1;
      if (last && page_holds_[page].load(relaxed) != 0) {
        problem_locked("unpin of a held page of " + text_of(addr, len));
      }
    }
    const int answer = unpin_answer_.load();
    if (answer == HYDRANT_UNPIN_PENDING) pending_ += charge;
    return answer;
  });
}

uint64_t RecordingRegistrar::find_locked(uintptr_t addr, size_t len, const void* key) const {
  const auto matches = [&](const Registration& r) { return r.addr == addr && r.len == len; };
  if (table.key_bytes != 0) {
    const auto found = registrations_.find(serial_of(key));
    return found != registrations_.end() && matches(found->second) ? found->first : 0;
  }
  for (const auto& [serial, registration] : registrations_) {
    if (matches(registration)) return serial;
  }
  return 0;
}

// ---- books ----

uint64_t RecordingRegistrar::live() const {
  return locked([this] { return registrations_.size(); });
}

uint64_t RecordingRegistrar::live_bytes() const {
  return locked([this] { return live_bytes_; });
}

std::string RecordingRegistrar::problems() const {
  return locked([this] { return problems_; });
}

std::vector<RecordingRegistrar::Registration> RecordingRegistrar::registrations() const {
  return locked([&] {
    std::vector<Registration> all;
    for (const auto& entry : registrations_) all.push_back(entry.second);
    return all;
  });
}

void RecordingRegistrar::problem(const std::string& what) const {
  locked([&] { problem_locked(what); });
}

std::string RecordingRegistrar::take_problems() {
  return locked([&] { return std::exchange(problems_, ""); });
}

void RecordingRegistrar::forget_all() {
  locked([&] {
    for (const auto& entry : registrations_) {
      card(entry.first).live_serial.store(0, relaxed);
      card(entry.first).held.store(0, relaxed);
    }
    registrations_.clear();
    live_bytes_ = 0;
    pending_ = 0;
    for (size_t i = 0; i < arena_.pages(); ++i) {
      page_pins_[i].store(0, relaxed);
      page_holds_[i].store(0, relaxed);
    }
  });
}

// ---- keys and holds ----

void RecordingRegistrar::write_key(uint64_t serial, void* key) const {
  if (table.key_bytes == 0) return;
  auto* bytes = static_cast<std::byte*>(key);
  std::memcpy(bytes, &serial, kSerialBytes);
  for (size_t i = kSerialBytes; i < table.key_bytes; ++i) bytes[i] = filler(serial, i);
}

uint64_t RecordingRegistrar::serial_of(const void* key) const {
  if (table.key_bytes == 0 || key == nullptr) return 0;
  const auto* bytes = static_cast<const std::byte*>(key);
  uint64_t serial = 0;
  std::memcpy(&serial, bytes, kSerialBytes);
  for (size_t i = kSerialBytes; i < table.key_bytes; ++i) {
    if (bytes[i] != filler(serial, i)) return 0;
  }
  return serial;
}

bool RecordingRegistrar::is_live(uint64_t serial, uintptr_t addr, size_t len,
                                 uint32_t access) const {
  const PinRecord& c = card(serial);
  return c.live_serial.load(relaxed) == serial && c.addr.load(relaxed) == addr &&
         c.len.load(relaxed) == len && (access & ~c.access.load(relaxed)) == 0;
}

bool RecordingRegistrar::is_live_around(uint64_t serial, uintptr_t addr, size_t len,
                                        uint32_t access) const {
  const PinRecord& c = card(serial);
  const uintptr_t first = c.addr.load(relaxed);
  return c.live_serial.load(relaxed) == serial && first <= addr &&
         addr + len <= first + c.len.load(relaxed) && (access & ~c.access.load(relaxed)) == 0;
}

void RecordingRegistrar::note_hold(const hydrant_region_t& region, int delta) {
  if (table.key_bytes != 0) {
    card(serial_of(region.key)).held.fetch_add(delta, relaxed);
    return;
  }
  for (size_t i = 0; i < region.len / kPage; ++i) {
    page_holds_[arena_.index(region.addr) + i].fetch_add(delta, relaxed);
  }
}

std::string RecordingRegistrar::check_part(const hydrant_region_t& part, uint32_t access,
                                           const uint64_t* oldest) const {
  const size_t first = arena_.index(part.addr), pages = part.len / kPage;
  if (table.key_bytes == 0) {
    for (size_t i = first; i < first + pages; ++i) {
      if (page_pins_[i].load(relaxed) <= 0) return "page " + std::to_string(i) + " is not pinned";
    }
    return "";
  }
  const uint64_t serial = serial_of(part.key);
  if (serial == 0) return "not a key of this registrar";
  const size_t alignment = table.key_bytes < 16 ? 8 : 16;
  if (reinterpret_cast<uintptr_t>(part.key) % alignment != 0) return "the key is not aligned";
  const std::string name = "serial " + std::to_string(serial);
  if (!is_live(serial, part.addr, part.len, access)) return name + " is not registered like this";
  for (size_t i = first; oldest != nullptr && i < first + pages; ++i) {
    if (serial < oldest[i])
      return name + " is older than the invalidation of page " + std::to_string(i);
  }
  return "";
}

std::string check_hold(const RecordingRegistrar& registrar, hydrant_pin_t pin, uintptr_t addr,
                       size_t len, uint32_t access, const uint64_t* oldest) {
  if (pin.region == nullptr) return "no hold";
  const hydrant_region_t whole = *pin.region;
  if (whole.addr % kPage != 0 || whole.len % kPage != 0) return "the region is not page-aligned";
  if (!registrar.arena().contains(whole.addr, whole.len)) return "the region leaves the arena";
  std::string wrong;
  uintptr_t first = 0, next = 0;
  for_each_part(pin, [&](const hydrant_region_t& part) {
    if (next == 0) first = next = part.addr;
    if (part.addr != next) wrong = "the parts do not follow each other";
    next = part.addr + part.len;
    if (!registrar.arena().contains(part.addr, part.len)) wrong = "a part leaves the arena";
    if (wrong.empty()) wrong = registrar.check_part(part, access, oldest);
  });
  if (next == 0) return "a live pin without parts";
  if (addr < first || addr + len > next) return "the parts do not cover the request";
  return wrong;
}

}  // namespace hydrant::testing
