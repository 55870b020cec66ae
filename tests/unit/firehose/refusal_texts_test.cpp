// Each error text of the cache names the request, the limit or cause, and the remedy: a table of all causes
// that a program can meet, and of those that must use the same words.
#include <hydrant/pin_cache.h>

#include "firehose/watch/monitor.hpp"
#include "tests/unit/firehose/pin_cache_test_util.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdio>
#include <set>
#include <string>
#include <vector>

namespace hydrant::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// A domain with a registrar and an arena, and the request that the text must name.
class Scene : public PinCacheTest {
 public:
  void TestBody() override {}
  ~Scene() override {
    for (const hydrant_pin_t& pin : held_) EXPECT_EQ(hydrant_release(pin), GASNET_OK);
    held_.clear();
    TearDown();
  }

  hydrant_domain_options_t options() const {
    hydrant_domain_options_t options = options_for(registrar_);
    options.merge_bytes = 1;
    options.stream_bytes = 1;
    return options;
  }
  void create_with(const hydrant_domain_options_t& options) { create(options); }
  void create_small(uint64_t pages, uint32_t mode = HYDRANT_MODE_REGION, uint64_t regions = 64) {
    hydrant_domain_options_t small = options();
    small.budget_bytes = pages * kPage;
    small.max_regions = regions;
    small.mode = mode;
    create(small);
  }
  void end() { destroy(); }
  void hold(size_t page, size_t pages = 1) {
    held_.push_back(pin(page, pages));
    ASSERT_EQ(hydrant_pin_status(held_.back()), GASNET_OK) << hydrant_error_text();
  }
  // Cached, and without holds.
  void touch(size_t page, size_t pages = 1) {
    ASSERT_EQ(hydrant_release(pin(page, pages)), GASNET_OK) << hydrant_error_text();
  }
  int ask(size_t page, size_t pages = 1, uint32_t access = HYDRANT_LOCAL_WRITE) {
    name(page, pages);
    return take(pin(page, pages, access));
  }
  int take(hydrant_pin_t pin) {
    const int status = hydrant_pin_status(pin);
    if (status == GASNET_OK) held_.push_back(pin);
    return status;
  }
  void name(size_t page, size_t pages) {
    char text[64];
    std::snprintf(text, sizeof text, "[%#zx, +%zu)", static_cast<size_t>(arena_.addr(page)),
                  pages * kPage);
    request_ = text;
  }
  const std::string& request() const { return request_; }
  RecordingRegistrar& registrar() { return registrar_; }
  Arena& arena() { return arena_; }
  hydrant_domain_t domain() const { return domain_; }

 private:
  std::vector<hydrant_pin_t> held_;
  std::string request_;
};

struct Row {
  const char* cause;
  int (*provoke)(Scene&);
  int code;
  std::vector<const char*> words;  // the reporter, the limit or cause, the remedy
};

int create_domain(const hydrant_domain_options_t& options) {
  hydrant_domain_t domain = 0;
  const int code = hydrant_domain_create(&options, &domain);
  if (code == GASNET_OK) hydrant_domain_destroy(domain, HYDRANT_FINI_UNPIN);
  return code;
}

// ---- the request can never be granted ----

const Row kNever[] = {
    {"LargerThanARegion",
     [](Scene& s) {
       hydrant_domain_options_t options = s.options();
       options.max_region_bytes = 4 * kPage;
       s.create_with(options);
       return s.ask(8, 5);
     },
     GASNET_ERR_RESOURCE,
     {"domain test", "16384 bytes", "in pieces", "FIREHOSE_MAX_REGION_SIZE"}},
    {"LargerThanTheBudget",
     [](Scene& s) {
       s.create_small(4);
       return s.ask(8, 5);
     },
     GASNET_ERR_RESOURCE,
     {"domain test", "20480 bytes", "budget of 16384 bytes", "FIREHOSE_BUDGET", "copy"}},
    {"BucketsLargerThanTheBudget",
     [](Scene& s) {
       s.create_small(4, HYDRANT_MODE_PAGE);
       return s.ask(8, 5);
     },
     GASNET_ERR_RESOURCE,
     {"domain test", "20480 bytes", "budget of 16384 bytes", "FIREHOSE_BUDGET", "copy"}},
    {"SeveralLargerThanTheBudget",
     [](Scene& s) {
       s.create_small(4);
       s.name(0, 3);
       const hydrant_range_t ranges[] = {{s.arena().addr(0), 3 * kPage},
                                         {s.arena().addr(9), 3 * kPage}};
       hydrant_pin_t pins[2] = {};
       return hydrant_pin_many(s.domain(), ranges, 2, 0, pins);
     },
     GASNET_ERR_RESOURCE,
     {"domain test", "2 ranges", "24576 bytes", "budget of 16384 bytes", "FIREHOSE_BUDGET"}},
    {"MoreBucketsThanRegions",
     [](Scene& s) {
       s.create_small(64, HYDRANT_MODE_PAGE, 4);
       return s.ask(8, 5);
     },
     GASNET_ERR_RESOURCE,
     {"domain test", "5 buckets", "max_regions = 4", "FIREHOSE_MAX_REGIONS"}},
    {"TooManyVouchedRanges",
     [](Scene& s) {
       s.create_small(64);
       const uintptr_t base = s.arena().addr(0);
       int code = GASNET_OK;
       char text[64];
       size_t i = 0;
       for (; code == GASNET_OK && i <= 65536; ++i) {
         const uintptr_t addr = base + 2 * i * kPage;
         std::snprintf(text, sizeof text, "[%#zx, +4096)", static_cast<size_t>(addr));
         code = hydrant_vouch(s.domain(), reinterpret_cast<void*>(addr), kPage);
       }
       EXPECT_THAT(std::string(hydrant_error_text()), HasSubstr(text));
       return code;
     },
     GASNET_ERR_RESOURCE,
     {"domain test", "65536 separate", "fewer and larger"}},
    {"TooManyDomains",
     [](Scene& s) {
       std::vector<hydrant_domain_t> domains;
       int code = GASNET_OK;
       const hydrant_domain_options_t options = s.options();
       while (code == GASNET_OK && domains.size() < 100) {
         domains.push_back(0);
         code = hydrant_domain_create(&options, &domains.back());
       }
       const std::string text = hydrant_error_text();
       domains.pop_back();
       for (const hydrant_domain_t domain : domains)
         EXPECT_EQ(hydrant_domain_destroy(domain, HYDRANT_FINI_UNPIN), GASNET_OK);
       hydrant_set_error_text(text.c_str());
       return code;
     },
     GASNET_ERR_RESOURCE,
     {"domain", "64 are live", "limit", "destroy one"}},
    {"MonitorServesAllItCan",
     [](Scene& s) {
       const hydrant_monitor_t* monitor = find_monitor();
       hydrant_monitor_client_t client{};
       client.context = &s;
       client.forget = [](void*, uintptr_t, size_t) {};
       client.pinned = [](void*, uintptr_t, size_t) { return 0; };
       std::vector<int> numbers;
       for (int n = monitor->subscribe(&client); n >= 0; n = monitor->subscribe(&client))
         numbers.push_back(n);
       hydrant_domain_options_t options = s.options();
       options.watch = HYDRANT_WATCH_AUTO;
       const int code = create_domain(options);
       for (const int n : numbers) monitor->unsubscribe(n);
       return code;
     },
     GASNET_ERR_RESOURCE,
     {"domain test cannot receive reports", "serves 64", "limit", "destroy one",
      "HYDRANT_WATCH_CLIENT"}},
};

// ---- not now ----

const Row kNotNow[] = {
    {"HeldBudget",
     [](Scene& s) {
       s.create_small(4);
       s.hold(0, 3);
       s.touch(10);
       return s.ask(20, 2);
     },
     GASNET_ERR_NOT_READY,
     {"domain test", "8192 bytes in 1 region,", "of 16384 bytes and 64 regions",
      "12288 and 1 are held", "4096 and 1 are idle", "give back 0 bytes", "release",
      "FIREHOSE_BUDGET"}},
    {"HeldBudgetOfBuckets",
     [](Scene& s) {
       s.create_small(4, HYDRANT_MODE_PAGE);
       s.hold(0, 3);
       s.touch(10);
       return s.ask(20, 2);
     },
     GASNET_ERR_NOT_READY,
     {"domain test", "8192 bytes in 2 regions", "12288 and 3 are held", "4096 and 1 are idle",
      "FIREHOSE_BUDGET"}},
    {"HeldRegions",
     [](Scene& s) {
       s.create_small(64, HYDRANT_MODE_REGION, 2);
       s.hold(0);
       s.hold(10);
       return s.ask(20);
     },
     GASNET_ERR_NOT_READY,
     {"domain test", "and 2 regions", "8192 and 2 are held", "0 and 0 are idle",
      "FIREHOSE_MAX_REGIONS"}},
    {"RegistrarHasLess",
     [](Scene& s) {
       s.create_small(64);
       s.registrar().allow_bytes(4 * kPage);
       int code = GASNET_OK;
       // The budget regrows with time, so that a slow machine may call the registrar once more.
       for (int tries = 0; tries < 100; ++tries) {
         code = s.ask(20, 30);
         if (std::string(hydrant_error_text()).find("had room for") != std::string::npos) break;
       }
       return code;
     },
     GASNET_ERR_NOT_READY,
     {"domain test", "122880 bytes", "registrar test had room for", "262144 bytes", "release",
      "copy"}},
    {"EvictedAndStillCharged",
     [](Scene& s) {
       s.create_small(4);
       s.touch(0, 4);
       s.registrar().answer_unpins(HYDRANT_UNPIN_PENDING);
       return s.ask(20, 2);
     },
     GASNET_ERR_NOT_READY,
     {"domain test", "8192 bytes", "budget of 16384 bytes", "gives back 16384 bytes", "try again",
      "FIREHOSE_BUDGET"}},
    {"StillCharged",
     [](Scene& s) {
       s.create_small(4);
       s.touch(0, 4);
       s.registrar().answer_unpins(HYDRANT_UNPIN_PENDING);
       EXPECT_EQ(hydrant_flush(s.domain()), GASNET_OK);
       return s.ask(20, 2);
     },
     GASNET_ERR_NOT_READY,
     {"domain test", "8192 bytes", "budget of 16384 bytes", "gives back 16384 bytes", "try again",
      "FIREHOSE_BUDGET"}},
    {"BeingRegistered",
     [](Scene& s) {
       s.registrar().offer_async();
       s.create_small(64);
       const auto done = [](void* scene, hydrant_pin_t pin) {
         (void)static_cast<Scene*>(scene)->take(pin);
       };
       EXPECT_EQ(
           hydrant_pin_async(s.domain(), s.arena().page(3), kPage, HYDRANT_LOCAL_WRITE, done, &s),
           GASNET_OK);
       const int code = s.ask(3);
       const std::string text = hydrant_error_text();
       EXPECT_TRUE(s.registrar().complete_async(GASNET_OK));
       EXPECT_EQ(hydrant_poll(s.domain()), 1);
       hydrant_set_error_text(text.c_str());
       return code;
     },
     GASNET_ERR_NOT_READY,
     {"domain test", "being registered by another call", "hydrant_poll()"}},
    {"InvalidatedWhileBeingRegistered",
     [](Scene& s) {
       static Scene* scene = nullptr;
       static decltype(s.registrar().table.pin) plain = nullptr;
       scene = &s;
       plain = s.registrar().table.pin;
       s.registrar().table.pin = [](void* user, uintptr_t addr, size_t len, uint32_t access,
                                    void* key) {
         const int code = plain(user, addr, len, access, key);
         hydrant_invalidate(scene->domain(), reinterpret_cast<void*>(addr), len);
         return code;
       };
       s.create_small(64);
       return s.ask(3);
     },
     GASNET_ERR_NOT_READY,
     {"domain test", "invalidated during each of", "try again"}},
};

// ---- this memory, this right ----

const Row kRefused[] = {
    {"RefusedByTheRegistrar",
     [](Scene& s) {
       s.create_small(64);
       s.registrar().refuse(s.arena().addr(3), kPage, RecordingRegistrar::kAnyAccess);
       return s.ask(3);
     },
     HYDRANT_ERR_REFUSED,
     {"registrar test", "HYDRANT_ERR_REFUSED"}},
    {"RefusedAMomentAgo",
     [](Scene& s) {
       s.create_small(64);
       s.registrar().refuse(s.arena().addr(3), kPage, RecordingRegistrar::kAnyAccess);
       EXPECT_EQ(s.ask(3), HYDRANT_ERR_REFUSED);
       return s.ask(3);
     },
     HYDRANT_ERR_REFUSED,
     {"domain test", "access local_write", "a moment ago", "fewer rights, or copy"}},
    {"RightThatTheRegistrarLacks",
     [](Scene& s) {
       s.registrar().table.supported_access = HYDRANT_LOCAL_WRITE | HYDRANT_REMOTE_READ;
       s.create_small(64);
       return s.ask(3, 1, HYDRANT_REMOTE_ATOMIC);
     },
     HYDRANT_ERR_REFUSED,
     {"domain test", "remote_atomic", "registrar test", "ask for local_write+remote_read"}},
};

// ---- the caller's mistakes ----

const Row kMistakes[] = {
    {"NoBytes",
     [](Scene& s) {
       s.create_small(64);
       return s.take(hydrant_pin(s.domain(), s.arena().page(0), 0, 0));
     },
     GASNET_ERR_BAD_ARG,
     {"0 bytes", "pass a length of 1 or more"}},
    {"RangeThatWraps",
     [](Scene& s) {
       s.create_small(64);
       return s.take(hydrant_pin(s.domain(), s.arena().page(0), SIZE_MAX, 0));
     },
     GASNET_ERR_BAD_ARG,
     {"+18446744073709551615)", "wraps around", "correct it"}},
    {"UnknownRight",
     [](Scene& s) {
       s.create_small(64);
       return s.take(hydrant_pin(s.domain(), s.arena().page(0), 1, 0x100));
     },
     GASNET_ERR_BAD_ARG,
     {"access 0x100", "HYDRANT_ACCESS_ALL", "pass"}},
    {"ZeroPinReleased",
     [](Scene&) { return hydrant_release({}); },
     GASNET_ERR_BAD_ARG,
     {"all-zero pin", "hydrant_pin_status()"}},
    {"NoDomain",
     [](Scene& s) { return s.take(hydrant_pin(0, s.arena().page(0), 1, 0)); },
     GASNET_ERR_NOT_INIT,
     {"not a live domain", "none was created"}},
    {"DestroyedDomain",
     [](Scene& s) {
       s.create_small(64);
       const hydrant_domain_t old = s.domain();
       s.end();
       return s.take(hydrant_pin(old, s.arena().page(0), 1, 0));
     },
     GASNET_ERR_NOT_INIT,
     {"not a live domain", "destroyed"}},
    {"BudgetBelowAGranule",
     [](Scene& s) {
       hydrant_domain_options_t options = s.options();
       options.budget_bytes = 100;
       return create_domain(options);
     },
     GASNET_ERR_BAD_ARG,
     {"options.budget_bytes = 100", "4096 bytes"}},
    {"TooManyRegions",
     [](Scene& s) {
       hydrant_domain_options_t options = s.options();
       options.max_regions = uint64_t{1} << 40;
       return create_domain(options);
     },
     GASNET_ERR_BAD_ARG,
     {"options.max_regions = 1099511627776", "limit", "lower it"}},
    {"UnknownMode",
     [](Scene& s) {
       hydrant_domain_options_t options = s.options();
       options.mode = 77;
       return create_domain(options);
     },
     GASNET_ERR_BAD_ARG,
     {"options.mode = 77", "HYDRANT_MODE_REGION"}},
    {"UnknownRegistrar",
     [](Scene& s) {
       hydrant_domain_options_t options = s.options();
       options.registrar = nullptr;
       options.registrar_name = "nosuch";
       return create_domain(options);
     },
     HYDRANT_ERR_UNSUPPORTED,
     {"'nosuch'", "auto, uring, mlock"}},
    {"PrepinnedTwice",
     [](Scene& s) {
       const hydrant_range_t ranges[] = {{s.arena().addr(0), kPage}, {s.arena().addr(0), kPage}};
       const uint64_t key = 0;
       const void* const keys[] = {&key, &key};
       hydrant_domain_options_t options = s.options();
       options.prepinned = ranges;
       options.prepinned_keys = keys;
       options.prepinned_count = 2;
       s.name(0, 1);
       return create_domain(options);
     },
     GASNET_ERR_BAD_ARG,
     {"prepinned range", "overlaps another", "join the two"}},
};

// ---- no such region ----

const Row kNothing[] = {
    {"TryWithoutAPin",
     [](Scene& s) {
       s.create_small(64);
       return s.take(hydrant_try_pin(s.domain(), s.arena().page(0), 1, 0));
     },
     GASNET_ERR_NOT_READY,
     {"no pinned region covers", "hydrant_pin() registers it"}},
    {"PartWithoutAPin",
     [](Scene& s) {
       s.create_small(64);
       return s.take(hydrant_partial_pin(s.domain(), s.arena().page(0), 1, 0));
     },
     GASNET_ERR_NOT_READY,
     {"nothing of the range is pinned", "hydrant_pin() registers it"}},
};

class RefusalTexts : public ::testing::TestWithParam<Row> {};

TEST_P(RefusalTexts, NamesTheRequestTheLimitAndTheRemedy) {
  const Row& row = GetParam();
  Scene scene;
  hydrant_set_error_text("old");
  EXPECT_EQ(row.provoke(scene), row.code) << hydrant_error_text();
  const std::string text = hydrant_error_text();
  for (const char* word : row.words) EXPECT_THAT(text, HasSubstr(word));
  EXPECT_THAT(text, HasSubstr(scene.request()));
  EXPECT_LT(text.size(), 500u) << "no longer than the room for it: " << text;
}

std::string cause_of(const ::testing::TestParamInfo<Row>& info) { return info.param.cause; }

INSTANTIATE_TEST_SUITE_P(Never, RefusalTexts, ::testing::ValuesIn(kNever), cause_of);
INSTANTIATE_TEST_SUITE_P(NotNow, RefusalTexts, ::testing::ValuesIn(kNotNow), cause_of);
INSTANTIATE_TEST_SUITE_P(Refused, RefusalTexts, ::testing::ValuesIn(kRefused), cause_of);
INSTANTIATE_TEST_SUITE_P(Mistakes, RefusalTexts, ::testing::ValuesIn(kMistakes), cause_of);
INSTANTIATE_TEST_SUITE_P(Nothing, RefusalTexts, ::testing::ValuesIn(kNothing), cause_of);

// The same cause found in two places, and the numbers set aside.
TEST(RefusalTextsByCause, AreTheSame) {
  const auto text_of = [](const char* cause) {
    for (const Row& row : kNotNow) {
      if (std::string(row.cause) != cause) continue;
      Scene scene;
      EXPECT_EQ(row.provoke(scene), row.code);
      std::string text = hydrant_error_text();
      text.replace(text.find(scene.request()), scene.request().size(), "RANGE");
      return text;
    }
    return std::string("no such row");
  };
  EXPECT_EQ(text_of("EvictedAndStillCharged"), text_of("StillCharged"));
}

}  // namespace
}  // namespace hydrant::testing
