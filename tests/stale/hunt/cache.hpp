// The cache under test, as a hunt sees it: ours in each of its settings, or a peer's.
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

// Which call takes the hold.
enum class How : uint8_t { kPin, kTry, kWait, kAsync, kPartial, kMany };

struct Hold {
  const void* object = nullptr;  // null: no hold
  uint64_t word = 0;
  Range registered;  // all that the hold covers
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

  // True: it keeps whatever was pinned until announce() says that it goes away.
  virtual bool wants_announcements() const = 0;
  // What keeps a pin of this range cached past its last hold, by the cache's own account.
  virtual Coverage coverage(Range range) = 0;
  // Whether threads may pin memory of others that may go away in that moment, and whether children of a fork
  // may use the cache.
  virtual bool survives_bystanders() const = 0;
  virtual bool survives_fork() const = 0;

  // kPartial answers a hold on some part of the range.
  virtual PinAnswer pin(How how, Range range, Hold* hold) = 0;
  // Of the calling thread's last pin that was answered as broken: what the cache said.
  virtual std::string error_text() const { return "no text"; }
  // All or none.
  virtual PinAnswer pin_many(const Range* ranges, size_t n, Hold* holds) = 0;
  virtual void release(const Hold& hold) = 0;
  // Moves bytes of a hold to a file (or pipe), or from it, through the registration. False with a text.
  virtual bool move(const Hold& hold, Range bytes, int file, bool to_file, std::string* error) = 0;
  virtual void announce(Range range) = 0;
  // False: no room for more vouched ranges, or the cache has no such thing.
  virtual bool vouch(Range range, bool on) = 0;
  // A system call that was to release the range did not: for those that keep books of calls.
  virtual void call_failed(Range /*range*/) {}
  virtual void poll() = 0;
  virtual void flush() = 0;
};

}  // namespace hydrant::stale
