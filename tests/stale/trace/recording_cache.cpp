// Wraps a cache and records pins and invalidations in the trace.
#include "tests/stale/trace/recording_cache.hpp"

#include <hydrant/monitor.h>

#include <algorithm>

namespace hydrant::stale {
namespace {

class RecordingCache final : public Cache {
 public:
  RecordingCache(Cache& cache, TraceLog& log)
      : cache_(cache), log_(log), monitor_(hydrant_monitor(HYDRANT_MONITOR_VERSION)) {
    hydrant_monitor_client_t client{};
    client.context = this;
    client.forget = [](void* self, uintptr_t addr, size_t len) {
      static_cast<RecordingCache*>(self)->log_.add(Event::kForgotten, {addr, len});
    };
    client.forget_vouched = [](void*) {};
    // Prevents releases at a flush: the log treats memory as kept from its first pin to its invalidation.
    client.pinned = [](void*, uintptr_t, size_t) { return 1; };
    number_ = monitor_->subscribe(&client);
  }
  ~RecordingCache() override {
    // Reports all earlier releases before the end of the trace.
    monitor_->settle();
    log_.add(Event::kEnd, {});
    if (number_ >= 0) monitor_->unsubscribe(number_);
  }

  const char* name() const override { return cache_.name(); }
  bool wants_announcements() const override { return cache_.wants_announcements(); }
  Coverage coverage(Range range) override { return cache_.coverage(range); }
  bool survives_bystanders() const override { return false; }
  bool survives_fork() const override { return false; }

  PinAnswer pin(How how, Range range, Hold* hold) override {
    const PinAnswer answer = cache_.pin(how, range, hold);
    if (answer == PinAnswer::kHeld) note(range, *hold);
    return answer;
  }
  PinAnswer pin_many(const Range* ranges, size_t n, Hold* holds) override {
    const PinAnswer answer = cache_.pin_many(ranges, n, holds);
    for (size_t i = 0; answer == PinAnswer::kHeld && i < n; ++i) note(ranges[i], holds[i]);
    return answer;
  }
  void release(const Hold& hold) override { cache_.release(hold); }
  bool move(const Hold& hold, Range bytes, int file, bool to_file, std::string* error) override {
    return cache_.move(hold, bytes, file, to_file, error);
  }
  void announce(Range range) override {
    cache_.announce(range);
    log_.add(Event::kForgotten, range);
  }
  bool vouch(Range range, bool on) override {
    const bool done = cache_.vouch(range, on);
    if (!on) log_.add(Event::kForgotten, range);
    return done;
  }
  void call_failed(Range range) override { log_.add(Event::kUnchanged, range); }
  void poll() override { cache_.poll(); }
  void flush() override { cache_.flush(); }

 private:
  // Records pins of the caller's own memory only: other registered memory may be released at any moment. And
  // only pins that the cache finds again: a registration that it may not keep needs no invalidation.
  void note(Range range, const Hold& hold) {
    const uintptr_t from = std::max(range.addr, hold.registered.addr);
    const uintptr_t end = std::min(range.end(), hold.registered.end());
    Hold again;
    if (from >= end || cache_.pin(How::kTry, {from, end - from}, &again) != PinAnswer::kHeld)
      return;
    log_.add(Event::kPinned, {from, end - from});
    cache_.release(again);
  }

  Cache& cache_;
  TraceLog& log_;
  const hydrant_monitor_t* const monitor_;
  int number_ = -1;
};

}  // namespace

std::unique_ptr<Cache> make_recording_cache(Cache& cache, TraceLog& log) {
  return std::make_unique<RecordingCache>(cache, log);
}

}  // namespace hydrant::stale
