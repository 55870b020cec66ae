// Pins and unpins by calling the client's firehose_move_callback, and records the pinned ranges for warnings.
// The cache calls it as the registrar of the domain that firehose_init.cpp creates.
#include "firehose/gasnet_compat/firehose_registrar.hpp"

#include "firehose/base/log.hpp"
#include "firehose/gasnet_compat/firehose_rules.hpp"

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

namespace hydrant {
namespace {

// The most ranges of one call of the client's callback; GASNet's region mode passes at most 5.
constexpr size_t kBatch = 32;
constexpr size_t kMaxRegionBytes = size_t{2} * HYDRANT_FH_MAX_ALIGN;

// The address of the range of this thread's RequestedRange object; null if there is none. Bytes without
// alignment, because libfirehose may use 64 bytes of static TLS and has none left for padding.
alignas(1) thread_local constinit std::byte t_requested[sizeof(const MemoryRange*)] = {};

const MemoryRange* requested_range() noexcept {
  const MemoryRange* range = nullptr;
  std::memcpy(&range, t_requested, sizeof range);
  return range;
}
void set_requested_range(const MemoryRange* range) noexcept {
  std::memcpy(t_requested, &range, sizeof range);
}

uint32_t ms_now() noexcept { return static_cast<uint32_t>(now_ns() / 1'000'000u); }

// Up to kBatch firehose_region_t as the client's compiler lays them out.
class RegionList {
 public:
  explicit RegionList(const hydrant_fh_client_t& client) noexcept : client_(client) {}

  void append(MemoryRange range, const void* key) noexcept {
    std::byte* region = bytes_.data() + count_ * client_.region_bytes;
    std::memset(region, 0, client_.region_bytes);
    std::memcpy(region, &range.addr, sizeof range.addr);
    std::memcpy(region + sizeof range.addr, &range.len, sizeof range.len);
    if (key != nullptr) std::memcpy(region + client_.client_offset, key, client_.client_bytes);
    ++count_;
  }
  // Page mode: a range that begins where the last one ends becomes part of it.
  bool extend_last(MemoryRange range) noexcept {
    if (count_ == 0) return false;
    std::byte* region = bytes_.data() + (count_ - 1) * client_.region_bytes;
    MemoryRange last;
    std::memcpy(&last.addr, region, sizeof last.addr);
    std::memcpy(&last.len, region + sizeof last.addr, sizeof last.len);
    if (last.end() != range.addr) return false;
    last.len += range.len;
    std::memcpy(region + sizeof last.addr, &last.len, sizeof last.len);
    return true;
  }
  const std::byte* key() const noexcept { return bytes_.data() + client_.client_offset; }
  void* data() noexcept { return bytes_.data(); }
  size_t count() const noexcept { return count_; }

 private:
  const hydrant_fh_client_t& client_;
  size_t count_ = 0;
  alignas(HYDRANT_FH_MAX_ALIGN) std::array<std::byte, kBatch * kMaxRegionBytes> bytes_;
};

}  // namespace

void compat_fatal(const char* format, ...) noexcept {
  char text[900];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  log_error("%s", text);
  std::abort();
}

CompatRegistrar::RequestedRange::RequestedRange(MemoryRange range) noexcept : range_(range) {
  set_requested_range(&range_);
}
CompatRegistrar::RequestedRange::~RequestedRange() { set_requested_range(nullptr); }

CompatRegistrar::CompatRegistrar(const hydrant_fh_client_t& client, size_t bucket_bytes) noexcept
    : client_(client), bucket_bytes_(bucket_bytes), page_mode_(client.mode == HYDRANT_MODE_PAGE) {}

hydrant_registrar_t CompatRegistrar::registrar_functions(size_t max_region_bytes) noexcept {
  hydrant_registrar_t functions{};
  functions.size = sizeof functions;
  functions.user = this;
  functions.name = "firehose client";
  functions.key_bytes = client_.client_bytes;
  functions.granule_bytes = bucket_bytes_;
  functions.max_region_bytes = max_region_bytes;
  functions.divisible = page_mode_ ? 1 : 0;
  functions.pin = pin_thunk;
  functions.unpin = unpin_thunk;
  functions.unpin_many = unpin_many_thunk;
  return functions;
}

int CompatRegistrar::pin_thunk(void* user, uintptr_t addr, size_t len, uint32_t, void* key) {
  return static_cast<CompatRegistrar*>(user)->pin({addr, len}, key);
}

int CompatRegistrar::unpin_thunk(void* user, uintptr_t addr, size_t len, const void* key) {
  const hydrant_range_t range = {addr, len};
  static_cast<CompatRegistrar*>(user)->unpin(&range, &key, 1);
  return HYDRANT_UNPIN_DONE;
}

int CompatRegistrar::unpin_many_thunk(void* user, const hydrant_range_t* ranges,
                                      const void* const* keys, size_t n) {
  static_cast<CompatRegistrar*>(user)->unpin(ranges, keys, n);
  return HYDRANT_UNPIN_DONE;
}

bool CompatRegistrar::grown(MemoryRange range) const noexcept {
  const MemoryRange* const requested = requested_range();
  return requested != nullptr && !(range == round_out(*requested, bucket_bytes_));
}

int CompatRegistrar::pin(MemoryRange range, void* key) noexcept {
  RegionList list(client_);
  list.append(range, nullptr);
  const CompatScope inside(CompatInside::kMove);
  const int result = client_.move(nullptr, 0, list.data(), 1);
  if (result == GASNET_ERR_NOT_READY) return result;
  const bool for_peer = is_in_callback(CompatInside::kHandler);
  if (result != 0) {
    last_failure_.store(result, std::memory_order_relaxed);
    if (for_peer) {
      log_warning("firehose_move_callback returned %d for [%#zx, +%zu), which a peer asks for",
                  result, static_cast<size_t>(range.addr), range.len);
    }
    return HYDRANT_ERR_REFUSED;
  }
  // The cache enlarged the registration, and the client cannot use it: let the cache try the requested range.
  // (A key that is unusable for exactly that range is the client's own decision; a peer never gets one.)
  if (client_.may_merge != nullptr && (for_peer || grown(range)) &&
      client_.may_merge(list.key()) == 0) {
    static_cast<void>(client_.move(list.data(), 1, nullptr, 0));
    return HYDRANT_ERR_REFUSED;
  }
  if (client_.client_bytes != 0) std::memcpy(key, list.key(), client_.client_bytes);
  remember(range);
  return GASNET_OK;
}

void CompatRegistrar::unpin(const hydrant_range_t* ranges, const void* const* keys,
                            size_t n) noexcept {
  // Before the callback: afterwards the same range may be pinned again at once.
  forget(ranges, n);
  for (size_t done = 0; done < n; done += kBatch) {
    const size_t batch = std::min(n - done, kBatch);
    RegionList list(client_);
    if (page_mode_) {
      std::array<hydrant_range_t, kBatch> sorted;
      std::copy_n(ranges + done, batch, sorted.begin());
      std::sort(sorted.begin(), sorted.begin() + static_cast<ptrdiff_t>(batch),
                [](const hydrant_range_t& a, const hydrant_range_t& b) { return a.addr < b.addr; });
      for (size_t i = 0; i < batch; ++i) {
        const MemoryRange range = {sorted[i].addr, sorted[i].len};
        if (!list.extend_last(range)) list.append(range, nullptr);
      }
    } else {
      for (size_t i = done; i < done + batch; ++i) {
        const void* key = client_.client_bytes == 0 || keys == nullptr ? nullptr : keys[i];
        list.append({ranges[i].addr, ranges[i].len}, key);
      }
    }
    const CompatScope inside(CompatInside::kMove);
    const int result = client_.move(list.data(), list.count(), nullptr, 0);
    if (result != 0) compat_fatal("firehose_move_callback returned %d for unpinning", result);
  }
}

// Pages are recorded bucket by bucket, because they may be unpinned in buckets.
void CompatRegistrar::remember(MemoryRange range) noexcept {
  const auto thread = static_cast<uint32_t>(gettid());
  const uint32_t since = ms_now();
  const size_t step = page_mode_ ? bucket_bytes_ : range.len;
  MutexLock lock(mutex_);
  for (size_t at = 0; at < range.len; at += step) {
    pinned_.add({.addr = range.addr + at, .len = step, .thread = thread, .since_ms = since});
  }
}

void CompatRegistrar::forget(const hydrant_range_t* ranges, size_t n) noexcept {
  MutexLock lock(mutex_);
  for (size_t i = 0; i < n; ++i) {
    const size_t step = page_mode_ ? bucket_bytes_ : ranges[i].len;
    for (size_t at = 0; at < ranges[i].len; at += step) {
      pinned_.remove(ranges[i].addr + at, step);
    }
  }
}

const char* format_age(uint32_t age_ms, char* text, size_t room) noexcept {
  const bool in_ms = age_ms < 10'000;
  std::snprintf(text, room, "%u %s", in_ms ? age_ms : age_ms / 1000, in_ms ? "ms" : "s");
  return text;
}

size_t CompatRegistrar::pinned_ranges() noexcept {
  MutexLock lock(mutex_);
  return pinned_.size();
}

void CompatRegistrar::log_pinned(size_t lines) noexcept {
  std::array<PinnedTable::Entry, 64> entries;
  size_t count = 0;
  size_t total = 0;
  {
    MutexLock lock(mutex_);
    count = pinned_.copy_lowest(entries.data(), std::min(lines, entries.size()));
    total = pinned_.size();
  }
  const uint32_t now = ms_now();
  for (size_t i = 0; i < count; ++i) {
    PinnedTable::Entry entry = entries[i];
    // Prints a single line for neighbouring buckets that the same thread pinned.
    for (; page_mode_ && i + 1 < count && entries[i + 1].addr == entry.addr + entry.len &&
           entries[i + 1].thread == entry.thread;
         ++i) {
      entry.len += entries[i + 1].len;
    }
    char age[24];
    log_warning("firehose:   [%#zx, +%zu) pinned %s ago by thread %u",
                static_cast<size_t>(entry.addr), entry.len,
                format_age(now - entry.since_ms, age, sizeof age), entry.thread);
  }
  if (total > count) log_warning("firehose:   and %zu more", total - count);
}

}  // namespace hydrant
