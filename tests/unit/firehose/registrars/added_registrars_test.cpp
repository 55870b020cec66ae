// Registrars that libraries add by name: which names they may have, and what a domain that names one gets.
#include "firehose/registrars/added_registrars.hpp"

#include "tests/support/child_process.hpp"
#include "tests/unit/firehose/registrars/error_text.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <string>
#include <thread>

namespace hydrant {
namespace {

using testing::says;

std::string opened_with;
int destroyed = 0;
int open_result = GASNET_OK;
bool is_complete = true;

int pin_nothing(void*, uintptr_t, size_t, uint32_t, void*) { return GASNET_OK; }
int unpin_nothing(void*, uintptr_t, size_t, const void*) { return HYDRANT_UNPIN_DONE; }

int open_test_registrar(const char* argument, hydrant_registrar_t* registrar) {
  opened_with = argument;
  if (open_result != GASNET_OK) {
    hydrant_set_error_text("no such thing here");
    return open_result;
  }
  registrar->name = "test";
  registrar->pin = is_complete ? &pin_nothing : nullptr;
  registrar->unpin = &unpin_nothing;
  registrar->destroy = [](void*) { ++destroyed; };
  return GASNET_OK;
}
int open_another(const char*, hydrant_registrar_t*) { return HYDRANT_ERR_BROKEN; }

class AddedRegistrars : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(hydrant_registrar_add("test", &open_test_registrar), GASNET_OK);
    opened_with = "not opened";
    destroyed = 0;
    open_result = GASNET_OK;
    is_complete = true;
    hydrant_domain_options_init(&options_);
  }
  hydrant_domain_options_t options_;
  hydrant_domain_t domain_ = 0;
};

TEST_F(AddedRegistrars, DomainOpensTheOneThatItNamesAndEndsIt) {
  options_.registrar_name = "test";
  ASSERT_EQ(hydrant_domain_create(&options_, &domain_), GASNET_OK) << hydrant_error_text();
  EXPECT_EQ(opened_with, "");
  EXPECT_STREQ(hydrant_registrar_name(domain_), "test");
  EXPECT_EQ(destroyed, 0);
  EXPECT_EQ(hydrant_domain_destroy(domain_, HYDRANT_FINI_UNPIN), GASNET_OK);
  EXPECT_EQ(destroyed, 1);
}

TEST_F(AddedRegistrars, NameMayHaveAnArgument) {
  options_.registrar_name = "test:second:card";
  ASSERT_EQ(hydrant_domain_create(&options_, &domain_), GASNET_OK) << hydrant_error_text();
  EXPECT_EQ(opened_with, "second:card");
  EXPECT_EQ(hydrant_domain_destroy(domain_, HYDRANT_FINI_UNPIN), GASNET_OK);
}

TEST_F(AddedRegistrars, FailureToOpenIsTheDomains) {
  options_.registrar_name = "test";
  open_result = HYDRANT_ERR_UNSUPPORTED;
  EXPECT_EQ(hydrant_domain_create(&options_, &domain_), HYDRANT_ERR_UNSUPPORTED);
  EXPECT_TRUE(says("no such thing here")) << last_error_text();
  open_result = 12345;
  EXPECT_EQ(hydrant_domain_create(&options_, &domain_), HYDRANT_ERR_BROKEN);
  EXPECT_EQ(destroyed, 0) << "nothing was opened";
}

TEST_F(AddedRegistrars, RegistrarOfAFailedDomainIsEnded) {
  options_.registrar_name = "test";
  options_.mode = HYDRANT_MODE_PAGE;
  options_.bucket_bytes = 3;
  EXPECT_EQ(hydrant_domain_create(&options_, &domain_), GASNET_ERR_BAD_ARG);
  EXPECT_EQ(destroyed, 1);
  options_.bucket_bytes = 0;
  is_complete = false;
  EXPECT_EQ(hydrant_domain_create(&options_, &domain_), GASNET_ERR_BAD_ARG);
  EXPECT_TRUE(says("pin is required")) << last_error_text();
  EXPECT_EQ(destroyed, 2);
}

TEST_F(AddedRegistrars, NamesAreCheckedAndUnique) {
  EXPECT_EQ(hydrant_registrar_add("test", &open_test_registrar), GASNET_OK) << "again";
  for (const char* name : {"", "uring", "mlock", "auto", "a:b", "sixteen-bytes-ab", "test"}) {
    EXPECT_EQ(hydrant_registrar_add(name, &open_another), GASNET_ERR_BAD_ARG) << name;
    EXPECT_TRUE(says("cannot add")) << last_error_text();
  }
  EXPECT_EQ(hydrant_registrar_add(nullptr, &open_another), GASNET_ERR_BAD_ARG);
  EXPECT_EQ(hydrant_registrar_add("other", nullptr), GASNET_ERR_BAD_ARG);
}

// Added registrars stay: each child starts with those of this process.
TEST_F(AddedRegistrars, NameThatTwoThreadsAddAtOnceIsOneThreads) {
  if (!testing::kThreadsInChildren) GTEST_SKIP() << "needs threads in a child";
  const auto body = []() -> std::string {
    for (const char* name : {"a", "b"}) {
      std::atomic<int> ready{0};
      int results[2] = {};
      const auto add = [&](int i) {
        ++ready;
        while (ready.load() != 2) {
        }
        results[i] = hydrant_registrar_add(name, i == 0 ? &open_test_registrar : &open_another);
      };
      std::thread other(add, 1);
      add(0);
      other.join();
      if ((results[0] == GASNET_OK) == (results[1] == GASNET_OK))
        return std::string(name) + ": " + std::to_string(results[0]) + ", " +
               std::to_string(results[1]);
    }
    return "";
  };
  for (int i = 0; i < 100; ++i) ASSERT_EQ(testing::run_in_child(body), "") << i;
}

TEST_F(AddedRegistrars, UnknownNameListsThoseThatThereAre) {
  options_.registrar_name = "tes";
  EXPECT_EQ(hydrant_domain_create(&options_, &domain_), HYDRANT_ERR_UNSUPPORTED);
  EXPECT_TRUE(says("auto, uring, mlock, test")) << last_error_text();
  options_.registrar_name = "ibv:mlx5_0";
  EXPECT_EQ(hydrant_domain_create(&options_, &domain_), HYDRANT_ERR_UNSUPPORTED);
  EXPECT_TRUE(says("libfirehose_ibv")) << last_error_text();
}

}  // namespace
}  // namespace hydrant
