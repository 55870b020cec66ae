// Keys of pinned memory on the injected network: the rights they grant, their lifetime, and forged keys.
#include "tests/unit/rdma/injected/injected_pins_world.hpp"

namespace hydrant::testing {
namespace {

using Pinned = PinnedOperations::Pinned;

// Checks an operation in flight: it is refused, and has moved nothing.
void expect_refused(PinnedNode& node, const Told& told) {
  EXPECT_EQ(node.after(10'000), 1u);
  EXPECT_EQ(told.times, 1);
  EXPECT_EQ(told.status, Status::kRefused);
  EXPECT_TRUE(node.theirs.is_untouched());
}

// Fills the source with 'x' for its lifetime, and with dots again.
struct Marked {
  explicit Marked(Pages& memory) : pages(memory) { std::memset(pages.data, 'x', pages.bytes); }
  ~Marked() { std::memset(pages.data, '.', pages.bytes); }
  Marked(const Marked&) = delete;
  Marked& operator=(const Marked&) = delete;
  Pages& pages;
};

TEST(InjectedPinnedKeys, PeerKeysEndWithThePin) {
  for (const bool is_put : {true, false}) {
    for (const size_t bytes : {8u, 1000u}) {
      for (const bool is_late : {true, false}) {
        for (const bool again : {true, false}) {
          SCOPED_TRACE(::testing::Message() << is_put << bytes << is_late << again);
          PinnedNode node({.delay_ns = 1000});
          Told told;
          const auto begin = [&] {
            return is_put ? node.put(0, 0, bytes, &told) : node.get(0, 0, bytes, &told);
          };
          const auto end = [&] {
            EXPECT_EQ(node.unpin_theirs(), UnpinResult::kDone);
            // The same memory in the same record is another registration.
            if (again) pinned(*node.there.registrar, node.theirs.range());
          };
          if (!is_late) end();
          {
            const Marked marked(is_put ? node.mine : node.theirs);
            ASSERT_EQ(begin(), Status::kOk) << last_error_text();
            node.after(500);
            if (is_late) end();
            node.after(500);
            node.after(1000);
          }
          EXPECT_EQ(told.times, 1);
          EXPECT_EQ(told.status, Status::kRefused);
          EXPECT_TRUE(node.mine.is_untouched());
          EXPECT_TRUE(node.theirs.is_untouched());
        }
      }
    }
  }
}

TEST(InjectedPinnedKeys, OwnKeysEndWithThePin) {
  for (const bool is_put : {true, false}) {
    PinnedNode node({.delay_ns = 1000});
    Told told;
    const auto begin = [&] {
      return is_put ? node.put(0, 0, 100, &told) : node.get(0, 0, 100, &told);
    };
    {
      const Marked marked(is_put ? node.mine : node.theirs);
      ASSERT_EQ(begin(), Status::kOk);
      node.after(500);
      EXPECT_EQ(node.unpin_mine(), UnpinResult::kDone);
      EXPECT_EQ(node.after(10'000), 1u);
    }
    EXPECT_EQ(told.status, Status::kRefused);
    EXPECT_TRUE(node.mine.is_untouched());
    EXPECT_TRUE(node.theirs.is_untouched());
    EXPECT_EQ(begin(), Status::kRefused);
    const Key again = pinned(*node.here, node.mine.range());
    EXPECT_EQ(begin(), Status::kRefused) << "in the same record";
    node.local = again;
    EXPECT_EQ(begin(), Status::kOk);
    EXPECT_EQ(node.after(10'000), 1u);
    EXPECT_EQ(told.times, 2);
  }
}

TEST(InjectedPinnedKeys, KeysGrantTheirRightsOnly) {
  for (uint32_t rights = 0; rights <= bits(Access::kAll); ++rights) {
    SCOPED_TRACE(rights);
    const auto access = static_cast<Access>(rights);
    PinnedNode node({.delay_ns = 1000});
    EXPECT_EQ(node.unpin_mine(), UnpinResult::kDone);
    EXPECT_EQ(node.unpin_theirs(), UnpinResult::kDone);
    node.local = pinned(*node.here, node.mine.range(), access);
    node.remote_owned = pinned(*node.there.registrar, node.theirs.range(), access);
    node.remote = imported(*node.here,
                           exported(*node.there.registrar, node.theirs.range(), node.remote_owned));
    Told put;
    Told get;
    ASSERT_EQ(node.put(0, 0, 100, &put), Status::kOk);
    const bool may_get_here = includes(access, Access::kLocalWrite);
    EXPECT_EQ(node.get(0, 0, 100, &get), may_get_here ? Status::kOk : Status::kRefused);
    node.after(10'000);
    EXPECT_EQ(put.status, includes(access, Access::kRemoteWrite) ? Status::kOk : Status::kRefused);
    EXPECT_EQ(get.times, may_get_here ? 1 : 0);
    if (may_get_here) {
      EXPECT_EQ(get.status, includes(access, Access::kRemoteRead) ? Status::kOk : Status::kRefused);
    }
  }
}

TEST(InjectedPinnedKeys, CoverTheirPagesOnly) {
  PinnedNode node({.delay_ns = 1000});
  const uintptr_t last = at(node.theirs.data) + kPage - 1;
  const uintptr_t own_last = at(node.mine.data) + kPage - 1;
  Told told;
  const auto put = [&](uintptr_t to, uintptr_t from, size_t bytes) {
    return node.net->pinned()->put(1, {to, node.remote.data()}, {from, node.local.data()}, bytes,
                                   &told);
  };
  ASSERT_EQ(put(last - 99, own_last - 99, 100), Status::kOk);
  EXPECT_EQ(node.after(10'000), 1u);
  EXPECT_EQ(told.status, Status::kOk);
  told.times = 0;
  const Marked marked(node.mine);
  for (const uintptr_t to : {last - 98, last + 1, at(node.theirs.data) - 1}) {
    ASSERT_EQ(put(to, at(node.mine.data), 100), Status::kOk);
    expect_refused(node, told);
    told.times = 0;
  }
  for (const uintptr_t from : {own_last - 98, own_last + 1, at(node.mine.data) - 1})
    EXPECT_EQ(put(at(node.theirs.data), from, 100), Status::kRefused);
  EXPECT_EQ(put(UINTPTR_MAX - 10, at(node.mine.data), 100), Status::kBadArg);
  EXPECT_EQ(put(at(node.theirs.data), UINTPTR_MAX - 10, 100), Status::kBadArg);
  EXPECT_EQ(put(at(node.theirs.data), at(node.mine.data), 0), Status::kBadArg);
  EXPECT_EQ(node.net->pinned()->put(1, {last, nullptr}, {own_last, node.local.data()}, 1, &told),
            Status::kBadArg);
}

// A peer may be granted less than a registration, for example because it holds the rest already.
TEST(InjectedPinnedKeys, PartOfARegistrationIsExported) {
  PinnedNode node({.delay_ns = 1000});
  Registrar& there = *node.there.registrar;
  Pages wide(3);
  const Key owned = pinned(there, wide.range());
  const Key part = imported(*node.here, exported(there, wide.range(1, 1), owned));
  Told told;
  ASSERT_EQ(node.net->pinned()->put(1, {at(wide.data) + kPage, part.data()},
                                    {at(node.mine.data), node.local.data()}, 100, &told),
            Status::kOk);
  EXPECT_EQ(node.after(10'000), 1u);
  EXPECT_EQ(told.status, Status::kOk);
  Blob blob{};
  size_t len = blob.size();
  EXPECT_EQ(
      there.export_key({wide.range().addr, wide.bytes + kPage}, owned.data(), blob.data(), &len),
      Status::kBadArg);
}

TEST(InjectedPinnedKeys, LocalAndRemoteKeysAreNotInterchangeable) {
  PinnedNode node({});
  Told told;
  const Pinned remote{at(node.theirs.data), node.remote.data()};
  const Pinned local{at(node.mine.data), node.local.data()};
  const Key none{};
  EXPECT_EQ(node.net->pinned()->put(1, {remote.addr, local.key}, local, 100, &told),
            Status::kRefused);
  EXPECT_EQ(node.net->pinned()->put(1, {remote.addr, none.data()}, local, 8, &told),
            Status::kRefused);
  EXPECT_EQ(node.net->pinned()->put(1, remote, {local.addr, remote.key}, 100, &told),
            Status::kRefused);
  EXPECT_EQ(node.net->pinned()->get(1, remote, {local.addr, none.data()}, 8, &told),
            Status::kRefused);
  node.after(10'000);
  EXPECT_EQ(told.times, 0);
}

// The record shows forgeries that import_key() cannot detect.
TEST(InjectedPinnedKeys, ForgedKeysAreRejected) {
  PinnedNode node({.delay_ns = 1000});
  Pages more(2);
  const Key wide = pinned(*node.there.registrar, more.range());
  const Key narrow = pinned(*node.there.registrar, more.range(0, 1), Access::kRemoteRead);
  const Key short_one = pinned(*node.there.registrar, more.range(0, 1));
  const auto blob_of = [&](const Key& key, MemoryRange range) {
    InjectedKey fields;
    const Blob blob = exported(*node.there.registrar, range, key);
    EXPECT_EQ(decode_injected_key(blob.data(), blob.size(), &fields), Status::kOk);
    return fields;
  };
  const InjectedKey first = blob_of(wide, more.range());
  const InjectedKey second = blob_of(narrow, more.range(0, 1));
  std::vector<InjectedKey> lies(6, second);
  lies[0].access |= bits(Access::kRemoteWrite);
  lies[1] = blob_of(short_one, more.range(0, 1));
  lies[1].range = first.range;
  lies[2].nonce = first.nonce;
  lies[2].access = first.access;
  lies[3] = first;
  lies[3].record = second.record;
  lies[4] = first;
  lies[4].record = 0x1000;  // no record is there
  lies[5] = first;
  lies[5].nonce ^= uint64_t{1} << 63;
  Told told;
  ASSERT_EQ(node.put(0, 0, 8, &told), Status::kOk);
  EXPECT_EQ(node.after(10'000), 1u);
  const Marked marked(node.mine);
  for (const InjectedKey& lie : lies) {
    Blob blob{};
    encode_injected_key(lie, blob.data());
    const Key key = imported(*node.here, blob);
    told.status = Status::kOk;
    ASSERT_EQ(node.net->pinned()->put(1, {at(more.data), key.data()},
                                      {at(node.mine.data), node.local.data()}, 100, &told),
              Status::kOk);
    EXPECT_EQ(node.after(10'000), 1u);
    EXPECT_EQ(told.status, Status::kRefused) << &lie - lies.data();
  }
  EXPECT_TRUE(more.is_untouched());
}

// Each bit of a blob, and bytes at random.
TEST(InjectedPinnedKeys, MalformedAreBadArgumentsOrRefused) {
  PinnedNode node({.delay_ns = 1000});
  const Blob good = exported(*node.there.registrar, node.theirs.range(), node.remote_owned);
  Key key{};
  for (size_t len = 0; len <= 2 * good.size(); ++len) {
    if (len == good.size()) continue;
    std::vector<std::byte> cut(len + 1);
    std::memcpy(cut.data(), good.data(), std::min(len, good.size()));
    EXPECT_EQ(node.here->import_key(cut.data(), len, key.data()), Status::kBadArg);
  }
  EXPECT_EQ(node.here->import_key(nullptr, good.size(), key.data()), Status::kBadArg);
  EXPECT_EQ(InjectedKey::load(key.data()).kind, InjectedKey::kNone);
  Told told;
  ASSERT_EQ(node.put(0, 0, 8, &told), Status::kOk);  // first contact
  EXPECT_EQ(node.after(10'000), 1u);
  const Marked marked(node.mine);
  uint64_t state = 1;
  int bad = 0;
  int refused = 0;
  for (size_t bit = 0; bit < 8 * good.size() + 2000; ++bit) {
    Blob blob = good;
    if (bit < 8 * good.size()) {
      blob[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    } else {
      for (int i = 0; i < 4; ++i) {
        state = state * 6364136223846793005 + 1442695040888963407;
        blob[(state >> 33) % blob.size()] = static_cast<std::byte>(state >> 56);
      }
      if (blob == good) continue;
    }
    const Status status = node.here->import_key(blob.data(), blob.size(), key.data());
    if (status != Status::kOk) {
      EXPECT_EQ(status, Status::kBadArg);
      ++bad;
      continue;
    }
    told.times = 0;
    ASSERT_EQ(node.net->pinned()->put(1, {at(node.theirs.data), key.data()},
                                      {at(node.mine.data), node.local.data()}, 100, &told),
              Status::kOk);
    expect_refused(node, told);
    ++refused;
  }
  EXPECT_GT(bad, 100);
  EXPECT_GT(refused, 100);
  // A buffer that is too small for a blob gets the required size.
  Blob blob{};
  size_t len = blob.size() - 1;
  Registrar& there = *node.there.registrar;
  EXPECT_EQ(there.export_key(node.theirs.range(), node.remote_owned.data(), blob.data(), &len),
            Status::kBadArg);
  EXPECT_EQ(len, blob.size());
  EXPECT_EQ(node.unpin_theirs(), UnpinResult::kDone);
  EXPECT_EQ(there.export_key(node.theirs.range(), node.remote_owned.data(), blob.data(), &len),
            Status::kBadArg);
}

}  // namespace
}  // namespace hydrant::testing
