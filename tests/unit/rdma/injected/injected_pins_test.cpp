// The injected network's registrations: what is locked, how much, under which number, and for how long.
#include "rdma/injected/injected_page_counts.hpp"
#include "tests/support/patience.hpp"
#include "tests/unit/rdma/injected/injected_pins_world.hpp"

#include <random>
#include <set>
#include <sys/wait.h>

namespace hydrant::testing {
namespace {

InjectedKey fields(const Key& key) { return InjectedKey::load(key.data()); }

bool may_lock() {
  Pages page(1);
  const bool can = mlock(page.data, page.bytes) == 0;
  if (can) munlock(page.data, page.bytes);
  return can;
}
#define NEEDS_MLOCK() \
  if (!may_lock()) GTEST_SKIP() << "no page may be locked here: ulimit -l is 0"

TEST(InjectedPins, ReportTheirTraits) {
  Adapter fake;
  const RegistrarTraits& traits = fake.registrar->traits();
  EXPECT_STREQ(traits.name, "injected");
  EXPECT_EQ(traits.key_bytes, sizeof(InjectedKey));
  EXPECT_TRUE(traits.exports);
  EXPECT_EQ(traits.export_bytes, kInjectedBlobBytes);
  EXPECT_FALSE(traits.divisible);
  EXPECT_EQ(traits.max_charge_bytes, UINT64_MAX);
  EXPECT_EQ(traits.charge_scope, ChargeScope::kNone);
  Adapter limited({.bytes = 2 * kPage, .is_fake = true});
  EXPECT_EQ(limited.registrar->traits().max_charge_bytes, 2 * kPage);
  EXPECT_EQ(limited.registrar->traits().charge_scope, ChargeScope::kDevice);
}

TEST(InjectedPins, LockPagesUntilTheLastOfThemEnds) {
  NEEDS_MLOCK();
  Adapter adapter(InjectedPins::Limits{});
  Registrar& registrar = *adapter.registrar;
  Pages memory(4);
  const uint64_t before = locked_bytes();
  const Key front = pinned(registrar, memory.range(0, 3));
  EXPECT_EQ(locked_bytes() - before, 3 * kPage);
  const Key back = pinned(registrar, memory.range(1, 3));
  EXPECT_EQ(locked_bytes() - before, 4 * kPage);
  EXPECT_EQ(registrar.unpin(memory.range(0, 3), front.data()), UnpinResult::kDone);
  EXPECT_EQ(locked_bytes() - before, 3 * kPage);
  EXPECT_EQ(registrar.unpin(memory.range(1, 3), back.data()), UnpinResult::kDone);
  EXPECT_EQ(locked_bytes(), before);
}

TEST(InjectedPins, UnpinAfterAnUnmapSucceeds) {
  NEEDS_MLOCK();
  Adapter adapter(InjectedPins::Limits{});
  Pages memory(4);
  const uint64_t before = locked_bytes();
  const Key key = pinned(*adapter.registrar, memory.range());
  ASSERT_EQ(munmap(memory.data + kPage, kPage), 0);
  EXPECT_EQ(adapter.registrar->unpin(memory.range(), key.data()), UnpinResult::kDone);
  EXPECT_EQ(locked_bytes(), before);
}

TEST(InjectedPins, RejectInvalidRanges) {
  NEEDS_MLOCK();
  Adapter adapter(InjectedPins::Limits{});
  Registrar& registrar = *adapter.registrar;
  const uint64_t before = locked_bytes();
  Key key{};
  Pages hole(3);
  munmap(hole.data + kPage, kPage);
  EXPECT_EQ(registrar.pin(hole.range(), Access::kLocalRead, key.data()), Status::kRefused);
  Pages constant(1, PROT_READ);
  EXPECT_EQ(registrar.pin(constant.range(), Access::kRemoteWrite, key.data()), Status::kRefused);
  EXPECT_EQ(registrar.pin(constant.range(), Access::kLocalWrite, key.data()), Status::kRefused);
  Pages closed(1, PROT_NONE);
  EXPECT_EQ(registrar.pin(closed.range(), Access::kLocalRead, key.data()), Status::kRefused);
  EXPECT_EQ(locked_bytes(), before);
  EXPECT_EQ(fields(key).kind, InjectedKey::kNone);
  const Key reading = pinned(registrar, constant.range(), Access::kRemoteRead);
  EXPECT_EQ(registrar.unpin(constant.range(), reading.data()), UnpinResult::kDone);
  for (const MemoryRange range :
       {MemoryRange{at(hole.data) + 1, kPage}, MemoryRange{at(hole.data), 100},
        MemoryRange{at(hole.data), 0}, MemoryRange{UINTPTR_MAX - kPage + 1, kPage}}) {
    EXPECT_EQ(registrar.pin(range, Access::kLocalRead, key.data()), Status::kBadArg);
  }
  EXPECT_EQ(registrar.pin(hole.range(0, 1), static_cast<Access>(16), key.data()), Status::kBadArg);
}

TEST(InjectedPins, HaveALimitInBytes) {
  Adapter adapter({.bytes = 3 * kPage, .is_fake = true});
  Registrar& registrar = *adapter.registrar;
  Pages memory(4);
  Key key{};
  EXPECT_EQ(registrar.pin(memory.range(), kAllRights, key.data()), Status::kResource);
  EXPECT_NE(std::string(last_error_text()).find("pins="), std::string::npos);
  const Key two = pinned(registrar, memory.range(0, 2));
  // The same pages again are another registration.
  EXPECT_EQ(registrar.pin(memory.range(0, 2), kAllRights, key.data()), Status::kNotReady);
  EXPECT_NE(std::string(last_error_text()).find("pins=12288"), std::string::npos);
  const Key one = pinned(registrar, memory.range(0, 1));
  // All registrars of an adapter share it.
  const std::unique_ptr<Registrar> other = adapter.pins->make_registrar();
  EXPECT_EQ(other->pin(memory.range(3, 1), kAllRights, key.data()), Status::kNotReady);
  EXPECT_EQ(registrar.unpin(memory.range(0, 1), one.data()), UnpinResult::kDone);
  EXPECT_EQ(other->pin(memory.range(3, 1), kAllRights, key.data()), Status::kOk);
  EXPECT_EQ(registrar.unpin(memory.range(0, 2), two.data()), UnpinResult::kDone);
}

TEST(InjectedPins, AreLimitedInNumber) {
  Adapter adapter;
  Registrar& registrar = *adapter.registrar;
  Pages memory(1);
  std::vector<Key> keys(InjectedPins::kMax);
  for (Key& key : keys)
    ASSERT_EQ(registrar.pin(memory.range(), kAllRights, key.data()), Status::kOk);
  Key more{};
  EXPECT_EQ(registrar.pin(memory.range(), kAllRights, more.data()), Status::kNotReady);
  EXPECT_EQ(registrar.unpin(memory.range(), keys[77].data()), UnpinResult::kDone);
  EXPECT_EQ(registrar.pin(memory.range(), kAllRights, more.data()), Status::kOk);
  EXPECT_EQ(registrar.pin(memory.range(), kAllRights, keys[77].data()), Status::kNotReady);
}

TEST(InjectedPins, NumbersAreUnique) {
  Adapter adapter;
  Adapter other;
  Pages memory(1);
  std::set<uint64_t> numbers;
  uint64_t record = 0;
  for (int i = 0; i < 1000; ++i) {
    for (Registrar* registrar : {adapter.registrar.get(), other.registrar.get()}) {
      const Key key = pinned(*registrar, memory.range());
      EXPECT_TRUE(numbers.insert(fields(key).nonce).second);
      record = std::max(record, fields(key).record);
      EXPECT_EQ(registrar->unpin(memory.range(), key.data()), UnpinResult::kDone);
    }
  }
  EXPECT_EQ(numbers.count(0), 0u);
  EXPECT_EQ(record, 0u) << "a record is used again";
}

TEST(InjectedPins, EndByTheirOwnKeyOnce) {
  Adapter adapter;
  Registrar& registrar = *adapter.registrar;
  const std::unique_ptr<Registrar> other = adapter.pins->make_registrar();
  Pages memory(2);
  const Key key = pinned(registrar, memory.range());
  const Key sent = imported(registrar, exported(registrar, memory.range(), key));
  EXPECT_EQ(registrar.unpin(memory.range(0, 1), key.data()), UnpinResult::kBroken);
  EXPECT_EQ(registrar.unpin(memory.range(), sent.data()), UnpinResult::kBroken);
  EXPECT_EQ(registrar.unpin(memory.range(), Key{}.data()), UnpinResult::kBroken);
  EXPECT_EQ(other->unpin(memory.range(), key.data()), UnpinResult::kBroken);
  InjectedKey far = fields(key);
  far.record = InjectedPins::kMax;
  Key forged{};
  far.store(forged.data());
  EXPECT_EQ(registrar.unpin(memory.range(), forged.data()), UnpinResult::kBroken);
  EXPECT_EQ(adapter.pins->check_local(far, memory.range(), Access::kLocalRead), Status::kRefused);
  EXPECT_EQ(adapter.pins->check_local(fields(key), memory.range(), kAllRights), Status::kOk);
  EXPECT_EQ(registrar.unpin(memory.range(), key.data()), UnpinResult::kDone);
  EXPECT_EQ(registrar.unpin(memory.range(), key.data()), UnpinResult::kBroken);
  EXPECT_EQ(adapter.pins->check_local(fields(key), memory.range(), Access::kLocalRead),
            Status::kRefused);
}

TEST(InjectedPins, EndWithTheirRegistrar) {
  Adapter adapter({.bytes = 3 * kPage, .is_fake = true});
  Pages memory(2);
  std::unique_ptr<Registrar> other = adapter.pins->make_registrar();
  const Key stays = pinned(*adapter.registrar, memory.range(0, 1));
  const Key goes = pinned(*other, memory.range());
  other.reset();
  const auto check = [&](const Key& key, MemoryRange range) {
    return adapter.pins->check_local(fields(key), range, Access::kLocalRead);
  };
  EXPECT_EQ(check(goes, memory.range()), Status::kRefused);
  EXPECT_EQ(check(stays, memory.range(0, 1)), Status::kOk);
  pinned(*adapter.registrar, memory.range());  // the limit is not reached
}

TEST(InjectedPins, ChildHasNoPinsAndOtherNumbers) {
  Adapter adapter({.bytes = 2 * kPage, .is_fake = true});
  Registrar& registrar = *adapter.registrar;
  Pages memory(2);
  const Key key = pinned(registrar, memory.range());
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    hydrant_test_alarm(60);
    adapter.wire.lock();  // as if another thread had been copying
    registrar.forget_in_child();
    int failed = 0;
    const auto refused = [&](const Key& which) {
      return adapter.pins->check_local(fields(which), memory.range(), Access::kLocalRead) ==
             Status::kRefused;
    };
    if (!refused(key)) failed |= 1;
    if (registrar.unpin(memory.range(), key.data()) != UnpinResult::kBroken) failed |= 2;
    Key mine{};
    if (registrar.pin(memory.range(), kAllRights, mine.data()) != Status::kOk) failed |= 4;
    const uint64_t number = fields(mine).nonce;
    if (write(ends[1], &number, sizeof number) != sizeof number) failed |= 32;
    registrar.forget_in_child();  // once is enough
    if (refused(mine) || !refused(key)) failed |= 8;
    if (registrar.unpin(memory.range(), mine.data()) != UnpinResult::kDone) failed |= 16;
    _exit(failed);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), 0);
  uint64_t number = 0;
  EXPECT_EQ(read(ends[0], &number, sizeof number), ssize_t{sizeof number});
  close(ends[0]);
  close(ends[1]);
  EXPECT_EQ(adapter.pins->check_local(fields(key), memory.range(), kAllRights), Status::kOk);
  EXPECT_EQ(registrar.unpin(memory.range(), key.data()), UnpinResult::kDone);
  EXPECT_NE(fields(pinned(registrar, memory.range())).nonce, number);
}

// Against an array of counts.
TEST(InjectedPageCounts, AgreesWithAnArray) {
  constexpr size_t kPages = 64;
  std::mt19937_64 random(5);
  InjectedPageCounts page_counts;
  std::vector<int> counts(kPages);
  std::vector<MemoryRange> held;
  for (int step = 0; step < 20'000 || !held.empty(); ++step) {
    const bool adds = step < 20'000 && (held.empty() || random() % 2 == 0) && held.size() < 40;
    if (adds) {
      const size_t first = random() % kPages;
      const size_t length = 1 + random() % (kPages - first);
      held.push_back({(first + 1) * kPage, length * kPage});
      page_counts.add(held.back());
      for (size_t i = first; i < first + length; ++i) ++counts[i];
      continue;
    }
    const size_t which = random() % held.size();
    const MemoryRange range = held[which];
    held.erase(held.begin() + static_cast<ptrdiff_t>(which));
    const size_t first = range.addr / kPage - 1;
    std::set<size_t> expected;
    for (size_t i = first; i < first + range.len / kPage; ++i) {
      if (--counts[i] == 0) expected.insert(i);
    }
    std::set<size_t> gone;
    page_counts.remove(range, [&](MemoryRange stretch) {
      for (uintptr_t page = stretch.addr; page < stretch.end(); page += kPage)
        EXPECT_TRUE(gone.insert(page / kPage - 1).second);
    });
    ASSERT_EQ(gone, expected);
    ASSERT_LE(page_counts.steps(), kPages + 1);
  }
  EXPECT_EQ(page_counts.steps(), 0u);
}

}  // namespace
}  // namespace hydrant::testing
