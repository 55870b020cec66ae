// The fixture of tests of the C functions of libfirehose_ibv: memory, a device, and domains over it.
#pragma once

#include <hydrant/ibv_registrar.h>

#include "tests/fakes/fake_ibverbs.hpp"
#include "tests/support/sizes.hpp"

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <sys/mman.h>
#include <vector>

namespace hydrant::testing {

// Looks into the calling thread's error text.
inline bool text_has(const char* part) {
  return std::strstr(hydrant_error_text(), part) != nullptr;
}

class IbvInterface : public ::testing::Test {
 protected:
  static constexpr size_t kBytes = 64 * kPage;

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
  static hydrant_ibv_options_t ibv_options() {
    hydrant_ibv_options_t options;
    hydrant_ibv_options_init(&options);
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
    hydrant_ibv_options_t options = ibv_options();
    options.flags = flags;
    hydrant_registrar_t registrar;
    EXPECT_EQ(hydrant_ibv_registrar_create(pd_, &options, &registrar), GASNET_OK)
        << hydrant_error_text();
    return domain_over(registrar);
  }
  hydrant_pin_t pin_page(hydrant_domain_t domain, size_t page,
                         uint32_t access = HYDRANT_LOCAL_WRITE) const {
    return hydrant_pin(domain, memory_ + page * kPage, kPage, access);
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

}  // namespace hydrant::testing
