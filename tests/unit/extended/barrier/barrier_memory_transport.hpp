// A transport for the shared states of barriers: its registrar records what is pinned and imported, and it
// records the words that are written to shared states of other nodes.
#pragma once

#include "tests/support/fake_bootstrap.hpp"
#include "tests/unit/am/fake_transport.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

namespace hydrant::test {

struct BarrierMemoryRecords {
  std::vector<MemoryRange> pinned;           // live
  std::vector<std::vector<std::byte>> keys;  // imported blobs; a key is an index here
  size_t dropped = 0;
  struct Word {
    Rank peer = 0;
    uintptr_t at = 0;
    uint64_t key = 0;
    uint64_t word = 0;
    uintptr_t from = 0;
    bool has_local_key = false;
  };
  std::vector<Word> words;
};

class BarrierMemoryRegistrar final : public Registrar {
 public:
  static constexpr uint32_t kBlobBytes = 16;

  explicit BarrierMemoryRegistrar(BarrierMemoryRecords& records) : records_(records) {
    traits_.name = "barriers";
    traits_.key_bytes = sizeof(uint64_t);
    traits_.exports = true;
    traits_.export_bytes = kBlobBytes;
  }
  const RegistrarTraits& traits() const noexcept override { return traits_; }
  Status pin(MemoryRange range, Access, std::byte* key) noexcept override {
    records_.pinned.push_back(range);
    std::memcpy(key, &range.addr, sizeof range.addr);
    return Status::kOk;
  }
  UnpinResult unpin(MemoryRange range, const std::byte*) noexcept override {
    return std::erase(records_.pinned, range) == 1 ? UnpinResult::kDone : UnpinResult::kBroken;
  }
  Status export_key(MemoryRange range, const std::byte*, std::byte* blob,
                    size_t* len) noexcept override {
    if (*len < kBlobBytes) return fail(Status::kBadArg, "a blob has %u bytes", kBlobBytes);
    std::memcpy(blob, &range, kBlobBytes);
    *len = kBlobBytes;
    return Status::kOk;
  }
  // An empty blob is malformed.
  Status import_key(const std::byte* blob, size_t len, std::byte* key) noexcept override {
    if (len == 0) return fail(Status::kBadArg, "an empty blob");
    const uint64_t index = records_.keys.size();
    records_.keys.emplace_back(blob, blob + len);
    std::memcpy(key, &index, sizeof index);
    return Status::kOk;
  }
  void drop_import(const std::byte*) noexcept override { ++records_.dropped; }

 private:
  BarrierMemoryRecords& records_;
  RegistrarTraits traits_;
};

class BarrierMemoryTransport final : public FakeTransport, public PinnedOperations {
 public:
  BarrierMemoryRecords records;
  uint32_t max_keyless_bytes = sizeof(uint64_t);
  PutOrder order = PutOrder::kOrdered;
  std::vector<Completion*> completions;  // of the puts

  uint32_t capabilities() const noexcept override { return kPinned; }
  PinnedOperations* pinned() noexcept override { return this; }
  uint32_t keyless_bytes() const noexcept override { return max_keyless_bytes; }
  PutOrder put_order() const noexcept override { return order; }
  std::unique_ptr<Registrar> make_registrar() noexcept override {
    return std::make_unique<BarrierMemoryRegistrar>(records);
  }
  using FakeTransport::get;
  using FakeTransport::put;
  Status put(Rank peer, const Pinned& remote, const Pinned& local, size_t bytes,
             Completion* completion) noexcept override {
    completions.push_back(completion);
    BarrierMemoryRecords::Word one{
        .peer = peer, .at = remote.addr, .from = local.addr, .has_local_key = local.key != nullptr};
    std::memcpy(&one.key, remote.key, sizeof one.key);
    std::memcpy(&one.word, reinterpret_cast<const void*>(local.addr),
                std::min(bytes, sizeof one.word));
    records.words.push_back(one);
    return Status::kOk;
  }
  Status get(Rank, const Pinned&, const Pinned&, size_t, Completion*) noexcept override {
    return Status::kUnsupported;
  }
};

// The endpoint address of a node: the addresses of its shared states, the order of puts to it and a blob, in
// the published layout.
inline std::vector<std::byte> address_entry(uint64_t first, uint64_t second, uint32_t blob_bytes,
                                            std::span<const std::byte> blob,
                                            PutOrder order = PutOrder::kOrdered) {
  constexpr size_t kEntryBytes = 3 * sizeof(uint64_t) + 512;
  std::vector<std::byte> entry(kEntryBytes);
  const uint64_t words[] = {first, second, blob_bytes | static_cast<uint64_t>(order) << 32};
  std::memcpy(entry.data(), words, sizeof words);
  if (!blob.empty())
    std::memcpy(entry.data() + sizeof words, blob.data(), std::min<size_t>(blob.size(), 512));
  return entry;
}

}  // namespace hydrant::test
