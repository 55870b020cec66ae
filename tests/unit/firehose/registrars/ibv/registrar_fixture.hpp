// The fixture of tests of the class IbvRegistrar: over a device of its own, or a protection domain that it
// borrows.
#pragma once

#include "firehose/registrars/ibv/ibv_registrar.hpp"
#include "tests/fakes/fake_ibverbs.hpp"

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <cstddef>
#include <cstring>
#include <memory>

namespace hydrant::testing {

inline constexpr MemoryRange kRange{0x10000, 0x4000};

struct IbvKeyBytes {
  std::byte bytes[sizeof(IbvKey)] = {};
  IbvKey value() const {
    IbvKey key;
    std::memcpy(&key, bytes, sizeof key);
    return key;
  }
};

class IbvRegistrarTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fake_verbs::reset();
    ASSERT_TRUE(fake_verbs::live().none());
  }
  void TearDown() override {
    registrar_.reset();
    EXPECT_TRUE(fake_verbs::live().none()) << "an object was not released";
  }
  void open(const fake_verbs::Device& device = {}) {
    fake_verbs::add_device(device);
    ASSERT_EQ(IbvRegistrar::open(nullptr, &registrar_), Status::kOk) << last_error_text();
  }
  // Makes a protection domain that a registrar may borrow; close_lent() ends it.
  void lend() {
    fake_verbs::add_device({});
    context_ = fake_verbs::open_first();
    pd_ = fake_verbs::alloc_pd(context_);
  }
  void close_lent() { fake_verbs::close(context_, pd_); }
  void borrow() {
    lend();
    ASSERT_EQ(IbvRegistrar::create(pd_, &registrar_), Status::kOk) << last_error_text();
  }
  Status pin(MemoryRange range, Access access, IbvKeyBytes* key) {
    return registrar_->pin(range, access, key->bytes);
  }
  UnpinResult unpin(const IbvKeyBytes& key) { return registrar_->unpin(kRange, key.bytes); }

  std::unique_ptr<IbvRegistrar> registrar_;
  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
};

}  // namespace hydrant::testing
