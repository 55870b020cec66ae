// Pins this rank's segment for an atomic domain and exchanges keys. Called by atomic_domain.cpp.
#include "extended/atomics/adapter_keys.hpp"

#include "am/job/job.hpp"
#include "extended/binding/firehose_binding.hpp"
#include "extended/binding/segment_pins.hpp"
#include "firehose/base/log.hpp"

#include <cstring>
#include <gasnet_coll.h>
#include <new>

namespace hydrant {

// A member's part of the reduction: each member has zeros in the places of the others. Size 0: its segment
// cannot be pinned.
struct AdapterKeys::PublishedKey {
  static constexpr size_t kMaxBlob = 128;
  uint64_t addr = 0;
  uint64_t size = 0;
  uint64_t blob_bytes = 0;
  std::byte blob[kMaxBlob] = {};
};

namespace {

bool is_true_of_all(gex_TM_t tm, bool mine) noexcept {
  const uint64_t word = mine ? 1 : 0;
  uint64_t least = 0;
  gex_Event_Wait(gex_Coll_ReduceToAllNB(tm, &least, &word, GEX_DT_U64, sizeof word, 1, GEX_OP_MIN,
                                        nullptr, nullptr, 0));
  return least != 0;
}

}  // namespace

bool AdapterKeys::pin_own(const hydrant_segment* segment, PublishedKey* mine) noexcept {
  if (segment == nullptr) {
    log_info("an atomic domain does not use the adapter: this rank has no segment yet");
    return false;
  }
  vouch_own_segment();  // so that the pin stays cached for the next domain
  pin_ = hydrant_pin(
      firehose().domain, segment->addr, segment->size,
      HYDRANT_LOCAL_WRITE | HYDRANT_REMOTE_READ | HYDRANT_REMOTE_WRITE | HYDRANT_REMOTE_ATOMIC);
  size_t blob_bytes = PublishedKey::kMaxBlob;
  if (pin_.region == nullptr || hydrant_export_key(pin_, mine->blob, &blob_bytes) != GASNET_OK) {
    log_info(
        "an atomic domain does not use the adapter: the segment of %zu bytes is not pinned: %s",
        static_cast<size_t>(segment->size), hydrant_error_text());
    return false;
  }
  mine->addr = reinterpret_cast<uintptr_t>(segment->addr);
  mine->size = segment->size;
  mine->blob_bytes = blob_bytes;
  return true;
}

bool AdapterKeys::import_all(const PublishedKey* keys, Rank members) noexcept {
  for (Rank member = 0; member < members; ++member) {
    const PublishedKey& key = keys[member];
    if (key.size == 0) return false;
    if (hydrant_import_key(firehose().domain, key.blob, key.blob_bytes,
                           keys_.get() + member * key_bytes_) != GASNET_OK) {
      log_info("an atomic domain does not use the adapter: the key of member %u: %s", member,
               hydrant_error_text());
      return false;
    }
    segments_[member] = {.addr = key.addr, .size = key.size};
  }
  return true;
}

std::unique_ptr<AdapterKeys> AdapterKeys::make(gex_TM_t tm) noexcept {
  static_assert(sizeof(PublishedKey) % sizeof(uint64_t) == 0);
  const size_t members = tm->size;
  std::unique_ptr<AdapterKeys> made(new (std::nothrow) AdapterKeys);
  std::unique_ptr<PublishedKey[]> mine(new (std::nothrow) PublishedKey[members]);
  std::unique_ptr<PublishedKey[]> all(new (std::nothrow) PublishedKey[members]);
  if (made != nullptr) {
    made->members_ = tm->size;
    made->key_bytes_ = firehose().key_bytes;
    made->segments_.reset(new (std::nothrow) Segment[members]);
    made->keys_.reset(new (std::nothrow) std::byte[members * made->key_bytes_]);
  }
  if (mine == nullptr || all == nullptr || made == nullptr || made->segments_ == nullptr ||
      made->keys_ == nullptr)
    fatal("gex_AD_Create: no memory for the keys of an atomic domain of %u ranks", tm->size);
  (void)made->pin_own(tm->ep->segment, &mine[tm->rank]);
  gex_Event_Wait(gex_Coll_ReduceToAllNB(tm, all.get(), mine.get(), GEX_DT_U64, sizeof(uint64_t),
                                        members * sizeof(PublishedKey) / sizeof(uint64_t),
                                        GEX_OP_OR, nullptr, nullptr, 0));
  if (!is_true_of_all(tm, made->import_all(all.get(), tm->size))) return nullptr;
  return made;
}

AdapterKeys::~AdapterKeys() {
  if (pin_.region != nullptr) (void)hydrant_release(pin_);
}

const std::byte* AdapterKeys::find(Rank member, uintptr_t target, size_t bytes) const noexcept {
  const Segment& segment = segments_[member];
  const uintptr_t offset = target - segment.addr;
  if (offset >= segment.size || bytes > segment.size - offset) return nullptr;
  return keys_.get() + member * key_bytes_;
}

}  // namespace hydrant
