// Adapts this library's cache to the hunt's interface.
#include "tests/stale/hunt/hydrant_cache.hpp"

#include <hydrant/monitor.h>

#include "firehose/base/thread.hpp"
#include "firehose/watch/mutant.hpp"

#if HYDRANT_HAVE_IBV
#include <hydrant/ibv_registrar.h>

#include "tests/stale/hunt/loopback.hpp"

#include <infiniband/verbs.h>

#include <mutex>
#endif

#include <atomic>
#include <sched.h>

namespace hydrant::stale {

static_assert(static_cast<uint32_t>(Coverage::kNone) == HYDRANT_COVERAGE_NONE &&
              static_cast<uint32_t>(Coverage::kWatched) == HYDRANT_COVERAGE_WATCHED);

namespace {

#if !HYDRANT_MUTANTS
void set_busy_mutex(bool) {}
#endif

constexpr uint64_t kWaitNs = 200'000;
constexpr int kMaxPolls = 100;
constexpr uint64_t kMaxPollingNs = 1'000'000'000;

PinAnswer answer_of(int status) {
  switch (status) {
    case GASNET_OK: return PinAnswer::kHeld;
    case GASNET_ERR_NOT_READY:
    case GASNET_ERR_RESOURCE: return PinAnswer::kNotNow;
    case HYDRANT_ERR_REFUSED: return PinAnswer::kRefused;
    default: return PinAnswer::kBroken;
  }
}

hydrant_pin_t pin_of(const Hold& hold) {
  hydrant_pin_t pin{};
  pin.region = static_cast<const hydrant_region_t*>(hold.object);
  pin.hold = hold.word;
  return pin;
}

Hold hold_of(hydrant_pin_t pin) {
  return {pin.region, pin.hold, {pin.region->addr, pin.region->len}, false};
}

// A request of hydrant_pin_async(). Its waiter gives up if other waiting requests hold the budget; then the
// callback releases the pin, in the thread whose poll runs it.
class Deferred {
 public:
  static void on_done(void* context, hydrant_pin_t pin) {
    auto* self = static_cast<Deferred*>(context);
    self->pin_ = pin;
    if (self->state_.exchange(kDone) != kAbandoned) return;
    if (pin.region != nullptr) hydrant_release(pin);
    delete self;
  }
  bool done() const { return state_.load() == kDone; }
  hydrant_pin_t pin() const { return pin_; }
  // Gives up waiting. True if the callback has run already; then the waiter still owns the object.
  bool abandon() { return state_.exchange(kAbandoned) == kDone; }

 private:
  enum State { kWaiting, kDone, kAbandoned };
  hydrant_pin_t pin_{};  // written before kDone, read after it
  std::atomic<State> state_{kWaiting};
};

class HydrantCache final : public Cache {
 public:
  HydrantCache(const HydrantCacheOptions& options, hydrant_domain_t domain)
      : options_(options), domain_(domain) {}
  ~HydrantCache() override {
#if HYDRANT_HAVE_IBV
    loopback_.reset();  // it uses the domain's protection domain
#endif
    hydrant_domain_destroy(domain_, HYDRANT_FINI_UNPIN);
  }

  const char* name() const override { return "hydrant"; }
  bool wants_announcements() const override { return options_.watch == HYDRANT_WATCH_CLIENT; }
  // An announcing client promises that no pin of that memory starts until it is released.
  bool survives_bystanders() const override { return !wants_announcements(); }
  // The loopback of a domain over verbs is its parent's.
  bool survives_fork() const override { return options_.registrar == "uring"; }
  bool survives_handlers() const override { return !wants_announcements(); }
  bool hits_are_checked() const override {
    return __atomic_load_n(monitor_->checked, __ATOMIC_ACQUIRE) != 0;
  }
  Coverage coverage(Range range) override {
    uint32_t coverage = HYDRANT_COVERAGE_NONE;
    hydrant_coverage(domain_, pointer(range), range.len, &coverage);
    return static_cast<Coverage>(coverage);
  }

  std::string error_text() const override { return hydrant_error_text(); }
  PinAnswer pin(How how, Range range, Hold* hold) override;
  PinAnswer pin_many(const Range* ranges, size_t n, Hold* holds) override;
  void release(const Hold& hold) override { hydrant_release(pin_of(hold)); }
  bool move(const Hold& hold, Range bytes, int file, bool to_file, std::string* error) override {
    return options_.registrar == "uring" ? move_by_uring(hold, bytes, file, to_file, error)
                                         : move_by_rdma(hold, bytes, file, to_file, error);
  }
  void announce(Range range) override { hydrant_invalidate(domain_, pointer(range), range.len); }
  bool vouch(Range range, bool on) override {
    return (on ? hydrant_vouch : hydrant_unvouch)(domain_, pointer(range), range.len) == GASNET_OK;
  }
  void poll() override { hydrant_poll(domain_); }
  void flush() override { hydrant_flush(domain_); }

 private:
  static void* pointer(Range range) { return reinterpret_cast<void*>(range.addr); }
  hydrant_pin_t pin_async(Range range);
  static bool move_by_uring(const Hold& hold, Range bytes, int file, bool to_file,
                            std::string* error);
  bool move_by_rdma(const Hold& hold, Range bytes, int file, bool to_file, std::string* error);

#if HYDRANT_HAVE_IBV
  std::mutex loopback_mutex_;
  std::unique_ptr<Loopback> loopback_;  // opened by the first move
#endif
  const HydrantCacheOptions options_;
  const hydrant_domain_t domain_;
  const hydrant_monitor_t* const monitor_ = hydrant_monitor(HYDRANT_MONITOR_VERSION);
};

hydrant_pin_t HydrantCache::pin_async(Range range) {
  hydrant_pin_t none{};
  auto deferred = std::make_unique<Deferred>();
  const int status = hydrant_pin_async(domain_, pointer(range), range.len, HYDRANT_LOCAL_WRITE,
                                       &Deferred::on_done, deferred.get());
  none.hold = static_cast<uint64_t>(status == GASNET_OK ? GASNET_ERR_NOT_READY : status);
  if (status != GASNET_OK) return none;
  // A poll tries the deferred pins of all threads, which may take long on a busy machine.
  const uint64_t deadline_ns = now_ns() + kMaxPollingNs;
  for (int i = 0; i < kMaxPolls && !deferred->done() && now_ns() < deadline_ns; ++i) {
    hydrant_poll(domain_);
    sched_yield();
  }
  if (deferred->done() || deferred->abandon()) return deferred->pin();
  deferred.release();  // the callback owns it now
  return none;
}

PinAnswer HydrantCache::pin(How how, Range range, Hold* hold) {
  const void* addr = pointer(range);
  const bool was_checked = hits_are_checked();
  hydrant_pin_t pin{};
  switch (how) {
    case How::kPin: pin = hydrant_pin(domain_, addr, range.len, HYDRANT_LOCAL_WRITE); break;
    case How::kTry: pin = hydrant_try_pin(domain_, addr, range.len, HYDRANT_LOCAL_WRITE); break;
    case How::kWait:
      pin = hydrant_pin_wait(domain_, addr, range.len, HYDRANT_LOCAL_WRITE, kWaitNs);
      break;
    case How::kAsync:
      // A late answer would pin memory whose release was announced.
      pin = wants_announcements() ? hydrant_pin(domain_, addr, range.len, HYDRANT_LOCAL_WRITE)
                                  : pin_async(range);
      break;
    case How::kPartial:
      pin = hydrant_partial_pin(domain_, addr, range.len, HYDRANT_LOCAL_WRITE);
      break;
    case How::kMany: return pin_many(&range, 1, hold);
  }
  if (pin.region == nullptr) return answer_of(hydrant_pin_status(pin));
  *hold = hold_of(pin);
  hold->was_checked = was_checked;
  return PinAnswer::kHeld;
}

PinAnswer HydrantCache::pin_many(const Range* ranges, size_t n, Hold* holds) {
  constexpr size_t kMax = 8;
  hydrant_range_t wanted[kMax] = {};
  hydrant_pin_t pins[kMax] = {};
  if (n > kMax) n = kMax;
  const bool was_checked = hits_are_checked();
  for (size_t i = 0; i < n; ++i) wanted[i] = {ranges[i].addr, ranges[i].len};
  const int status = hydrant_pin_many(domain_, wanted, n, HYDRANT_LOCAL_WRITE, pins);
  if (status != GASNET_OK) return answer_of(status);
  for (size_t i = 0; i < n; ++i) {
    holds[i] = hold_of(pins[i]);
    holds[i].was_checked = was_checked;
  }
  return PinAnswer::kHeld;
}

bool HydrantCache::move_by_uring(const Hold& hold, Range bytes, int file, bool to_file,
                                 std::string* error) {
  const int status =
      hydrant_uring_move(pin_of(hold), pointer(bytes), bytes.len, file, 0, to_file ? 1 : 0);
  if (status == GASNET_OK) return true;
  *error = std::string(hydrant_status_name(status)) + ": " + hydrant_error_text();
  return false;
}

#if HYDRANT_HAVE_IBV
bool open_verbs(hydrant_registrar_t* registrar, hydrant_domain_options_t* options,
                std::string* error) {
  if (hydrant_ibv_registrar_open(nullptr, nullptr, registrar) != GASNET_OK) {
    *error = hydrant_error_text();
    return false;
  }
  options->registrar_name = nullptr;
  options->registrar = registrar;
  return true;
}

bool HydrantCache::move_by_rdma(const Hold& hold, Range bytes, int file, bool to_file,
                                std::string* error) {
  const hydrant_pin_t pin = pin_of(hold);
  hydrant_region_t part{};
  // Page mode: the part that has the bytes, which never cross a page.
  for (size_t i = 0; i < hydrant_pin_parts(pin, i, &part); ++i) {
    if (part.addr <= bytes.addr && bytes.end() <= part.addr + part.len) break;
  }
  const auto* const key = static_cast<const hydrant_ibv_key_t*>(part.key);
  {
    const std::lock_guard lock(loopback_mutex_);
    if (loopback_ == nullptr) loopback_ = Loopback::open(key->mr->pd, error);
    if (loopback_ == nullptr) return false;
  }
  return loopback_->move(bytes.addr, bytes.len, key->lkey, file, to_file, error);
}
#else
bool open_verbs(hydrant_registrar_t*, hydrant_domain_options_t*, std::string* error) {
  *error = "built without verbs";
  return false;
}

bool HydrantCache::move_by_rdma(const Hold&, Range, int, bool, std::string* error) {
  *error = "built without verbs";
  return false;
}
#endif

}  // namespace

std::unique_ptr<Cache> make_hydrant_cache(const HydrantCacheOptions& options, std::string* error) {
  hydrant_domain_options_t wanted;
  hydrant_domain_options_init(&wanted);
  wanted.name = "hunt";
  wanted.registrar_name = "uring";
  wanted.mode = options.mode;
  wanted.watch = options.watch;
  wanted.budget_bytes = options.budget_bytes;
  wanted.merge_bytes = options.merge_bytes;
  set_busy_mutex(options.busy_mutex);
  hydrant_registrar_t registrar{};
  if (options.registrar != "uring" && !open_verbs(&registrar, &wanted, error)) return nullptr;
  hydrant_domain_t domain = 0;
  if (hydrant_domain_create(&wanted, &domain) != GASNET_OK) {
    *error = hydrant_error_text();
    if (registrar.destroy != nullptr) registrar.destroy(registrar.user);
    return nullptr;
  }
  return std::make_unique<HydrantCache>(options, domain);
}

const char* coverage_name(Coverage coverage) {
  return hydrant_coverage_name(static_cast<uint32_t>(coverage));
}

const char* watch_name(uint32_t watch) {
  switch (watch) {
    case HYDRANT_WATCH_AUTO: return "auto";
    case HYDRANT_WATCH_CLIENT: return "client";
    case HYDRANT_WATCH_NONE: return "none";
    case HYDRANT_WATCH_DEFAULT: return "default";
    default: return "?";
  }
}

bool parse_watch(const std::string& text, uint32_t* watch) {
  for (uint32_t w = 0; w < 4; ++w) {
    if (text != watch_name(w)) continue;
    *watch = w;
    return true;
  }
  return false;
}

}  // namespace hydrant::stale
