// The uring registrar's pins are real, and its errors are those that hydrant_registrar_t documents.
#include "firehose/registrars/charge/memlock.hpp"
#include "tests/support/recording_registrar.hpp"
#include "tests/unit/firehose/registrars/counted_pins.hpp"
#include "tests/unit/firehose/registrars/mapping.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <fcntl.h>

namespace hydrant {
namespace {

using testing::HeldPin;
using testing::Key;
using testing::kPageBytes;
using testing::MappedPages;
using testing::TestFile;

TEST(UringPin, WriteGoesThroughThePinnedPages) {
  HYDRANT_URING_OR_SKIP(uring);
  MappedPages memory(kPageBytes);
  memory.fill('A');
  Key key;
  ASSERT_EQ(uring->pin(memory.all(), Access::kLocalRead, key.data()), Status::kOk);
  memory.replace('B');
  TestFile file;
  ASSERT_EQ(uring->move(key.data(), memory.all(), file.fd(), 0, true), Status::kOk)
      << last_error_text();
  // The registration holds the page that lay there, not the address.
  EXPECT_EQ(file.read(kPageBytes), std::string(kPageBytes, 'A'));
  EXPECT_NE(uring->unpin(memory.all(), key.data()), UnpinResult::kBroken);

  ASSERT_EQ(uring->pin(memory.all(), Access::kLocalRead, key.data()), Status::kOk);
  ASSERT_EQ(uring->move(key.data(), memory.all(), file.fd(), 0, true), Status::kOk);
  EXPECT_EQ(file.read(kPageBytes), std::string(kPageBytes, 'B'));
  EXPECT_NE(uring->unpin(memory.all(), key.data()), UnpinResult::kBroken);
}

TEST(UringPin, ReadFillsThePinnedPages) {
  HYDRANT_URING_OR_SKIP(uring);
  MappedPages memory(4 * kPageBytes);
  memory.fill('-');
  TestFile file;
  file.write_all("head" + std::string(kPageBytes, 'x'));
  Key key;
  ASSERT_EQ(uring->pin(memory.all(), Access::kLocalWrite, key.data()), Status::kOk);
  const MemoryRange odd{memory.all().addr + 100, kPageBytes};
  ASSERT_EQ(uring->move(key.data(), odd, file.fd(), 4, false), Status::kOk) << last_error_text();
  const auto* bytes = reinterpret_cast<const char*>(memory.data());
  EXPECT_EQ(bytes[99], '-');
  EXPECT_EQ(std::count(bytes, bytes + memory.size(), 'x'), static_cast<long>(kPageBytes));
  EXPECT_EQ(bytes[100], 'x');
  EXPECT_NE(uring->unpin(memory.all(), key.data()), UnpinResult::kBroken);
}

TEST(UringPin, ChargesAndUnchargesTheKernelsAccount) {
  HYDRANT_URING_OR_SKIP(uring);
  if (uring->charge_comes_back_late()) GTEST_SKIP() << "this kernel gives charges back late";
  HYDRANT_COUNTED_PINS_OR_SKIP();
  MappedPages memory(16 * kPageBytes);
  memory.fill('A');
  const uint64_t before = testing::pinned_bytes();
  Key key;
  ASSERT_EQ(uring->pin(memory.all(), Access::kAll, key.data()), Status::kOk);
  EXPECT_EQ(testing::pinned_bytes(), before + memory.size());
  EXPECT_EQ(uring->unpin(memory.all(), key.data()), UnpinResult::kDone);
  EXPECT_EQ(testing::pinned_bytes(), before);
}

TEST(UringPin, EndOfFileAndBadDescriptorAreTheCallersError) {
  HYDRANT_URING_OR_SKIP(uring);
  MappedPages memory(kPageBytes);
  memory.fill('A');
  TestFile file;
  file.write_all("short");
  Key key;
  ASSERT_EQ(uring->pin(memory.all(), Access::kLocalWrite, key.data()), Status::kOk);
  EXPECT_EQ(uring->move(key.data(), memory.all(), file.fd(), 0, false), Status::kBadArg);
  EXPECT_NE(std::string(last_error_text()).find("after 5 bytes"), std::string::npos);
  EXPECT_EQ(uring->move(key.data(), memory.all(), -1, 0, false), Status::kBadArg);
  EXPECT_EQ(uring->move(key.data(), {memory.all().addr, 2 * kPageBytes}, file.fd(), 0, true),
            Status::kBadArg);
  EXPECT_EQ(uring->move(key.data(), {memory.all().addr, 0}, file.fd(), 0, true), Status::kBadArg);
  EXPECT_NE(uring->unpin(memory.all(), key.data()), UnpinResult::kBroken);
}

TEST(UringPin, UnmappedAndHolesAreRefused) {
  HYDRANT_URING_OR_SKIP(uring);
  MappedPages memory(8 * kPageBytes);
  memory.fill('A');
  Key key;
  munmap(memory.data() + 3 * kPageBytes, kPageBytes);
  EXPECT_EQ(uring->pin(memory.all(), Access::kLocalRead, key.data()), Status::kRefused);
  EXPECT_EQ(uring->pin(memory.pages(3, 1), Access::kLocalRead, key.data()), Status::kRefused);
  EXPECT_NE(std::string(last_error_text()).find("mapped"), std::string::npos);
  EXPECT_EQ(uring->pin(memory.pages(0, 3), Access::kLocalRead, key.data()), Status::kOk);
  EXPECT_NE(uring->unpin(memory.pages(0, 3), key.data()), UnpinResult::kBroken);
}

TEST(UringPin, ReadOnlyMemoryIsRefusedForEveryRight) {
  HYDRANT_URING_OR_SKIP(uring);
  MappedPages memory(kPageBytes, PROT_READ);
  Key key;
  EXPECT_EQ(uring->pin(memory.all(), Access::kLocalRead, key.data()), Status::kRefused);
  EXPECT_EQ(uring->pin(memory.all(), Access::kLocalWrite, key.data()), Status::kRefused);
}

TEST(UringPin, MemfdMappingsCanBePinned) {
  HYDRANT_URING_OR_SKIP(uring);
  TestFile file;
  file.write_all(std::string(kPageBytes, 'A'));
  void* shared = mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.fd(), 0);
  ASSERT_NE(shared, MAP_FAILED);
  const MemoryRange range{reinterpret_cast<uintptr_t>(shared), kPageBytes};
  Key key;
  EXPECT_EQ(uring->pin(range, Access::kAll, key.data()), Status::kOk) << last_error_text();
  EXPECT_NE(uring->unpin(range, key.data()), UnpinResult::kBroken);
  munmap(shared, kPageBytes);
}

// Some kernels require a single file behind a registration, so a range over several files may be refused.
TEST(UringPin, SeveralFilesInOneRangeArePinnedOrRefused) {
  HYDRANT_URING_OR_SKIP(uring);
  MappedPages memory(2 * kPageBytes);
  memory.fill('A');
  TestFile file;
  file.write_all(std::string(kPageBytes, 'F'));
  ASSERT_EQ(
      mmap(memory.data(), kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file.fd(), 0),
      static_cast<void*>(memory.data()));
  Key key;
  const Status status = uring->pin(memory.all(), Access::kAll, key.data());
  if (status == Status::kOk) {
    EXPECT_NE(uring->unpin(memory.all(), key.data()), UnpinResult::kBroken);
  } else {
    EXPECT_EQ(status, Status::kRefused) << last_error_text();
  }
  for (const MemoryRange part : {memory.pages(0, 1), memory.pages(1, 1)}) {
    ASSERT_EQ(uring->pin(part, Access::kAll, key.data()), Status::kOk) << last_error_text();
    EXPECT_NE(uring->unpin(part, key.data()), UnpinResult::kBroken);
  }
}

TEST(UringPin, InvalidRangesAreRejected) {
  HYDRANT_URING_OR_SKIP(uring);
  Key key;
  EXPECT_EQ(uring->pin({0x1000, 0}, Access::kLocalRead, key.data()), Status::kBadArg);
  EXPECT_EQ(uring->pin({UINTPTR_MAX - 4095, 2 * kPageBytes}, Access::kLocalRead, key.data()),
            Status::kBadArg);
  if (uring->traits().max_region_bytes < SIZE_MAX / 2) {
    EXPECT_EQ(uring->pin({kPageBytes, uring->traits().max_region_bytes + kPageBytes},
                         Access::kLocalRead, key.data()),
              Status::kResource);
  }
}

TEST(UringPin, StaleKeysAreBroken) {
  HYDRANT_URING_OR_SKIP(uring);
  HYDRANT_URING_OR_SKIP(other);
  MappedPages memory(4 * kPageBytes);
  memory.fill('A');
  Key key, next;
  ASSERT_EQ(uring->pin(memory.pages(0, 1), Access::kAll, key.data()), Status::kOk);
  EXPECT_EQ(other->unpin(memory.pages(0, 1), key.data()), UnpinResult::kBroken);
  EXPECT_EQ(uring->unpin(memory.pages(0, 2), key.data()), UnpinResult::kBroken) << "another length";
  EXPECT_EQ(uring->unpin(memory.pages(1, 1), key.data()), UnpinResult::kBroken) << "another place";
  EXPECT_NE(uring->unpin(memory.pages(0, 1), key.data()), UnpinResult::kBroken);
  EXPECT_EQ(uring->unpin(memory.pages(0, 1), key.data()), UnpinResult::kBroken) << "twice";
  ASSERT_EQ(uring->pin(memory.pages(0, 1), Access::kAll, next.data()), Status::kOk);
  EXPECT_EQ(uring->unpin(memory.pages(0, 1), key.data()), UnpinResult::kBroken) << "slot reused";
  TestFile file;
  EXPECT_EQ(uring->move(key.data(), memory.pages(0, 1), file.fd(), 0, true), Status::kBadArg);
  EXPECT_NE(uring->unpin(memory.pages(0, 1), next.data()), UnpinResult::kBroken);
}

TEST(UringPin, OverlappingPinsAreUndoneOnTheirOwn) {
  HYDRANT_URING_OR_SKIP(uring);
  MappedPages memory(4 * kPageBytes);
  memory.fill('A');
  Key wide, inner;
  ASSERT_EQ(uring->pin(memory.all(), Access::kAll, wide.data()), Status::kOk);
  ASSERT_EQ(uring->pin(memory.pages(1, 2), Access::kAll, inner.data()), Status::kOk);
  EXPECT_NE(uring->unpin(memory.all(), wide.data()), UnpinResult::kBroken);
  TestFile file;
  EXPECT_EQ(uring->move(inner.data(), memory.pages(1, 2), file.fd(), 0, true), Status::kOk);
  EXPECT_EQ(file.read(3 * kPageBytes), std::string(2 * kPageBytes, 'A'));
  EXPECT_NE(uring->unpin(memory.pages(1, 2), inner.data()), UnpinResult::kBroken);
}

TEST(UringPin, UnpinManyUndoesAllAndReportsTheWorst) {
  HYDRANT_URING_OR_SKIP(uring);
  constexpr size_t kPins = 150;
  MappedPages memory(kPins * kPageBytes);
  memory.fill('A');
  std::vector<HeldPin> pins(kPins);
  std::vector<MemoryRange> ranges;
  std::vector<const std::byte*> keys;
  for (size_t i = 0; i < kPins; ++i) {
    pins[i].range = memory.pages(i, 1);
    ASSERT_EQ(uring->pin(pins[i].range, Access::kAll, pins[i].key.data()), Status::kOk);
  }
  // Another order than that of the pins, so that some neighbours are apart and some together.
  for (size_t i = 0; i < kPins; ++i) {
    HeldPin& pin = pins[(i / 10 * 70 + i % 10) % kPins];
    ranges.push_back(pin.range);
    keys.push_back(pin.key.data());
  }
  EXPECT_NE(uring->unpin_many(ranges.data(), keys.data(), kPins), UnpinResult::kBroken);
  EXPECT_EQ(uring->unpin_many(ranges.data(), keys.data(), 1), UnpinResult::kBroken);
  TestFile file;
  for (HeldPin& pin : pins) {
    EXPECT_EQ(uring->move(pin.key.data(), pin.range, file.fd(), 0, true), Status::kBadArg);
  }
}

TEST(UringPin, TagsReportWhenTheChargeIsBack) {
  UringOptions options;
  options.assume_late_charges = true;
  HYDRANT_URING_OR_SKIP(uring, options);
  MappedPages memory(8 * kPageBytes);
  memory.fill('A');
  Key key;
  for (int i = 0; i < 300; ++i) {
    ASSERT_EQ(uring->pin(memory.all(), Access::kAll, key.data()), Status::kOk);
    ASSERT_EQ(uring->unpin(memory.all(), key.data()), UnpinResult::kPending);
  }
  // A move in between may take the completion, too.
  TestFile file;
  ASSERT_EQ(uring->pin(memory.all(), Access::kAll, key.data()), Status::kOk);
  EXPECT_EQ(uring->move(key.data(), memory.all(), file.fd(), 0, true), Status::kOk);
  ASSERT_EQ(uring->unpin(memory.all(), key.data()), UnpinResult::kPending);
  // Debian 12's kernel takes about a second.
  EXPECT_TRUE(testing::wait_until([&] { return uring->pending_charge() == 0; }));
}

TEST(UringPin, TraitsDescribeTheRegistrar) {
  HYDRANT_URING_OR_SKIP(uring);
  const RegistrarTraits& traits = uring->traits();
  EXPECT_STREQ(traits.name, "uring");
  EXPECT_LE(traits.key_bytes, 16u);
  EXPECT_EQ(traits.granule_bytes, static_cast<size_t>(sysconf(_SC_PAGESIZE)));
  EXPECT_GE(traits.max_regions, 65536u);
  EXPECT_GE(traits.max_region_bytes, size_t{64} << 30);
  EXPECT_FALSE(traits.divisible);
  EXPECT_EQ(traits.charge_scope == ChargeScope::kNone, traits.max_charge_bytes == UINT64_MAX);
}

TEST(UringPin, OptionsOutOfRangeAreBadArguments) {
  auto status = Status::kOk;
  UringOptions options;
  options.ring_slots = 16385;
  EXPECT_EQ(make_uring_registrar(options, &status), nullptr);
  EXPECT_EQ(status, Status::kBadArg);
  options = {};
  options.max_rings = 65;
  EXPECT_EQ(make_uring_registrar(options, &status), nullptr);
  EXPECT_EQ(status, Status::kBadArg);
}

}  // namespace
}  // namespace hydrant
