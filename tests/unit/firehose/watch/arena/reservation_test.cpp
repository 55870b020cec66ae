#include "firehose/watch/arena/address_reservation.hpp"

#include <gtest/gtest.h>

#include <memory>

namespace hydrant::arena {
namespace {

constexpr uintptr_t kAddr = uintptr_t{1} << 40;

const void* const_pointer(uintptr_t addr) { return reinterpret_cast<const void*>(addr); }

AddressReservation at(uintptr_t addr, size_t blocks) {
  AddressReservation made{};
  made.addr = addr;
  made.bytes = blocks * kBlockBytes;
  return made;
}

TEST(AddressMap, FindsAReservationFromItsFirstByteToItsLast) {
  const auto map = std::make_unique<AddressMap>();
  AddressReservation one = at(kAddr, 3);
  // Over the edge between two leaves of the map.
  AddressReservation two = at((uintptr_t{2} << 34) - kBlockBytes, 2);
  ASSERT_TRUE(map->add(&one));
  ASSERT_TRUE(map->add(&two));
  for (AddressReservation* r : {&one, &two}) {
    EXPECT_EQ(map->find(const_pointer(r->addr)), r);
    EXPECT_EQ(map->find(const_pointer(r->end() - 1)), r);
    EXPECT_EQ(map->find(const_pointer(r->addr - 1)), nullptr);
    EXPECT_EQ(map->find(const_pointer(r->end())), nullptr);
  }
  EXPECT_EQ(map->find(nullptr), nullptr);
  EXPECT_EQ(map->find(const_pointer(UINTPTR_MAX)), nullptr);
}

TEST(AddressMap, OverlappingReservationIsRejected) {
  const auto map = std::make_unique<AddressMap>();
  AddressReservation one = at(kAddr, 3);
  AddressReservation other = at(kAddr - 2 * kBlockBytes, 3);
  ASSERT_TRUE(map->add(&one));
  EXPECT_FALSE(map->add(&other));
  EXPECT_EQ(map->find(const_pointer(kAddr)), &one);
  EXPECT_EQ(map->find(const_pointer(other.addr)), nullptr);
}

TEST(AddressMap, AddressesBeyondUserSpaceAreRefused) {
  const auto map = std::make_unique<AddressMap>();
  AddressReservation high = at((uintptr_t{1} << 47) - kBlockBytes, 2);
  EXPECT_FALSE(map->add(&high));
}

}  // namespace
}  // namespace hydrant::arena
