// A LoopNetwork that moves data only between pinned memory and tracks pins: like an adapter, it refuses
// keys of ended registrations when the data arrives.
#pragma once

#include <hydrant/pin_cache.h>

#include "firehose/base/registrar.hpp"
#include "tests/unit/extended/loop_network.hpp"

#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <span>

namespace hydrant::test {

// The pinned ranges of both ends, which are the same process.
class PinnedRanges {
 public:
  uint64_t add(MemoryRange range, Access access) {
    const std::lock_guard lock(mu_);
    ranges_[++last_] = {range, bits(access)};
    return last_;
  }
  bool remove(uint64_t key) {
    const std::lock_guard lock(mu_);
    return ranges_.erase(key) == 1;
  }
  bool covers(uint64_t key, MemoryRange range, uint32_t need) {
    const std::lock_guard lock(mu_);
    const auto found = ranges_.find(key);
    return found != ranges_.end() && found->second.range.covers(range) &&
           (need & ~found->second.access) == 0;
  }
  size_t size() {
    const std::lock_guard lock(mu_);
    return ranges_.size();
  }

 private:
  std::mutex mu_;
  uint64_t last_ = 0;
  struct Pinned {
    MemoryRange range;
    uint32_t access = 0;
  };
  std::map<uint64_t, Pinned> ranges_;
};

// Settings and results of the registrar.
struct LoopPins {
  bool refuses = false;
  Status refusal = Status::kRefused;
  bool pages = false;          // on-demand paging: keys for all memory exist
  uint64_t implicit_keys = 0;  // number of such keys requested
  uint64_t scarce_keys = 0;    // number of them that are refused for want of something
};

class LoopRegistrar final : public Registrar {
 public:
  LoopRegistrar(std::shared_ptr<PinnedRanges> ranges, LoopPins& pins)
      : ranges_(std::move(ranges)), pins_(pins) {
    traits_.name = "loop";
    traits_.key_bytes = sizeof(uint64_t);
    traits_.granule_bytes = 4096;
    traits_.exports = true;
    traits_.export_bytes = sizeof(uint64_t);
  }
  const RegistrarTraits& traits() const noexcept override { return traits_; }
  Status pin(MemoryRange range, Access access, std::byte* key) noexcept override {
    if (pins_.refuses) return fail(pins_.refusal, "refused by the test");
    const uint64_t number = ranges_->add(range, access);
    std::memcpy(key, &number, sizeof number);
    return Status::kOk;
  }
  Status implicit_key(Access access, std::byte* key) noexcept override {
    ++pins_.implicit_keys;
    if (pins_.scarce_keys != 0) {
      --pins_.scarce_keys;
      return fail(Status::kResource, "no key now");
    }
    if (!pins_.pages) return fail(Status::kUnsupported, "no paging in this test");
    const uint64_t number = ranges_->add({1, SIZE_MAX - 1}, access);
    std::memcpy(key, &number, sizeof number);
    return Status::kOk;
  }
  UnpinResult unpin(MemoryRange, const std::byte* key) noexcept override {
    uint64_t number = 0;
    std::memcpy(&number, key, sizeof number);
    return ranges_->remove(number) ? UnpinResult::kDone : UnpinResult::kBroken;
  }
  uint64_t charge(MemoryRange range) const noexcept override { return range.len; }
  Status export_key(MemoryRange, const std::byte* key, std::byte* blob,
                    size_t* len) noexcept override {
    std::memcpy(blob, key, sizeof(uint64_t));
    *len = sizeof(uint64_t);
    return Status::kOk;
  }
  Status import_key(const std::byte* blob, size_t len, std::byte* key) noexcept override {
    if (len != sizeof(uint64_t)) return fail(Status::kBadArg, "a key has 8 bytes");
    std::memcpy(key, blob, len);
    return Status::kOk;
  }

 private:
  std::shared_ptr<PinnedRanges> ranges_;
  LoopPins& pins_;
  RegistrarTraits traits_;
};

class PinnedLoop final : public LoopNetwork, public PinnedOperations {
 public:
  // ---- settings of a test ----
  LoopPins pins;
  uint32_t inline_bytes_without_key = 64;
  bool puts_are_ordered = true;
  uint32_t refused_from_now = 0;  // this many operations are refused at their arrival
  bool prepares = true;
  std::function<void()> at_post;  // runs before an operation is accepted
  // Shared by all networks of the process, because the library pins its buffers once, with the first
  // network.
  std::shared_ptr<PinnedRanges> ranges = [] {
    static const auto all = std::make_shared<PinnedRanges>();
    return all;
  }();

  // ---- results ----
  uint64_t without_key = 0;  // operations whose local end needs a key but had none
  size_t longest = 0;
  uint64_t prepared = 0;        // prepared requests that were created, ...
  uint64_t prepared_alive = 0;  // ... still exist, ...
  uint64_t again = 0;           // ... and how often they were started

  uint32_t capabilities() const noexcept override {
    return kPinned | (puts_are_ordered ? uint32_t{kPutsBeforeMessages} : 0) |
           (maps ? uint32_t{kMapped} : 0);
  }
  uint32_t depth() const noexcept override { return most; }
  std::unique_ptr<Registrar> make_registrar() noexcept override {
    std::unique_ptr<Registrar> made(new (std::nothrow) LoopRegistrar(ranges, pins));
    if (made == nullptr) (void)fail(Status::kResource, "no memory for a registrar");
    return made;
  }
  PinnedOperations* pinned() noexcept override { return this; }
  uint32_t keyless_bytes() const noexcept override { return inline_bytes_without_key; }
  using LoopNetwork::get;
  using LoopNetwork::put;
  Status put(Rank, const Pinned& remote, const Pinned& local, size_t bytes,
             Completion* completion) noexcept override {
    Posted one{reinterpret_cast<void*>(remote.addr), reinterpret_cast<const void*>(local.addr),
               bytes, completion};
    note(local, bytes, inline_bytes_without_key);
    one.allows = check(remote, HYDRANT_REMOTE_WRITE, local, 0, bytes);
    // An operation without a key reads its source before it returns. That includes the library's
    // buffers if an earlier test of this program created their pool for another network.
    if (local.key == nullptr) {
      const auto* from = static_cast<const std::byte*>(one.from);
      one.copy.assign(from, from + bytes);
    }
    return start(one, one.from);
  }
  Status get(Rank, const Pinned& remote, const Pinned& local, size_t bytes,
             Completion* completion) noexcept override {
    Posted one{reinterpret_cast<void*>(local.addr), reinterpret_cast<const void*>(remote.addr),
               bytes, completion};
    note(local, bytes, 0);
    one.allows = check(remote, HYDRANT_REMOTE_READ, local, HYDRANT_LOCAL_WRITE, bytes);
    return start(one, one.to);
  }

  size_t put_list(Rank peer, std::span<const Operation> list) noexcept override {
    ++lists;
    return PinnedOperations::put_list(peer, list);
  }
  size_t get_list(Rank peer, std::span<const Operation> list) noexcept override {
    ++lists;
    return PinnedOperations::get_list(peer, list);
  }
  std::unique_ptr<PersistentRequest> make_persistent_put(Rank peer, uintptr_t remote,
                                                         uintptr_t local,
                                                         size_t bytes) noexcept override {
    return prepares ? std::make_unique<LoopPrepared>(*this, true, peer, remote, local, bytes)
                    : nullptr;
  }
  std::unique_ptr<PersistentRequest> make_persistent_get(Rank peer, uintptr_t remote,
                                                         uintptr_t local,
                                                         size_t bytes) noexcept override {
    return prepares ? std::make_unique<LoopPrepared>(*this, false, peer, remote, local, bytes)
                    : nullptr;
  }
  // ---- results ----
  uint64_t lists = 0;

 protected:
  bool has_one_sided() const noexcept override { return true; }
  // Puts arrive before messages that are sent later.
  bool delivers() const noexcept override { return !puts_are_ordered || under_way() == 0; }

 private:
  class LoopPrepared final : public PersistentRequest {
   public:
    LoopPrepared(PinnedLoop& loop, bool is_put, Rank peer, uintptr_t remote, uintptr_t local,
                 size_t bytes)
        : loop_(loop), is_put_(is_put), peer_(peer), remote_(remote), local_(local), bytes_(bytes) {
      ++loop_.prepared;
      ++loop_.prepared_alive;
    }
    ~LoopPrepared() override { --loop_.prepared_alive; }
    Status start(const std::byte* remote_key, const std::byte* local_key,
                 Completion* completion) noexcept override {
      ++loop_.again;
      const Pinned remote{remote_, remote_key};
      const Pinned local{local_, local_key};
      return is_put_ ? loop_.put(peer_, remote, local, bytes_, completion)
                     : loop_.get(peer_, remote, local, bytes_, completion);
    }

   private:
    PinnedLoop& loop_;
    const bool is_put_;
    const Rank peer_;
    const uintptr_t remote_;
    const uintptr_t local_;
    const size_t bytes_;
  };

  static uint64_t number(const std::byte* key) {
    uint64_t value = 0;
    std::memcpy(&value, key, sizeof value);
    return value;
  }
  void note(const Pinned& local, size_t bytes, size_t max_without_key) {
    if (at_post) at_post();
    if (local.key == nullptr && bytes > max_without_key) ++without_key;
    longest = std::max(longest, bytes);
  }
  // Adapters read local memory without a permission check.
  std::function<bool()> check(const Pinned& remote, uint32_t remote_need, const Pinned& local,
                              uint32_t local_need, size_t bytes) {
    const uint64_t there = number(remote.key);
    const uint64_t here = local.key != nullptr ? number(local.key) : 0;
    return [this, there, here, remote_need, local_need, far = MemoryRange{remote.addr, bytes},
            near = MemoryRange{local.addr, bytes}] {
      if (refused_from_now != 0) {
        --refused_from_now;
        return false;
      }
      return ranges->covers(there, far, remote_need) &&
             (here == 0 || ranges->covers(here, near, local_need));
    };
  }
};

}  // namespace hydrant::test
