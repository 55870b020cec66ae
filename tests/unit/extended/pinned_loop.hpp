// A LoopNetwork that moves data between pinned memory alone, and knows what is pinned: keys of registrations
// that are gone are refused when the data arrives, as an adapter would.
#pragma once

#include "firehose/base/registrar.hpp"
#include "tests/unit/extended/loop_network.hpp"

#include <map>
#include <memory>
#include <mutex>

namespace hydrant::test {

// What both ends have pinned, which are the same process.
class PinnedRanges {
 public:
  uint64_t add(MemoryRange range) {
    const std::lock_guard lock(mu_);
    ranges_[++last_] = range;
    return last_;
  }
  bool remove(uint64_t key) {
    const std::lock_guard lock(mu_);
    return ranges_.erase(key) == 1;
  }
  bool covers(uint64_t key, MemoryRange range) {
    const std::lock_guard lock(mu_);
    const auto found = ranges_.find(key);
    return found != ranges_.end() && found->second.covers(range);
  }
  size_t size() {
    const std::lock_guard lock(mu_);
    return ranges_.size();
  }

 private:
  std::mutex mu_;
  uint64_t last_ = 0;
  std::map<uint64_t, MemoryRange> ranges_;
};

class LoopRegistrar final : public Registrar {
 public:
  LoopRegistrar(std::shared_ptr<PinnedRanges> ranges, const bool& refuses)
      : ranges_(std::move(ranges)), refuses_(refuses) {
    traits_.name = "loop";
    traits_.key_bytes = sizeof(uint64_t);
    traits_.granule_bytes = 4096;
  }
  const RegistrarTraits& traits() const noexcept override { return traits_; }
  Status pin(MemoryRange range, Access, std::byte* key) noexcept override {
    if (refuses_) return fail(Status::kRefused, "refused by the test");
    const uint64_t number = ranges_->add(range);
    std::memcpy(key, &number, sizeof number);
    return Status::kOk;
  }
  UnpinResult unpin(MemoryRange, const std::byte* key) noexcept override {
    uint64_t number = 0;
    std::memcpy(&number, key, sizeof number);
    return ranges_->remove(number) ? UnpinResult::kDone : UnpinResult::kBroken;
  }
  uint64_t charge(MemoryRange range) const noexcept override { return range.len; }

 private:
  std::shared_ptr<PinnedRanges> ranges_;
  const bool& refuses_;
  RegistrarTraits traits_;
};

class PinnedLoop final : public LoopNetwork {
 public:
  // ---- what a test sets ----
  bool refuses_pins = false;
  uint32_t inline_bytes_without_key = 64;
  bool puts_are_ordered = true;
  uint32_t refused_from_now = 0;  // so many operations are refused when they arrive
  // One for all networks of the process: the library's buffers are pinned once, by the first.
  std::shared_ptr<PinnedRanges> ranges = [] {
    static const auto all = std::make_shared<PinnedRanges>();
    return all;
  }();

  uint32_t abilities() const noexcept override {
    return kPinned | (puts_are_ordered ? uint32_t{kPutsBeforeMessages} : 0) |
           (maps ? uint32_t{kMapped} : 0);
  }
  uint32_t depth() const noexcept override { return most; }
  std::unique_ptr<Registrar> make_registrar() noexcept override {
    return std::make_unique<LoopRegistrar>(ranges, refuses_pins);
  }
  uint32_t pinned_inline_bytes() const noexcept override { return inline_bytes_without_key; }
  Status put_pinned(Rank, const Pinned& remote, const Pinned& local, size_t bytes,
                    Completion* completion) noexcept override {
    Posted one{reinterpret_cast<void*>(remote.addr), reinterpret_cast<const void*>(local.addr),
               bytes, completion};
    one.allows = check(remote, local, bytes);
    // What needs no key has left its source at return. (So have the library's buffers, which have none where
    // the pool was made for another network, by an earlier test of this program.)
    if (local.key == nullptr) {
      const auto* from = static_cast<const std::byte*>(one.from);
      one.copy.assign(from, from + bytes);
    }
    return start(one, one.from);
  }
  Status get_pinned(Rank, const Pinned& remote, const Pinned& local, size_t bytes,
                    Completion* completion) noexcept override {
    Posted one{reinterpret_cast<void*>(local.addr), reinterpret_cast<const void*>(remote.addr),
               bytes, completion};
    one.allows = check(remote, local, bytes);
    return start(one, one.to);
  }

 protected:
  bool has_one_sided() const noexcept override { return true; }
  // What was put is there before a message that was sent later.
  bool delivers() const noexcept override { return !puts_are_ordered || under_way() == 0; }

 private:
  static uint64_t number(const std::byte* key) {
    uint64_t value = 0;
    std::memcpy(&value, key, sizeof value);
    return value;
  }
  std::function<bool()> check(const Pinned& remote, const Pinned& local, size_t bytes) {
    const uint64_t there = number(remote.key);
    const uint64_t here = local.key != nullptr ? number(local.key) : 0;
    return [this, there, here, far = MemoryRange{remote.addr, bytes},
            near = MemoryRange{local.addr, bytes}] {
      if (refused_from_now != 0) {
        --refused_from_now;
        return false;
      }
      return ranges->covers(there, far) && (here == 0 || ranges->covers(here, near));
    };
  }
};

}  // namespace hydrant::test
