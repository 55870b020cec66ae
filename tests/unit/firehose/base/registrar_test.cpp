#include "firehose/base/registrar.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace hydrant {
namespace {

using ::testing::HasSubstr;

// Implements the required methods; the optional ones keep their defaults.
class BareRegistrar final : public Registrar {
 public:
  explicit BareRegistrar(std::vector<UnpinResult> answers) : answers_(std::move(answers)) {
    traits_.name = "bare";
  }
  const RegistrarTraits& traits() const noexcept override { return traits_; }
  Status pin(MemoryRange /*range*/, Access /*access*/, std::byte* key) noexcept override {
    *key = std::byte{7};
    return Status::kOk;
  }
  UnpinResult unpin(MemoryRange /*range*/, const std::byte* key) noexcept override {
    unpinned_.push_back(*key);
    return answers_[unpinned_.size() - 1];
  }
  const std::vector<std::byte>& unpinned() const { return unpinned_; }

 private:
  RegistrarTraits traits_;
  std::vector<UnpinResult> answers_;
  std::vector<std::byte> unpinned_;
};

constexpr MemoryRange kRange{0x1000, 0x1000};

TEST(Registrar, UnpinManyUnpinsAllAndReturnsTheWorstResult) {
  BareRegistrar registrar({UnpinResult::kDone, UnpinResult::kBroken, UnpinResult::kPending});
  const std::byte keys[] = {std::byte{1}, std::byte{2}, std::byte{3}};
  const std::byte* pointers[] = {&keys[0], &keys[1], &keys[2]};
  const MemoryRange ranges[] = {kRange, kRange, kRange};
  EXPECT_EQ(registrar.unpin_many(ranges, pointers, 3), UnpinResult::kBroken);
  EXPECT_EQ(registrar.unpinned(), std::vector<std::byte>(std::begin(keys), std::end(keys)));
  EXPECT_EQ(registrar.unpin_many(ranges, pointers, 0), UnpinResult::kDone);
}

TEST(Registrar, AsynchronousPinDefaultsToTheSynchronousOne) {
  BareRegistrar registrar({});
  std::byte key{};
  const auto never = [](void*, Status, const std::byte*) { FAIL() << "done must not be called"; };
  EXPECT_EQ(registrar.pin_async(kRange, Access::kLocalRead, &key, never, nullptr), Status::kOk);
  EXPECT_EQ(key, std::byte{7});
}

TEST(Registrar, ChargeIsTheLengthAndNothingIsPending) {
  BareRegistrar registrar({});
  EXPECT_EQ(registrar.charge(kRange), 0x1000U);
  EXPECT_EQ(registrar.pending_charge(), 0U);
}

TEST(Registrar, MissingPartsAreUnsupportedByName) {
  BareRegistrar registrar({});
  std::byte bytes[8] = {};
  size_t len = sizeof bytes;
  EXPECT_EQ(registrar.export_key(kRange, bytes, bytes, &len), Status::kUnsupported);
  EXPECT_THAT(last_error_text(), HasSubstr("bare"));
  EXPECT_EQ(registrar.import_key(bytes, len, bytes), Status::kUnsupported);
  EXPECT_THAT(last_error_text(), HasSubstr("bare"));
  EXPECT_EQ(registrar.implicit_key(Access::kAll, bytes), Status::kUnsupported);
  EXPECT_THAT(last_error_text(), HasSubstr("bare"));
}

}  // namespace
}  // namespace hydrant
