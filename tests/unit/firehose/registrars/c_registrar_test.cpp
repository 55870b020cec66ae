#include "firehose/registrars/c_registrar.hpp"

#include "tests/unit/firehose/registrars/error_text.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <sys/mman.h>
#include <utility>
#include <vector>

namespace hydrant {
namespace {

using testing::says;

constexpr MemoryRange kClientRange{0x10000, 0x2000};

// A client's registrar that returns what the test sets and records its arguments.
struct Client {
  int pin_answer = GASNET_OK;
  int unpin_answer = HYDRANT_UNPIN_DONE;
  int key_answer = GASNET_OK;
  size_t export_size = 4;
  int pins = 0, unpins = 0, batches = 0, forgotten = 0, destroyed = 0;
  uintptr_t asked_addr = 0;
  size_t asked_len = 0;
  uint32_t asked_access = 0;
  hydrant_pin_done_fn completion = nullptr;
  void* done_context = nullptr;
  hydrant_registrar_t table{};

  Client() {
    table.size = sizeof table;
    table.user = this;
    table.name = "client";
    table.key_bytes = 4;
    table.pin = [](void* user, uintptr_t addr, size_t len, uint32_t access, void* key) {
      auto* self = static_cast<Client*>(user);
      ++self->pins;
      self->asked_addr = addr, self->asked_len = len, self->asked_access = access;
      std::memcpy(key, "KEY", 4);
      return self->pin_answer;
    };
    table.unpin = [](void* user, uintptr_t addr, size_t len, const void*) {
      auto* self = static_cast<Client*>(user);
      ++self->unpins;
      self->asked_addr = addr, self->asked_len = len;
      return self->unpin_answer;
    };
  }
  void offer_everything() {
    table.export_bytes = 8;
    table.unpin_many = [](void* user, const hydrant_range_t* ranges, const void* const* keys,
                          size_t n) {
      auto* self = static_cast<Client*>(user);
      ++self->batches;
      self->asked_addr = ranges[n - 1].addr, self->asked_len = ranges[n - 1].len;
      return std::memcmp(keys[n - 1], "KEY", 4) == 0 ? self->unpin_answer : HYDRANT_UNPIN_BROKEN;
    };
    table.charge = [](void*, uintptr_t, size_t len) { return uint64_t{3} * len; };
    table.pending_charge = [](void*) { return uint64_t{77}; };
    table.export_key = [](void* user, uintptr_t, size_t, const void*, void*, size_t* len) {
      auto* self = static_cast<Client*>(user);
      *len = self->export_size;
      return self->key_answer;
    };
    table.import_key = [](void* user, const void*, size_t, void*) {
      return static_cast<Client*>(user)->key_answer;
    };
    table.implicit_key = [](void* user, uint32_t, void*) {
      return static_cast<Client*>(user)->key_answer;
    };
    table.pin_async = [](void* user, uintptr_t, size_t, uint32_t, void* key,
                         hydrant_pin_done_fn done, void* context) {
      auto* self = static_cast<Client*>(user);
      self->completion = done, self->done_context = context;
      std::memcpy(key, "KEY", 4);
      return self->pin_answer;
    };
    table.forget_in_child = [](void* user) { ++static_cast<Client*>(user)->forgotten; };
    table.destroy = [](void* user) { ++static_cast<Client*>(user)->destroyed; };
  }
  std::unique_ptr<Registrar> make() {
    auto status = Status::kOk;
    auto registrar = make_c_registrar(&table, &status);
    EXPECT_EQ(registrar != nullptr, status == Status::kOk);
    return registrar;
  }
  Status rejection() {
    auto status = Status::kOk;
    EXPECT_EQ(make_c_registrar(&table, &status), nullptr);
    return status;
  }
};

TEST(CRegistrar, BadFieldsAreNamed) {
  const auto rejected = [](const char* word, auto spoil) {
    Client client;
    spoil(client.table);
    EXPECT_EQ(client.rejection(), Status::kBadArg) << word;
    EXPECT_TRUE(says(word)) << last_error_text();
  };
  rejected("size", [](auto& t) { t.size = 0; });
  rejected("size", [](auto& t) { t.size = offsetof(hydrant_registrar_t, unpin_many) - 1; });
  rejected("size", [](auto& t) { t.size = size_t{1} << 40; });
  rejected("pin", [](auto& t) { t.pin = nullptr; });
  rejected("unpin", [](auto& t) { t.unpin = nullptr; });
  rejected("key_bytes", [](auto& t) { t.key_bytes = 4097; });
  rejected("export_bytes", [](auto& t) { t.export_bytes = 65537; });
  rejected("granule_bytes", [](auto& t) { t.granule_bytes = 12288; });
  rejected("divisible", [](auto& t) { t.divisible = 1; });
  rejected("charge_scope", [](auto& t) { t.charge_scope = 4; });
  rejected("address_kind", [](auto& t) { t.address_kind = 2; });
  rejected("supported_access", [](auto& t) { t.supported_access = 16; });
  rejected("flags", [](auto& t) { t.flags = 2; });
  rejected("flags", [](auto& t) { t.flags = uint64_t{1} << 63; });
  rejected("must both be set", [](auto& t) {
    t.import_key = [](void*, const void*, size_t, void*) { return GASNET_OK; };
  });
  auto status = Status::kOk;
  EXPECT_EQ(make_c_registrar(nullptr, &status), nullptr);
  EXPECT_EQ(status, Status::kBadArg);
}

TEST(CRegistrar, DeviceMemoryIsRefusedWithAText) {
  Client client;
  client.table.address_kind = HYDRANT_ADDRESS_DEVICE;
  EXPECT_EQ(client.rejection(), Status::kUnsupported);
  EXPECT_TRUE(says("host memory")) << last_error_text();
}

TEST(CRegistrar, RejectedStructIsNotDestroyed) {
  Client client;
  client.offer_everything();
  client.table.key_bytes = 5000;
  EXPECT_EQ(client.rejection(), Status::kBadArg);
  EXPECT_EQ(client.destroyed, 0);
}

TEST(CRegistrar, OlderAndShorterStructIsAccepted) {
  Client client;
  client.offer_everything();
  client.table.size = offsetof(hydrant_registrar_t, unpin_many);
  // At the end of a page that is followed by unreadable memory: the rest must not be read.
  auto* pages = static_cast<std::byte*>(
      mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  mprotect(pages + 4096, 4096, PROT_NONE);
  std::byte* at = pages + 4096 - client.table.size;
  std::memcpy(at, &client.table, client.table.size);
  auto status = Status::kOk;
  {
    const auto registrar =
        make_c_registrar(static_cast<const hydrant_registrar_t*>(static_cast<void*>(at)), &status);
    ASSERT_NE(registrar, nullptr) << last_error_text();
    EXPECT_FALSE(registrar->traits().exports);
    EXPECT_FALSE(registrar->traits().asynchronous);
    EXPECT_EQ(registrar->charge(kClientRange), kClientRange.len);
  }
  EXPECT_EQ(client.destroyed, 0);
  munmap(pages, 8192);
}

TEST(CRegistrar, NewerStructIsAcceptedWithZeroedNewFields) {
  struct Newer {
    hydrant_registrar_t known;
    uint64_t extra;
  };
  Client client;
  Newer newer{client.table, 0};
  newer.known.size = sizeof newer;
  auto status = Status::kOk;
  EXPECT_NE(make_c_registrar(&newer.known, &status), nullptr);
  newer.extra = 1;
  EXPECT_EQ(make_c_registrar(&newer.known, &status), nullptr);
  EXPECT_EQ(status, Status::kUnsupported);
}

TEST(CRegistrar, TraitsTakeDefaultsForZero) {
  Client client;
  client.table.name = "a name that is longer than the thirty-one bytes";
  const auto registrar = client.make();
  const RegistrarTraits& traits = registrar->traits();
  EXPECT_STREQ(traits.name, "a name that is longer than the ");
  EXPECT_EQ(traits.key_bytes, 4u);
  EXPECT_EQ(traits.granule_bytes, 4096u);
  EXPECT_EQ(traits.max_region_bytes, SIZE_MAX);
  EXPECT_EQ(traits.max_regions, UINT64_MAX);
  EXPECT_EQ(traits.max_charge_bytes, UINT64_MAX);
  EXPECT_EQ(traits.supported, Access::kAll);
  EXPECT_EQ(traits.charge_scope, ChargeScope::kNone);
  EXPECT_FALSE(traits.exports);
  EXPECT_FALSE(traits.asynchronous);
  EXPECT_EQ(registrar->charge(kClientRange), kClientRange.len);
  EXPECT_EQ(registrar->pending_charge(), 0u);
}

TEST(CRegistrar, FlagIsATrait) {
  Client client;
  EXPECT_FALSE(client.make()->traits().unpin_before_release);
  client.table.flags = HYDRANT_REGISTRAR_UNPIN_BEFORE_RELEASE;
  EXPECT_TRUE(client.make()->traits().unpin_before_release);
  // A client of an earlier version has no such field: what is there is not its.
  client.table.flags = ~uint64_t{0};
  client.table.size = offsetof(hydrant_registrar_t, flags);
  EXPECT_FALSE(client.make()->traits().unpin_before_release);
}

TEST(CRegistrar, StructIsCopied) {
  Client client;
  std::string name = "short-lived";
  client.table.name = name.c_str();
  const auto registrar = client.make();
  client.table.pin = nullptr;
  name.assign(name.size(), 'X');
  std::byte key[4];
  EXPECT_EQ(registrar->pin(kClientRange, Access::kLocalWrite | Access::kRemoteRead, key),
            Status::kOk);
  EXPECT_EQ(std::memcmp(key, "KEY", 4), 0);
  EXPECT_EQ(client.asked_addr, kClientRange.addr);
  EXPECT_EQ(client.asked_len, kClientRange.len);
  EXPECT_EQ(client.asked_access, HYDRANT_LOCAL_WRITE | HYDRANT_REMOTE_READ);
  EXPECT_STREQ(registrar->traits().name, "short-lived");
}

TEST(CRegistrar, PinResultsAreMapped) {
  Client client;
  const auto registrar = client.make();
  std::byte key[4];
  for (const int code : {GASNET_OK, GASNET_ERR_RESOURCE, GASNET_ERR_NOT_READY, HYDRANT_ERR_REFUSED,
                         HYDRANT_ERR_BROKEN}) {
    client.pin_answer = code;
    EXPECT_EQ(registrar->pin(kClientRange, Access::kAll, key), static_cast<Status>(code));
    if (code != GASNET_OK) {
      EXPECT_TRUE(says("client")) << last_error_text();
    }
  }
  for (const int code : {1, -1, 77, GASNET_ERR_NOT_INIT, GASNET_ERR_BARRIER_MISMATCH}) {
    client.pin_answer = code;
    EXPECT_EQ(registrar->pin(kClientRange, Access::kAll, key), Status::kBroken);
    EXPECT_TRUE(says(std::to_string(code).c_str())) << last_error_text();
  }
}

TEST(CRegistrar, UnpinResultsAreMapped) {
  Client client;
  const auto registrar = client.make();
  const std::byte key[4] = {};
  for (const int code : {HYDRANT_UNPIN_DONE, HYDRANT_UNPIN_PENDING, HYDRANT_UNPIN_BROKEN}) {
    client.unpin_answer = code;
    EXPECT_EQ(static_cast<int>(registrar->unpin(kClientRange, key)), code);
  }
  client.unpin_answer = 3;
  EXPECT_EQ(registrar->unpin(kClientRange, key), UnpinResult::kBroken);
  client.unpin_answer = -1;
  EXPECT_EQ(registrar->unpin(kClientRange, key), UnpinResult::kBroken);
}

TEST(CRegistrar, UnpinManyFallsBackToUnpin) {
  Client client;
  const auto registrar = client.make();
  const std::byte key[4] = {std::byte{'K'}, std::byte{'E'}, std::byte{'Y'}, std::byte{0}};
  const MemoryRange ranges[2] = {kClientRange, {0x90000, 0x1000}};
  const std::byte* keys[2] = {key, key};
  EXPECT_EQ(registrar->unpin_many(ranges, keys, 2), UnpinResult::kDone);
  EXPECT_EQ(client.unpins, 2);
  client.offer_everything();
  const auto batching = client.make();
  EXPECT_EQ(batching->unpin_many(ranges, keys, 2), UnpinResult::kDone);
  EXPECT_EQ(client.unpins, 2);
  EXPECT_EQ(client.batches, 1);
  EXPECT_EQ(client.asked_addr, 0x90000u);
}

TEST(CRegistrar, OptionalFunctionsAreCalled) {
  Client client;
  client.offer_everything();
  {
    const auto registrar = client.make();
    EXPECT_EQ(registrar->charge(kClientRange), 3 * kClientRange.len);
    EXPECT_EQ(registrar->pending_charge(), 77u);
    std::byte key[4] = {}, blob[8] = {};
    size_t len = sizeof blob;
    EXPECT_EQ(registrar->export_key(kClientRange, key, blob, &len), Status::kOk);
    EXPECT_EQ(len, 4u);
    client.export_size = 9;
    len = sizeof blob;
    EXPECT_EQ(registrar->export_key(kClientRange, key, blob, &len), Status::kBroken);
    EXPECT_EQ(len, sizeof blob);
    EXPECT_EQ(registrar->import_key(blob, 8, key), Status::kOk);
    client.key_answer = GASNET_ERR_BAD_ARG;
    EXPECT_EQ(registrar->import_key(blob, 8, key), Status::kBadArg);
    client.key_answer = 12;
    EXPECT_EQ(registrar->implicit_key(Access::kAll, key), Status::kBroken);
    registrar->forget_in_child();
    EXPECT_EQ(client.forgotten, 1);
    registrar->adopt();
    EXPECT_EQ(client.destroyed, 0);
  }
  EXPECT_EQ(client.destroyed, 1);
}

TEST(CRegistrar, UnusedRegistrarIsNotDestroyed) {
  Client client;
  client.offer_everything();
  client.make();
  EXPECT_EQ(client.destroyed, 0);
}

TEST(CRegistrar, ShortExportBufferReportsTheNeededSize) {
  Client client;
  client.offer_everything();
  client.key_answer = GASNET_ERR_BAD_ARG;
  const auto registrar = client.make();
  std::byte key[4] = {}, blob[8] = {};
  for (const auto& [says, enough] : {std::pair<size_t, size_t>{6, 6}, {3, 8}, {100, 8}}) {
    client.export_size = says;
    size_t len = 3;
    EXPECT_EQ(registrar->export_key(kClientRange, key, blob, &len), Status::kBadArg);
    EXPECT_EQ(len, enough);
    EXPECT_NE(std::strstr(last_error_text(), "room for 3 bytes"), nullptr);
  }
}

TEST(CRegistrar, MissingFunctionsHaveDefaults) {
  Client client;
  const auto registrar = client.make();
  std::byte key[4] = {}, blob[8] = {};
  size_t len = sizeof blob;
  EXPECT_EQ(registrar->export_key(kClientRange, key, blob, &len), Status::kUnsupported);
  EXPECT_EQ(registrar->import_key(blob, 8, key), Status::kUnsupported);
  EXPECT_EQ(registrar->implicit_key(Access::kAll, key), Status::kUnsupported);
  EXPECT_EQ(registrar->pin_async(kClientRange, Access::kAll, key, nullptr, nullptr), Status::kOk);
  EXPECT_EQ(client.pins, 1);
  registrar->forget_in_child();
}

TEST(CRegistrar, AsynchronousPinsComplete) {
  struct Outcome {
    Status status = Status::kNotInit;
    std::string key;
  };
  const auto done = [](void* context, Status status, const std::byte* key) {
    auto* outcome = static_cast<Outcome*>(context);
    outcome->status = status;
    if (key != nullptr) outcome->key.assign(reinterpret_cast<const char*>(key), 3);
  };
  Client client;
  client.offer_everything();
  const auto registrar = client.make();
  EXPECT_TRUE(registrar->traits().asynchronous);
  std::byte key[4] = {};
  Outcome outcome;
  EXPECT_EQ(registrar->pin_async(kClientRange, Access::kAll, key, done, &outcome), Status::kOk);
  EXPECT_EQ(outcome.status, Status::kNotInit);
  client.pin_answer = GASNET_ERR_NOT_READY;
  EXPECT_EQ(registrar->pin_async(kClientRange, Access::kAll, key, done, &outcome),
            Status::kNotReady);
  EXPECT_EQ(outcome.status, Status::kNotInit);
  client.completion(client.done_context, GASNET_OK, "KEY");
  EXPECT_EQ(outcome.status, Status::kOk);
  EXPECT_EQ(outcome.key, "KEY");
  EXPECT_EQ(registrar->pin_async(kClientRange, Access::kAll, key, done, &outcome),
            Status::kNotReady);
  client.completion(client.done_context, 99, nullptr);
  EXPECT_EQ(outcome.status, Status::kBroken);
  client.pin_answer = HYDRANT_ERR_REFUSED;
  EXPECT_EQ(registrar->pin_async(kClientRange, Access::kAll, key, done, &outcome),
            Status::kRefused);
}

}  // namespace
}  // namespace hydrant
