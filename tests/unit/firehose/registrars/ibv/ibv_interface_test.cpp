// Domains over the registrar of libfirehose_ibv, through the C functions that its clients call.
#include <hydrant/ibv_registrar.h>

#include "tests/fakes/fake_ibverbs.hpp"
#include "tests/support/child_process.hpp"

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

namespace hydrant {
namespace {

using fake_verbs::Call;
using testing::become_ordinary_user;
using testing::ChildKind;
using testing::run_in_child;

constexpr size_t kPage = 4096;
constexpr size_t kBytes = 64 * kPage;

bool text_has(const char* part) { return std::strstr(hydrant_error_text(), part) != nullptr; }

class IbvInterface : public ::testing::Test {
 protected:
  void SetUp() override {
    fake_verbs::reset();
    memory_ = static_cast<char*>(
        mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(memory_, MAP_FAILED);
  }
  void TearDown() override {
    for (hydrant_domain_t domain : domains_) hydrant_domain_destroy(domain, HYDRANT_FINI_UNPIN);
    if (pd_ != nullptr) fake_verbs::close(pd_->context, pd_);
    EXPECT_TRUE(fake_verbs::live().none()) << "a verbs object was not destroyed";
    munmap(memory_, kBytes);
  }

  void own_device(const fake_verbs::Device& device = {}) {
    fake_verbs::add_device(device);
    pd_ = fake_verbs::alloc_pd(fake_verbs::open_first());
  }
  static hydrant_domain_options_t domain_options() {
    hydrant_domain_options_t options;
    hydrant_domain_options_init(&options);
    options.watch = HYDRANT_WATCH_CLIENT;
    options.stream_bytes = options.merge_bytes = 1;
    return options;
  }
  hydrant_domain_t create(const hydrant_domain_options_t& options) {
    hydrant_domain_t domain = 0;
    EXPECT_EQ(hydrant_domain_create(&options, &domain), GASNET_OK) << hydrant_error_text();
    domains_.push_back(domain);
    return domain;
  }
  hydrant_domain_t domain_over(const hydrant_registrar_t& registrar) {
    hydrant_domain_options_t options = domain_options();
    options.registrar = &registrar;
    return create(options);
  }
  hydrant_domain_t domain_over_pd(uint32_t flags = 0) {
    hydrant_ibv_options_t options;
    hydrant_ibv_options_init(&options);
    options.flags = flags;
    hydrant_registrar_t registrar;
    EXPECT_EQ(hydrant_ibv_registrar_create(pd_, &options, &registrar), GASNET_OK)
        << hydrant_error_text();
    return domain_over(registrar);
  }
  // Ends the newest domain.
  void end_domain() {
    EXPECT_EQ(hydrant_domain_destroy(domains_.back(), HYDRANT_FINI_UNPIN), GASNET_OK);
    domains_.pop_back();
  }

  char* memory_ = nullptr;
  ibv_pd* pd_ = nullptr;
  std::vector<hydrant_domain_t> domains_;
};

TEST_F(IbvInterface, HitHasTheKeyOfTheFirstRegistration) {
  own_device();
  const hydrant_domain_t domain = domain_over_pd();
  const hydrant_pin_t first = hydrant_pin(domain, memory_, kBytes, HYDRANT_REMOTE_WRITE);
  ASSERT_NE(first.region, nullptr) << hydrant_error_text();
  const hydrant_ibv_key_t key = *hydrant_ibv_key(first);
  EXPECT_EQ(key.mr->pd, pd_);
  EXPECT_EQ(key.lkey, fake_verbs::last_registration().lkey);
  EXPECT_EQ(key.rkey, fake_verbs::last_registration().rkey);
  EXPECT_EQ(hydrant_release(first), GASNET_OK);
  const hydrant_pin_t hit = hydrant_pin(domain, memory_ + 5 * kPage, kPage, HYDRANT_REMOTE_WRITE);
  EXPECT_EQ(hydrant_ibv_key(hit)->rkey, key.rkey);
  EXPECT_EQ(fake_verbs::calls(Call::kRegMr), 1u);
  EXPECT_EQ(hydrant_release(hit), GASNET_OK);
  end_domain();
  EXPECT_EQ(fake_verbs::live().mrs, 0u);
  EXPECT_EQ(fake_verbs::live().pds, 1u) << "the protection domain is the client's";
}

TEST_F(IbvInterface, DomainNamesTheRegistrarAndItsDevice) {
  fake_verbs::add_device({.name = "fake0"});
  fake_verbs::add_device({.name = "fake1"});
  hydrant_domain_options_t options = domain_options();
  for (const char* name : {"ibv", "ibv:fake1"}) {
    options.registrar_name = name;
    const hydrant_domain_t domain = create(options);
    EXPECT_STREQ(hydrant_registrar_name(domain), "ibv");
    const hydrant_pin_t pin = hydrant_pin(domain, memory_, kPage, HYDRANT_LOCAL_WRITE);
    ASSERT_NE(pin.region, nullptr);
    const bool is_second = std::strchr(name, ':') != nullptr;
    EXPECT_STREQ(ibv_get_device_name(hydrant_ibv_key(pin)->mr->context->device),
                 is_second ? "fake1" : "fake0");
    EXPECT_EQ(hydrant_release(pin), GASNET_OK);
    end_domain();
    EXPECT_TRUE(fake_verbs::live().none()) << "the domain ends its device";
  }
  hydrant_domain_t domain = 0;
  options.registrar_name = "ibv:mlx5_9";
  EXPECT_EQ(hydrant_domain_create(&options, &domain), HYDRANT_ERR_UNSUPPORTED);
  EXPECT_TRUE(text_has("no verbs device named mlx5_9")) << hydrant_error_text();
}

TEST_F(IbvInterface, FailedCreationOfANamedDomainClosesTheDevice) {
  fake_verbs::add_device({});
  hydrant_domain_options_t options = domain_options();
  options.registrar_name = "ibv";
  options.bucket_bytes = 3;
  options.mode = HYDRANT_MODE_PAGE;
  hydrant_domain_t domain = 0;
  EXPECT_EQ(hydrant_domain_create(&options, &domain), GASNET_ERR_BAD_ARG);
  EXPECT_TRUE(fake_verbs::live().none());
}

TEST_F(IbvInterface, InvalidArgumentsAreReportedWithAText) {
  own_device();
  hydrant_registrar_t registrar{};
  registrar.key_bytes = 77;
  EXPECT_EQ(hydrant_ibv_registrar_create(nullptr, nullptr, &registrar), GASNET_ERR_BAD_ARG);
  EXPECT_TRUE(text_has("protection domain")) << hydrant_error_text();
  EXPECT_EQ(hydrant_ibv_registrar_create(pd_, nullptr, nullptr), GASNET_ERR_BAD_ARG);
  hydrant_ibv_options_t options;
  hydrant_ibv_options_init(&options);
  options.flags = 1u << 20;
  EXPECT_EQ(hydrant_ibv_registrar_create(pd_, &options, &registrar), GASNET_ERR_BAD_ARG);
  EXPECT_TRUE(text_has("unknown bits")) << hydrant_error_text();
  options.size = 0;
  EXPECT_EQ(hydrant_ibv_registrar_create(pd_, &options, &registrar), GASNET_ERR_BAD_ARG);
  EXPECT_TRUE(text_has("hydrant_ibv_options_init")) << hydrant_error_text();
  struct Later {
    hydrant_ibv_options_t known;
    uint64_t unknown;
  } later = {};
  hydrant_ibv_options_init(&later.known);
  later.known.size = sizeof later;
  later.unknown = 1;
  EXPECT_EQ(hydrant_ibv_registrar_create(pd_, &later.known, &registrar), HYDRANT_ERR_UNSUPPORTED);
  EXPECT_EQ(registrar.key_bytes, 77u) << "unchanged after failures";
  later.unknown = 0;
  ASSERT_EQ(hydrant_ibv_registrar_create(pd_, &later.known, &registrar), GASNET_OK);
  hydrant_ibv_registrar_destroy(&registrar);
}

TEST_F(IbvInterface, RegistrarOfAFailedDomainStaysTheClients) {
  own_device();
  hydrant_registrar_t registrar;
  ASSERT_EQ(hydrant_ibv_registrar_create(pd_, nullptr, &registrar), GASNET_OK);
  hydrant_domain_options_t options = domain_options();
  options.registrar = &registrar;
  options.address_kind = HYDRANT_ADDRESS_DEVICE;
  hydrant_domain_t domain = 0;
  EXPECT_EQ(hydrant_domain_create(&options, &domain), HYDRANT_ERR_UNSUPPORTED);
  EXPECT_EQ(hydrant_ibv_pd(&registrar), pd_);
  hydrant_ibv_registrar_destroy(&registrar);
  EXPECT_EQ(hydrant_ibv_pd(&registrar), nullptr);
  hydrant_ibv_registrar_destroy(&registrar);
  hydrant_ibv_registrar_destroy(nullptr);
}

TEST_F(IbvInterface, CopyOfADestroyedRegistrarIsRecognised) {
  own_device();
  hydrant_registrar_t registrar;
  ASSERT_EQ(hydrant_ibv_registrar_create(pd_, nullptr, &registrar), GASNET_OK);
  domain_over(registrar);
  EXPECT_EQ(hydrant_ibv_pd(&registrar), pd_);
  end_domain();
  EXPECT_EQ(hydrant_ibv_pd(&registrar), nullptr);
  // Has the place of the first one.
  hydrant_registrar_t next;
  ASSERT_EQ(hydrant_ibv_registrar_create(pd_, nullptr, &next), GASNET_OK);
  EXPECT_EQ(hydrant_ibv_pd(&registrar), nullptr);
  hydrant_ibv_key_t key = {};
  EXPECT_EQ(hydrant_ibv_register_dmabuf(&registrar, 0, 0, 0x100000, kPage, 0, &key),
            GASNET_ERR_BAD_ARG);
  EXPECT_EQ(registrar.pin(registrar.user, 0x100000, kPage, 0, &key), HYDRANT_ERR_BROKEN);
  EXPECT_TRUE(text_has("was destroyed")) << hydrant_error_text();
  hydrant_registrar_t copy = registrar;
  hydrant_ibv_registrar_destroy(&copy);
  EXPECT_EQ(copy.pin, nullptr);
  EXPECT_EQ(hydrant_ibv_pd(&next), pd_) << "another registrar was destroyed";
  hydrant_ibv_registrar_destroy(&next);
}

// A mistake of the client's: the first domain that ends destroys the registrar.
TEST_F(IbvInterface, SecondDomainOfARegistrarFailsOnceTheFirstHasEnded) {
  own_device();
  hydrant_registrar_t registrar;
  ASSERT_EQ(hydrant_ibv_registrar_create(pd_, nullptr, &registrar), GASNET_OK);
  const hydrant_domain_t second = domain_over(registrar);
  domain_over(registrar);
  const hydrant_pin_t pin = hydrant_pin(second, memory_, kPage, HYDRANT_LOCAL_WRITE);
  ASSERT_NE(pin.region, nullptr);
  end_domain();
  EXPECT_EQ(hydrant_pin_status(hydrant_pin(second, memory_ + kPage, kPage, HYDRANT_LOCAL_WRITE)),
            HYDRANT_ERR_BROKEN);
  EXPECT_TRUE(text_has("make one for each domain")) << hydrant_error_text();
  EXPECT_EQ(hydrant_release(pin), GASNET_OK);
  end_domain();
  EXPECT_EQ(fake_verbs::live().mrs, 1u) << "deregistered by a registrar that was destroyed";
  fake_verbs::drop_registrations();
}

TEST_F(IbvInterface, ProcessHasAtMost256Registrars) {
  own_device();
  std::vector<hydrant_registrar_t> registrars(257);
  for (size_t i = 0; i < 256; ++i)
    ASSERT_EQ(hydrant_ibv_registrar_create(pd_, nullptr, &registrars[i]), GASNET_OK) << i;
  EXPECT_EQ(hydrant_ibv_registrar_create(pd_, nullptr, &registrars[256]), GASNET_ERR_RESOURCE);
  EXPECT_TRUE(text_has("256 are live")) << hydrant_error_text();
  EXPECT_EQ(registrars[256].pin, nullptr);
  for (hydrant_registrar_t& registrar : registrars) hydrant_ibv_registrar_destroy(&registrar);
}

TEST_F(IbvInterface, SeveralDomainsShareAProtectionDomain) {
  own_device();
  const hydrant_domain_t one = domain_over_pd();
  const hydrant_domain_t other = domain_over_pd();
  const hydrant_pin_t pins[] = {hydrant_pin(one, memory_, kPage, HYDRANT_LOCAL_WRITE),
                                hydrant_pin(other, memory_, kPage, HYDRANT_LOCAL_WRITE)};
  ASSERT_TRUE(pins[0].region != nullptr && pins[1].region != nullptr);
  EXPECT_NE(hydrant_ibv_key(pins[0])->lkey, hydrant_ibv_key(pins[1])->lkey);
  EXPECT_EQ(hydrant_release_many(pins, 2), GASNET_OK);
  end_domain();
  EXPECT_EQ(fake_verbs::live().mrs, 1u);
}

TEST_F(IbvInterface, OptionsAreFlagsOfEachRegistration) {
  own_device({.odp = true});
  const struct {
    uint32_t option;
    unsigned flag;
  } cases[] = {{0, 0},
               {HYDRANT_IBV_RELAXED_ORDERING, IBV_ACCESS_RELAXED_ORDERING},
               {HYDRANT_IBV_ON_DEMAND, IBV_ACCESS_ON_DEMAND}};
  for (const auto& one : cases) {
    const hydrant_domain_t domain = domain_over_pd(one.option);
    const hydrant_pin_t pin = hydrant_pin(domain, memory_, kPage, HYDRANT_REMOTE_READ);
    ASSERT_NE(pin.region, nullptr) << hydrant_error_text();
    EXPECT_EQ(fake_verbs::last_registration().access, one.flag | IBV_ACCESS_REMOTE_READ);
    EXPECT_EQ(hydrant_release(pin), GASNET_OK);
    end_domain();
  }
}

TEST_F(IbvInterface, HugePagesAreRegisteredWhole) {
  own_device();
  hydrant_ibv_options_t options;
  hydrant_ibv_options_init(&options);
  options.flags = HYDRANT_IBV_HUGE_PAGES;
  hydrant_registrar_t registrar;
  const int status = hydrant_ibv_registrar_create(pd_, &options, &registrar);
  if (status == HYDRANT_ERR_UNSUPPORTED) GTEST_SKIP() << hydrant_error_text();
  ASSERT_EQ(status, GASNET_OK);
  const size_t granule = registrar.granule_bytes;
  ASSERT_GT(granule, kPage);
  const hydrant_domain_t domain = domain_over(registrar);
  // The fake device registers any addresses.
  const auto* const inside = reinterpret_cast<const char*>(64 * granule + kPage);
  const hydrant_pin_t pin = hydrant_pin(domain, inside, kPage, HYDRANT_LOCAL_READ);
  ASSERT_NE(pin.region, nullptr) << hydrant_error_text();
  EXPECT_EQ(fake_verbs::last_registration().addr, 64 * granule);
  EXPECT_EQ(fake_verbs::last_registration().len, granule);
  EXPECT_EQ(fake_verbs::last_registration().access, unsigned{IBV_ACCESS_HUGETLB});
  EXPECT_EQ(hydrant_release(pin), GASNET_OK);
}

TEST_F(IbvInterface, OnDemandPagingNeedsADeviceThatHasIt) {
  own_device();
  hydrant_ibv_options_t options;
  hydrant_ibv_options_init(&options);
  options.flags = HYDRANT_IBV_ON_DEMAND;
  hydrant_registrar_t registrar;
  EXPECT_EQ(hydrant_ibv_registrar_create(pd_, &options, &registrar), HYDRANT_ERR_UNSUPPORTED);
  EXPECT_TRUE(text_has("on-demand paging")) << hydrant_error_text();
}

TEST_F(IbvInterface, RightsAreMappedBothWays) {
  EXPECT_EQ(hydrant_ibv_access_flags(HYDRANT_LOCAL_READ), 0u);
  EXPECT_EQ(hydrant_ibv_access_flags(HYDRANT_REMOTE_WRITE),
            unsigned{IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE});
  for (uint32_t access = 0; access <= HYDRANT_ACCESS_ALL; ++access) {
    const uint32_t rights = hydrant_ibv_access_rights(hydrant_ibv_access_flags(access));
    EXPECT_EQ(rights & access, access);
    EXPECT_EQ(rights & ~(access | HYDRANT_LOCAL_WRITE), 0u);
  }
}

TEST_F(IbvInterface, RightThatTheDeviceLacksIsRefused) {
  own_device({.atomics = false});
  const hydrant_domain_t domain = domain_over_pd();
  EXPECT_EQ(hydrant_pin_status(hydrant_pin(domain, memory_, kPage, HYDRANT_REMOTE_ATOMIC)),
            HYDRANT_ERR_REFUSED);
}

TEST_F(IbvInterface, FailureOfAnyRegistrationLosesNothing) {
  own_device();
  const hydrant_domain_t domain = domain_over_pd();
  for (const int error : {ENOMEM, EAGAIN, EFAULT, EPERM, EIO}) {
    for (uint64_t nth = 1; nth <= 4; ++nth) {
      fake_verbs::fail_call(Call::kRegMr, error, nth);
      for (size_t i = 0; i < 8; ++i) {
        const hydrant_pin_t pin =
            hydrant_pin(domain, memory_ + i * kPage, kPage, HYDRANT_LOCAL_WRITE);
        if (pin.region != nullptr) {
          EXPECT_EQ(hydrant_release(pin), GASNET_OK);
        } else {
          EXPECT_NE(std::string(hydrant_error_text()), "");
        }
      }
      // Also forgets refusals.
      ASSERT_EQ(hydrant_invalidate(domain, memory_, kBytes), GASNET_OK);
      ASSERT_GE(hydrant_poll(domain), 0);
      EXPECT_EQ(fake_verbs::live().mrs, 0u) << "errno " << error << ", call " << nth;
    }
  }
}

TEST_F(IbvInterface, DomainThatIsFullEvicts) {
  own_device({.max_mr = 4});
  const hydrant_domain_t domain = domain_over_pd();
  for (size_t i = 0; i < 32; ++i) {
    const hydrant_pin_t pin = hydrant_pin(domain, memory_ + i * kPage, kPage, HYDRANT_LOCAL_WRITE);
    ASSERT_NE(pin.region, nullptr) << hydrant_error_text();
    EXPECT_EQ(hydrant_release(pin), GASNET_OK);
    EXPECT_LE(fake_verbs::live().mrs, 4u);
  }
}

TEST_F(IbvInterface, ReservedBytesAreNotOfTheBudget) {
  own_device();
  hydrant_registrar_t all;
  ASSERT_EQ(hydrant_ibv_registrar_create(pd_, nullptr, &all), GASNET_OK);
  hydrant_ibv_options_t options;
  hydrant_ibv_options_init(&options);
  options.reserve_bytes = 1 << 20;
  hydrant_registrar_t rest;
  ASSERT_EQ(hydrant_ibv_registrar_create(pd_, &options, &rest), GASNET_OK);
  if (all.max_charge_bytes != UINT64_MAX) {
    EXPECT_EQ(rest.max_charge_bytes + (1 << 20), all.max_charge_bytes);
  } else {
    EXPECT_EQ(rest.max_charge_bytes, UINT64_MAX) << "no limit has no parts";
  }
  hydrant_ibv_registrar_destroy(&all);
  hydrant_ibv_registrar_destroy(&rest);
}

// A larger budget than the limit without the reserve would only be refused by the kernel.
TEST_F(IbvInterface, RefusedPinNamesTheLimitThatGivesTheBudget) {
  own_device();
  struct Case {
    uint64_t memlock, reserve;
    const char* limit;
  };
  for (const Case& c : {Case{kBytes, kBytes / 2, "max_charge_bytes = 131072 of registrar ibv"},
                        Case{kBytes, kBytes, "max_charge_bytes = 1 of registrar ibv"},
                        Case{kBytes, 0, "RLIMIT_MEMLOCK, which is 262144 bytes"},
                        Case{0, 0, "RLIMIT_MEMLOCK, which is 0 bytes"}}) {
    const std::string result = run_in_child([&]() -> std::string {
      if (std::string why = become_ordinary_user(c.memlock); !why.empty()) return "SKIP: " + why;
      hydrant_ibv_options_t options;
      hydrant_ibv_options_init(&options);
      options.reserve_bytes = c.reserve;
      hydrant_registrar_t registrar;
      if (hydrant_ibv_registrar_create(pd_, &options, &registrar) != GASNET_OK)
        return hydrant_error_text();
      const hydrant_domain_t domain = domain_over(registrar);
      if (hydrant_pin(domain, memory_, kBytes, HYDRANT_LOCAL_WRITE).region != nullptr)
        return "not refused";
      return text_has(c.limit) && !text_has("FIREHOSE_BUDGET") ? "" : hydrant_error_text();
    });
    if (result.rfind("SKIP: ", 0) == 0) GTEST_SKIP() << result.substr(6);
    EXPECT_EQ(result, "") << c.limit;
  }
}

// 0 would be no limit.
TEST_F(IbvInterface, ReserveOfTheWholeLimitLeavesABudgetOfOnePage) {
  own_device();
  const std::string result = run_in_child([&]() -> std::string {
    constexpr uint64_t kMemlock = 8 << 20;
    if (std::string why = become_ordinary_user(kMemlock); !why.empty()) return "SKIP: " + why;
    for (const uint64_t reserve : {kMemlock, 2 * kMemlock}) {
      hydrant_ibv_options_t options;
      hydrant_ibv_options_init(&options);
      options.reserve_bytes = reserve;
      hydrant_registrar_t registrar;
      if (hydrant_ibv_registrar_create(pd_, &options, &registrar) != GASNET_OK)
        return hydrant_error_text();
      hydrant_stats_t stats{};
      stats.size = sizeof stats;
      if (hydrant_get_stats(domain_over(registrar), &stats) != GASNET_OK)
        return hydrant_error_text();
      if (stats.budget_bytes != kPage) return std::to_string(stats.budget_bytes) + " bytes";
      end_domain();
    }
    return "";
  });
  if (result.rfind("SKIP: ", 0) == 0) GTEST_SKIP() << result.substr(6);
  EXPECT_EQ(result, "");
}

// The device faults pages in: nothing is charged to the limit.
TEST_F(IbvInterface, OnDemandPagingHasABudgetBeyondTheMemlockLimit) {
  own_device({.odp = true});
  const std::string result = run_in_child([&]() -> std::string {
    if (std::string why = become_ordinary_user(16 * kPage); !why.empty()) return "SKIP: " + why;
    const hydrant_domain_t domain = domain_over_pd(HYDRANT_IBV_ON_DEMAND);
    const hydrant_pin_t pin = hydrant_pin(domain, memory_, kBytes, HYDRANT_LOCAL_WRITE);
    return pin.region != nullptr ? "" : hydrant_error_text();
  });
  if (result.rfind("SKIP: ", 0) == 0) GTEST_SKIP() << result.substr(6);
  EXPECT_EQ(result, "");
}

TEST_F(IbvInterface, DmabufIsRegisteredBesideTheCache) {
  own_device();
  hydrant_registrar_t registrar;
  ASSERT_EQ(hydrant_ibv_registrar_create(pd_, nullptr, &registrar), GASNET_OK);
  const int fd = memfd_create("stands for a dma-buf", MFD_CLOEXEC);
  hydrant_ibv_key_t key = {};
  ASSERT_EQ(
      hydrant_ibv_register_dmabuf(&registrar, fd, 0, 0x100000, kPage, HYDRANT_REMOTE_READ, &key),
      GASNET_OK)
      << hydrant_error_text();
  EXPECT_EQ(fake_verbs::last_registration().addr, 0x100000u);
  EXPECT_EQ(hydrant_ibv_deregister_dmabuf(&registrar, &key), GASNET_OK);
  EXPECT_EQ(key.mr, nullptr);
  EXPECT_EQ(hydrant_ibv_deregister_dmabuf(&registrar, &key), GASNET_ERR_BAD_ARG);
  EXPECT_EQ(hydrant_ibv_register_dmabuf(&registrar, fd, 0, 0x100000, 1, 0, &key),
            GASNET_ERR_BAD_ARG);
  EXPECT_EQ(hydrant_ibv_register_dmabuf(&registrar, fd, 0, 0x100000, kPage, 64, &key),
            GASNET_ERR_BAD_ARG);
  const hydrant_registrar_t another{};
  EXPECT_EQ(hydrant_ibv_register_dmabuf(&another, fd, 0, 0x100000, kPage, 0, &key),
            GASNET_ERR_BAD_ARG);
  close(fd);
  hydrant_ibv_registrar_destroy(&registrar);
}

TEST_F(IbvInterface, OnlyADmabufsOwnKeyDeregistersItAndOnce) {
  own_device();
  hydrant_registrar_t registrar;
  hydrant_registrar_t other;
  ASSERT_EQ(hydrant_ibv_registrar_create(pd_, nullptr, &registrar), GASNET_OK);
  ASSERT_EQ(hydrant_ibv_registrar_create(pd_, nullptr, &other), GASNET_OK);
  hydrant_ibv_key_t key = {};
  const auto make = [&] {
    return hydrant_ibv_register_dmabuf(&registrar, 0, 0, 0x100000, kPage, 0, &key);
  };
  ASSERT_EQ(make(), GASNET_OK) << hydrant_error_text();
  hydrant_ibv_key_t copy = key;
  EXPECT_EQ(hydrant_ibv_deregister_dmabuf(&other, &copy), GASNET_ERR_BAD_ARG);
  EXPECT_TRUE(text_has("none of a dma-buf")) << hydrant_error_text();
  EXPECT_EQ(run_in_child([&]() -> std::string {
              const uint64_t calls = fake_verbs::calls(Call::kDeregMr);
              hydrant_ibv_key_t of_parent = key;
              if (hydrant_ibv_deregister_dmabuf(&registrar, &of_parent) != GASNET_ERR_BAD_ARG)
                return "the parent's dma-buf was deregistered";
              return fake_verbs::calls(Call::kDeregMr) == calls ? "" : "verbs were called";
            }),
            "");
  fake_verbs::fail_call(Call::kDeregMr, EIO);
  EXPECT_EQ(hydrant_ibv_deregister_dmabuf(&registrar, &key), HYDRANT_ERR_BROKEN);
  EXPECT_EQ(hydrant_ibv_deregister_dmabuf(&registrar, &key), GASNET_OK) << "it may be tried again";
  EXPECT_EQ(hydrant_ibv_deregister_dmabuf(&registrar, &copy), GASNET_ERR_BAD_ARG);
  // The new registration may have the address of the old one.
  ASSERT_EQ(make(), GASNET_OK);
  copy.mr = key.mr;
  EXPECT_EQ(hydrant_ibv_deregister_dmabuf(&registrar, &copy), GASNET_ERR_BAD_ARG);
  EXPECT_EQ(hydrant_ibv_deregister_dmabuf(&registrar, &key), GASNET_OK);
  hydrant_ibv_registrar_destroy(&other);

  const hydrant_domain_t domain = domain_over(registrar);
  const hydrant_pin_t pin = hydrant_pin(domain, memory_, kPage, HYDRANT_LOCAL_WRITE);
  ASSERT_NE(pin.region, nullptr);
  copy = *hydrant_ibv_key(pin);
  EXPECT_EQ(hydrant_ibv_deregister_dmabuf(&registrar, &copy), GASNET_ERR_BAD_ARG);
  EXPECT_EQ(fake_verbs::live().mrs, 1u);
  EXPECT_EQ(hydrant_release(pin), GASNET_OK);
}

TEST_F(IbvInterface, KeysTravelBetweenDomains) {
  own_device();
  const hydrant_domain_t domain = domain_over_pd();
  const hydrant_pin_t pin = hydrant_pin(domain, memory_, kPage, HYDRANT_REMOTE_WRITE);
  ASSERT_NE(pin.region, nullptr);
  unsigned char blob[64];
  size_t len = 4;
  EXPECT_EQ(hydrant_export_key(pin, blob, &len), GASNET_ERR_BAD_ARG);
  ASSERT_LE(len, sizeof blob);
  ASSERT_EQ(hydrant_export_key(pin, blob, &len), GASNET_OK) << hydrant_error_text();
  hydrant_ibv_key_t imported = {};
  ASSERT_EQ(hydrant_import_key(domain, blob, len, &imported), GASNET_OK) << hydrant_error_text();
  EXPECT_EQ(imported.rkey, hydrant_ibv_key(pin)->rkey);
  EXPECT_EQ(imported.mr, nullptr);
  EXPECT_EQ(hydrant_release(pin), GASNET_OK);
}

TEST_F(IbvInterface, ChildOfAForkCannotPinInTheParentsProtectionDomain) {
  own_device();
  const hydrant_domain_t domain = domain_over_pd();
  const hydrant_pin_t pin = hydrant_pin(domain, memory_, kPage, HYDRANT_LOCAL_WRITE);
  ASSERT_NE(pin.region, nullptr);
  EXPECT_EQ(run_in_child([&]() -> std::string {
              const int status =
                  hydrant_pin_status(hydrant_pin(domain, memory_, kPage, HYDRANT_LOCAL_WRITE));
              if (status == HYDRANT_ERR_BROKEN && text_has("forked this one")) return "";
              return std::string(hydrant_status_name(status)) + ": " + hydrant_error_text();
            }),
            "");
  EXPECT_EQ(hydrant_release(pin), GASNET_OK);
}

// The cache forgets in the child what domains own, and knows no other registrar.
TEST_F(IbvInterface, ChildOfAForkBeforeAnyDomainLeavesTheParentsDeviceAlone) {
  fake_verbs::add_device({});
  hydrant_registrar_t registrar;
  ASSERT_EQ(hydrant_ibv_registrar_open(nullptr, nullptr, &registrar), GASNET_OK);
  const ibv_pd* const of_parent = hydrant_ibv_pd(&registrar);
  ASSERT_NE(of_parent, nullptr);
  for (const ChildKind kind : {ChildKind::kFork, ChildKind::kRawClone}) {
    EXPECT_EQ(run_in_child(
                  [&]() -> std::string {
                    hydrant_ibv_registrar_destroy(&registrar);
                    const uint64_t calls =
                        fake_verbs::calls(Call::kDeallocPd) + fake_verbs::calls(Call::kCloseDevice);
                    return calls == 0 ? "" : "the end in the child ended the parent's objects";
                  },
                  kind),
              "");
    EXPECT_EQ(run_in_child(
                  [&]() -> std::string {
                    if (hydrant_ibv_pd(&registrar) != nullptr) return "has a protection domain";
                    const hydrant_domain_t domain = domain_over(registrar);
                    const hydrant_pin_t pin =
                        hydrant_pin(domain, memory_, kPage, HYDRANT_LOCAL_WRITE);
                    if (pin.region == nullptr) return hydrant_error_text();
                    const ibv_pd* const used = hydrant_ibv_key(pin)->mr->pd;
                    if (used == of_parent) return "registered in the parent's protection domain";
                    return used == hydrant_ibv_pd(&registrar) ? "" : "another protection domain";
                  },
                  kind),
              "");
  }
  EXPECT_EQ(hydrant_ibv_pd(&registrar), of_parent);
  hydrant_ibv_registrar_destroy(&registrar);
}

TEST_F(IbvInterface, ChildOfAForkBeforeAnyDomainUsesNoProtectionDomainOfTheParent) {
  own_device();
  hydrant_registrar_t registrar;
  ASSERT_EQ(hydrant_ibv_registrar_create(pd_, nullptr, &registrar), GASNET_OK);
  EXPECT_EQ(run_in_child([&]() -> std::string {
              if (hydrant_ibv_pd(&registrar) != nullptr) return "has a protection domain";
              hydrant_ibv_key_t key = {};
              if (hydrant_ibv_register_dmabuf(&registrar, 0, 0, 0x100000, kPage, 0, &key) !=
                  HYDRANT_ERR_BROKEN)
                return std::string("dma-buf: ") + hydrant_error_text();
              const hydrant_domain_t domain = domain_over(registrar);
              const int status =
                  hydrant_pin_status(hydrant_pin(domain, memory_, kPage, HYDRANT_LOCAL_WRITE));
              if (status != HYDRANT_ERR_BROKEN) return hydrant_status_name(status);
              return fake_verbs::live().mrs == 0 ? "" : "registered";
            }),
            "");
  hydrant_ibv_registrar_destroy(&registrar);
}

// A fork protection that is active when the registrar is made.
TEST_F(IbvInterface, ForkProtectionIsUnpinnedBeforeTheRelease) {
  own_device();
  hydrant_registrar_t registrar;
  ASSERT_EQ(hydrant_ibv_registrar_create(pd_, nullptr, &registrar), GASNET_OK);
  EXPECT_EQ(registrar.flags, 0u);
  hydrant_ibv_registrar_destroy(&registrar);
  fake_verbs::set_fork_status(IBV_FORK_ENABLED);
  ASSERT_EQ(hydrant_ibv_registrar_create(pd_, nullptr, &registrar), GASNET_OK);
  EXPECT_EQ(registrar.flags, HYDRANT_REGISTRAR_UNPIN_BEFORE_RELEASE);
  hydrant_ibv_registrar_destroy(&registrar);
}

}  // namespace
}  // namespace hydrant
