// The limits of a transport's registrar, as the pin cache gets them.
#include "extended/binding/registrar_adapter.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>

namespace hydrant {
namespace {

class LimitedRegistrar final : public Registrar {
 public:
  explicit LimitedRegistrar(uint64_t max_charge_bytes) noexcept {
    traits_.max_charge_bytes = max_charge_bytes;
  }
  const RegistrarTraits& traits() const noexcept override { return traits_; }
  Status pin(MemoryRange /*range*/, Access /*access*/, std::byte* /*key*/) noexcept override {
    return Status::kOk;
  }
  UnpinResult unpin(MemoryRange /*range*/, const std::byte* /*key*/) noexcept override {
    return UnpinResult::kDone;
  }

 private:
  RegistrarTraits traits_;
};

uint64_t adapted(uint64_t max_charge_bytes) {
  const hydrant_registrar_t functions =
      registrar_functions(std::make_unique<LimitedRegistrar>(max_charge_bytes));
  functions.destroy(functions.user);
  return functions.max_charge_bytes;
}

TEST(RegistrarAdapter, ChargesKeepTheirLimit) {
  EXPECT_EQ(adapted(4096), 4096U);
  EXPECT_EQ(adapted(UINT64_MAX), 0U) << "no limit";
  EXPECT_EQ(adapted(0), 1U) << "0 would be no limit";
}

}  // namespace
}  // namespace hydrant
