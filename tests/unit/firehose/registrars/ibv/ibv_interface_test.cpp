// Domains over the registrar of libfirehose_ibv, through the C functions that its clients call: registrars
// and their ends, dma-bufs, exported keys, and children of a fork.
#include <hydrant/ibv_registrar.h>

#include "tests/fakes/fake_ibverbs.hpp"
#include "tests/support/child_process.hpp"
#include "tests/unit/firehose/registrars/ibv/interface_fixture.hpp"

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

namespace hydrant {
namespace {

using fake_verbs::Call;
using testing::ChildKind;
using testing::IbvInterface;
using testing::kPage;
using testing::run_in_child;
using testing::text_has;

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
  const hydrant_pin_t hit = pin_page(domain, 5, HYDRANT_REMOTE_WRITE);
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
    const hydrant_pin_t pin = pin_page(domain, 0);
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
  hydrant_ibv_options_t options = ibv_options();
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
  const hydrant_pin_t pin = pin_page(second, 0);
  ASSERT_NE(pin.region, nullptr);
  end_domain();
  EXPECT_EQ(hydrant_pin_status(pin_page(second, 1)), HYDRANT_ERR_BROKEN);
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
  const hydrant_pin_t pins[] = {pin_page(one, 0), pin_page(other, 0)};
  ASSERT_TRUE(pins[0].region != nullptr && pins[1].region != nullptr);
  EXPECT_NE(hydrant_ibv_key(pins[0])->lkey, hydrant_ibv_key(pins[1])->lkey);
  EXPECT_EQ(hydrant_release_many(pins, 2), GASNET_OK);
  end_domain();
  EXPECT_EQ(fake_verbs::live().mrs, 1u);
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
  const hydrant_pin_t pin = pin_page(domain, 0);
  ASSERT_NE(pin.region, nullptr);
  copy = *hydrant_ibv_key(pin);
  EXPECT_EQ(hydrant_ibv_deregister_dmabuf(&registrar, &copy), GASNET_ERR_BAD_ARG);
  EXPECT_EQ(fake_verbs::live().mrs, 1u);
  EXPECT_EQ(hydrant_release(pin), GASNET_OK);
}

TEST_F(IbvInterface, KeysTravelBetweenDomains) {
  own_device();
  const hydrant_domain_t domain = domain_over_pd();
  const hydrant_pin_t pin = pin_page(domain, 0, HYDRANT_REMOTE_WRITE);
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
  const hydrant_pin_t pin = pin_page(domain, 0);
  ASSERT_NE(pin.region, nullptr);
  EXPECT_EQ(run_in_child([&]() -> std::string {
              const int status = hydrant_pin_status(pin_page(domain, 0));
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
                    const hydrant_pin_t pin = pin_page(domain, 0);
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
              const int status = hydrant_pin_status(pin_page(domain, 0));
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
