// Choices of a rank for its own queues and registrations: interrupt vectors, domains without locks, and the
// order of writes.
#include "tests/fakes/fake_ibverbs.hpp"
#include "tests/support/fake_bootstrap.hpp"
#include "tests/unit/rdma/ibv/ibv_world.hpp"
#include "tests/unit/rdma/ibv/verbs_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <cerrno>
#include <memory>

namespace hydrant {
namespace {

using testing::IbvWorld;

class IbvOwnQueues : public testing::VerbsTest {
 protected:
  static std::unique_ptr<IbvTransport> open(testing::FakeBootstrap& bootstrap,
                                            const IbvTransport::Options& options) {
    std::unique_ptr<IbvTransport> transport;
    EXPECT_EQ(IbvTransport::open(bootstrap, options, &transport), Status::kOk) << last_error_text();
    return transport;
  }
};

TEST_F(IbvOwnQueues, RanksOfANodeUseDifferentCompletionVectors) {
  fake_verbs::reset();
  fake_verbs::add_device({.completion_vectors = 3});
  for (const uint32_t node_rank : {0u, 1u, 2u, 4u}) {
    testing::FakeBootstrap bootstrap;
    bootstrap.stands = {
        .rank = node_rank, .size = 5, .node_ranks = {0, 1, 2, 3, 4}, .node_rank = node_rank};
    const auto transport = open(bootstrap, IbvWorld::single());
    // The queue of operations and messages, and that of handshakes.
    EXPECT_THAT(fake_verbs::completion_vectors(),
                ::testing::ElementsAre(node_rank % 3, node_rank % 3));
  }
}

// ---- domains without locks ----

// Thread domains of a device's library. A parent domain is one more protection domain of the stand-in.
struct ThreadDomainCalls {
  ibv_td domain = {};
  int alive = 0;
  int made = 0;
  bool refuses_parents = false;
  const ibv_pd* parent = nullptr;
};
ThreadDomainCalls thread_domain_calls;

ibv_td* alloc_thread_domain(ibv_context* context, ibv_td_init_attr*) {
  thread_domain_calls.domain.context = context;
  ++thread_domain_calls.alive;
  ++thread_domain_calls.made;
  return &thread_domain_calls.domain;
}
int dealloc_thread_domain(ibv_td*) {
  --thread_domain_calls.alive;
  return 0;
}
ibv_pd* alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* attributes) {
  EXPECT_EQ(attributes->td, &thread_domain_calls.domain);
  if (thread_domain_calls.refuses_parents) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  ibv_pd* const made = ibv_alloc_pd(context);
  thread_domain_calls.parent = made;
  return made;
}

class IbvThreadDomains : public testing::VerbsTest {
 protected:
  void SetUp() override {
    VerbsTest::SetUp();
    thread_domain_calls = {};
    fake_verbs::reset();
    fake_verbs::add_device({.ports = 2});
    ASSERT_EQ(ibv::open_ports("fake0:1,fake0:2", ibv::kMaxRails, &ports_), Status::kOk)
        << last_error_text();
    ASSERT_EQ(ports_.count, 2u);
    plain_ = ports_.all[0].device.pd;
  }
  void TearDown() override {
    domains_.close(&ports_);
    EXPECT_EQ(thread_domain_calls.alive, 0);
    for (uint32_t i = 0; i < ports_.count; ++i) EXPECT_EQ(ports_.all[i].device.pd, plain_);
    EXPECT_EQ(fake_verbs::live().pds, 1u);
    close_ports(ports_);
    VerbsTest::TearDown();
  }
  void give_device_thread_domains() {
    verbs_context* const extended = verbs_get_ctx(ports_.all[0].device.context);
    extended->alloc_td = alloc_thread_domain;
    extended->dealloc_td = dealloc_thread_domain;
    extended->alloc_parent_domain = alloc_parent_domain;
  }

  ibv::Ports ports_;
  ibv::ThreadDomains domains_;
  ibv_pd* plain_ = nullptr;
};

TEST_F(IbvThreadDomains, TakeThePlaceOfTheDomainsOfAllPortsOfADevice) {
  give_device_thread_domains();
  domains_.open(&ports_);
  EXPECT_EQ(thread_domain_calls.made, 1);
  EXPECT_NE(ports_.all[0].device.pd, plain_);
  for (uint32_t i = 0; i < ports_.count; ++i)
    EXPECT_EQ(ports_.all[i].device.pd, thread_domain_calls.parent);
}

TEST_F(IbvThreadDomains, DeviceWithoutThemKeepsItsDomain) {
  domains_.open(&ports_);
  EXPECT_EQ(ports_.all[0].device.pd, plain_);
}

TEST_F(IbvThreadDomains, DeviceThatRefusesTheParentKeepsItsDomain) {
  give_device_thread_domains();
  thread_domain_calls.refuses_parents = true;
  domains_.open(&ports_);
  EXPECT_EQ(thread_domain_calls.alive, 0);
  EXPECT_EQ(ports_.all[0].device.pd, plain_);
}

// ---- order of writes ----

TEST_F(IbvOwnQueues, OnlyBulkRegistrationsAreRelaxedAndOnlyOnRequest) {
  for (const bool relaxed : {false, true}) {
    testing::FakeBootstrap bootstrap;
    bootstrap.stands.size = 2;
    IbvTransport::Options options = IbvWorld::single();
    options.relaxed_ordering = relaxed;
    const auto transport = open(bootstrap, options);
    alignas(4096) static std::byte memory[4096];
    const MemoryRange range{reinterpret_cast<uintptr_t>(memory), sizeof memory};
    for (const bool bulk : {false, true}) {
      const std::unique_ptr<Registrar> registrar =
          bulk ? transport->pinned()->make_bulk_registrar() : transport->pinned()->make_registrar();
      ASSERT_NE(registrar, nullptr) << last_error_text();
      std::byte key[sizeof(IbvKey)];
      ASSERT_EQ(registrar->pin(range, Access::kRemoteWrite, key), Status::kOk);
      EXPECT_EQ((fake_verbs::last_registration().access & IBV_ACCESS_RELAXED_ORDERING) != 0,
                bulk && relaxed);
      EXPECT_EQ(registrar->unpin(range, key), UnpinResult::kDone);
    }
  }
}

}  // namespace
}  // namespace hydrant
