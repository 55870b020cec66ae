// The cache for an unprivileged user with 8 MiB of memlock and eight times as much memory in use: every pin
// succeeds or returns a documented code with a text, and transfers through pinned pages are correct.
#include <hydrant/pin_cache.h>

#include "tests/support/child_process.hpp"
#include "tests/unit/firehose/pin_cache_test_util.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

namespace hydrant::testing {
namespace {

constexpr uint64_t kMemlock = 8 * kMiB;
constexpr size_t kWorkingSet = 64 * kMiB;
constexpr uint64_t kPatienceNs = 10'000'000'000;

struct Setup {
  const char* registrar;
  uint32_t mode;
  size_t bucket_bytes;
};

std::string name_of(const Setup& setup) {
  return std::string(setup.registrar) + (setup.mode == HYDRANT_MODE_REGION ? "Region" : "Page");
}

// "kB" of a line of /proc/self/status, in bytes.
uint64_t status_bytes(const std::string& field) {
  std::ifstream file("/proc/self/status");
  std::string word;
  uint64_t kilobytes = 0;
  while (file >> word) {
    if (word == field + ":") file >> kilobytes;
  }
  return kilobytes * 1024;
}

// An unprivileged user's session with one domain. All functions return "" or a description of the failure.
class Session {
 public:
  explicit Session(const Setup& setup) : setup_(setup), arena_(kWorkingSet / kPage), random_(17) {}
  ~Session() {
    if (file_ >= 0) close(file_);
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  std::string open() {
    hydrant_domain_options_t options;
    hydrant_domain_options_init(&options);
    options.watch = HYDRANT_WATCH_CLIENT;
    options.registrar_name = setup_.registrar;
    options.mode = setup_.mode;
    options.bucket_bytes = setup_.bucket_bytes;
    if (hydrant_domain_create(&options, &domain_) != GASNET_OK) {
      return std::string("SKIP: ") + hydrant_error_text();
    }
    file_ = memfd_create("limits", 0);
    if (file_ < 0 || ftruncate(file_, kWorkingSet) != 0) return "no file";
    const uint64_t budget = stats().budget_bytes;
    if (budget == 0 || budget > kMemlock) return "the default budget is " + std::to_string(budget);
    return "";
  }

  std::string run(int uses) {
    std::vector<hydrant_pin_t> held;
    for (int i = 0; i < uses; ++i) {
      const size_t len = 1 + random_() % (random_() % 2 ? kMiB : 4 * kPage);
      const size_t start = random_() % (kWorkingSet - len);
      std::byte* addr = arena_.page(0) + start;
      std::memset(addr, i & 0xff, len);
      const hydrant_pin_t pin = hydrant_pin(domain_, addr, len, HYDRANT_LOCAL_WRITE);
      if (pin.region == nullptr) {
        if (std::string wrong = check_failure(hydrant_pin_status(pin)); !wrong.empty())
          return wrong;
        ++failures_;
        (void)hydrant_release_many(held.data(), held.size());
        held.clear();
        (void)hydrant_poll(domain_);
        continue;
      }
      ++successes_;
      if (std::string wrong = move_and_compare(pin, addr, len, start); !wrong.empty()) return wrong;
      held.push_back(pin);
      if (held.size() > 3) {
        std::swap(held[random_() % held.size()], held.back());
        if (hydrant_release(held.back()) != GASNET_OK) return "release";
        held.pop_back();
      }
      if (stats().charged_bytes > stats().budget_bytes) return "charged more than the budget";
    }
    if (hydrant_release_many(held.data(), held.size()) != GASNET_OK) return "release_many";
    if (successes_ < uses / 2) return "only " + std::to_string(successes_) + " pins succeeded";
    return "";
  }

  std::string end() {
    if (is("mlock") && status_bytes("VmLck") > kMemlock) return "more is locked than allowed";
    if (hydrant_flush(domain_) != GASNET_OK) return "flush";
    if (stats().live_holds != 0 || stats().regions != 0) return "something is left";
    if (hydrant_domain_destroy(domain_, HYDRANT_FINI_UNPIN) != GASNET_OK) return "destroy";
    if (is("mlock") && status_bytes("VmLck") != 0) return "memory is still locked";
    return "";
  }

  // Another domain takes most of the account while the cache is in use.
  std::string run_squeezed(int uses) {
    const Arena other(1500);
    hydrant_domain_options_t options;
    hydrant_domain_options_init(&options);
    options.watch = HYDRANT_WATCH_CLIENT;
    options.registrar_name = setup_.registrar;
    hydrant_domain_t rival = 0;
    if (hydrant_domain_create(&options, &rival) != GASNET_OK) return "no second domain";
    if (hydrant_flush(domain_) != GASNET_OK) return "flush";
    // Some kernels release a charge only after a second.
    const hydrant_pin_t share = hydrant_pin_wait(rival, other.page(0), 1500 * kPage,
                                                 HYDRANT_LOCAL_WRITE, patient_ns(kPatienceNs));
    if (share.region == nullptr) {
      return std::string("flush did not give memlock back: ") + hydrant_error_text();
    }
    std::string wrong = run(uses);
    // Fewer succeed now; that none succeeds would be wrong, and so is any other complaint.
    if (wrong.rfind("only ", 0) == 0 && successes_ != 0) wrong = "";
    if (hydrant_release(share) != GASNET_OK) return "release of the rival's share";
    if (hydrant_domain_destroy(rival, HYDRANT_FINI_UNPIN) != GASNET_OK)
      return "destroy of the rival";
    return wrong;
  }

 private:
  bool is(const char* registrar) const { return std::strcmp(setup_.registrar, registrar) == 0; }
  hydrant_stats_t stats() const { return stats_of(domain_); }

  static std::string check_failure(int status) {
    const bool documented = status == GASNET_ERR_NOT_READY || status == GASNET_ERR_RESOURCE;
    if (documented && *hydrant_error_text() != '\0') return "";
    return std::string("pin: ") + hydrant_status_name(status) + ": " + hydrant_error_text();
  }

  std::string move_and_compare(hydrant_pin_t pin, std::byte* addr, size_t len, size_t start) {
    if (!is("uring")) return "";
    const int moved = hydrant_uring_move(pin, addr, len, file_, start, 1);
    if (moved == HYDRANT_ERR_UNSUPPORTED && hydrant_pin_parts(pin, 0, nullptr) > 1) return "";
    if (moved != GASNET_OK) {
      return std::string("move to the file: ") + hydrant_error_text();
    }
    std::vector<std::byte> seen(len);
    if (pread(file_, seen.data(), len, static_cast<off_t>(start)) != static_cast<ssize_t>(len) ||
        std::memcmp(seen.data(), addr, len) != 0) {
      return "the file holds other data than the memory";
    }
    std::fill(seen.begin(), seen.end(), std::byte{0xee});
    if (pwrite(file_, seen.data(), len, static_cast<off_t>(start)) != static_cast<ssize_t>(len)) {
      return "pwrite";
    }
    if (hydrant_uring_move(pin, addr, len, file_, start, 0) != GASNET_OK) {
      return std::string("move from the file: ") + hydrant_error_text();
    }
    return std::memcmp(seen.data(), addr, len) == 0 ? ""
                                                    : "the memory holds other data than the file";
  }

  const Setup setup_;
  Arena arena_;
  std::mt19937_64 random_;
  hydrant_domain_t domain_ = 0;
  int file_ = -1;
  int successes_ = 0, failures_ = 0;
};

class PinCacheLimits : public ::testing::TestWithParam<Setup> {
 protected:
  // Runs body(session) as an ordinary user in a process of its own.
  template <typename Body>
  void as_ordinary_user(Body body) {
    const std::string result = run_in_child([&]() -> std::string {
      if (std::string why = become_ordinary_user(kMemlock); !why.empty()) return "SKIP: " + why;
      Session session(GetParam());
      std::string wrong = session.open();
      if (wrong.empty()) wrong = body(session);
      return wrong.empty() ? session.end() : wrong;
    });
    if (result.rfind("SKIP: ", 0) == 0) GTEST_SKIP() << result.substr(6);
    EXPECT_EQ(result, "");
  }
};

TEST_P(PinCacheLimits, WorkingSetOfEightTimesTheLimit) {
  as_ordinary_user([](Session& session) { return session.run(600); });
}

TEST_P(PinCacheLimits, LimitThatShrinksUnderUs) {
  as_ordinary_user([](Session& session) {
    const std::string wrong = session.run(100);
    return wrong.empty() ? session.run_squeezed(200) : wrong;
  });
}

INSTANTIATE_TEST_SUITE_P(Registrars, PinCacheLimits,
                         ::testing::Values(Setup{"uring", HYDRANT_MODE_REGION, 0},
                                           Setup{"uring", HYDRANT_MODE_PAGE, 65536},
                                           Setup{"mlock", HYDRANT_MODE_REGION, 0},
                                           Setup{"mlock", HYDRANT_MODE_PAGE, 65536}),
                         [](const auto& setup) { return name_of(setup.param); });

}  // namespace
}  // namespace hydrant::testing
