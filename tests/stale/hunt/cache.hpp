// The interface of the cache under test: this library's in different settings, or a peer's.
//
// Threads: every function from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace hydrant::stale {

struct Range {
  uintptr_t addr = 0;
  size_t len = 0;
  uintptr_t end() const { return addr + len; }
  bool contains(Range other) const { return other.addr >= addr && other.end() <= end(); }
};

// The call that takes the hold.
enum class How : uint8_t { kPin, kTry, kWait, kAsync, kPartial, kMany };

struct Hold {
  const void* object = nullptr;  // null: no hold
  uint64_t word = 0;
  Range registered;          // the range that the hold covers
  bool was_checked = false;  // Cache::hits_are_checked() when the hold was requested
  explicit operator bool() const { return object != nullptr; }
};

// The numbers of HYDRANT_COVERAGE_*.
enum class Coverage : uint8_t { kNone, kClient, kVouched, kArena, kChecked, kWatched, kCount };
inline constexpr size_t kCoverages = static_cast<size_t>(Coverage::kCount);
const char* coverage_name(Coverage coverage);

enum class PinAnswer : uint8_t { kHeld, kNotNow, kRefused, kBroken };

class Cache {
 public:
  virtual ~Cache() = default;
  virtual const char* name() const = 0;

  // True if the cache keeps pinned memory until announce() reports its release.
  virtual bool wants_announcements() const = 0;
  // The reason why the cache may keep a pin of this range past its last hold, as it reports itself.
  virtual Coverage coverage(Range range) = 0;
  // Whether threads may pin memory of other threads that may be released at that moment, and whether children
  // of a fork may use the cache.
  virtual bool survives_bystanders() const = 0;
  virtual bool survives_fork() const = 0;
  // Whether signal handlers may release memory without an announcement while their thread is inside the
  // cache.
  virtual bool survives_handlers() const { return false; }
  // Whether the cache has detected an unreported release, and checks hits since then.
  virtual bool hits_are_checked() const { return false; }

  // kPartial takes a hold on some part of the range.
  virtual PinAnswer pin(How how, Range range, Hold* hold) = 0;
  // The cache's error text for the calling thread's last broken pin.
  virtual std::string error_text() const { return "no text"; }
  // Takes holds on all ranges, or on none.
  virtual PinAnswer pin_many(const Range* ranges, size_t n, Hold* holds) = 0;
  virtual void release(const Hold& hold) = 0;
  // Moves bytes of a hold to or from a file (or pipe) through the registration. False with a text.
  virtual bool move(const Hold& hold, Range bytes, int file, bool to_file, std::string* error) = 0;
  virtual void announce(Range range) = 0;
  // False if there is no room for more vouched ranges, or the cache does not support them.
  virtual bool vouch(Range range, bool on) = 0;
  // Reports that a system call failed to release the range, for caches that record calls.
  virtual void call_failed(Range /*range*/) {}
  virtual void poll() = 0;
  virtual void flush() = 0;
};

}  // namespace hydrant::stale
