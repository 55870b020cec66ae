// A child made by the bare clone system call that makes a domain of its own before it touches one it
// inherited: what is born in the child is not taken for the parent's.
#include <hydrant/pin_cache.h>

#include "tests/support/child_process.hpp"
#include "tests/unit/firehose/pin_cache_test_util.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <fcntl.h>
#include <string>
#include <unistd.h>

namespace hydrant::testing {
namespace {

class PinCacheClone : public PinCacheTest {
 protected:
  // In the child: "" if a new domain works, and still works after a release of the parent's pin.
  std::string own_domain_works(hydrant_pin_t parents, const hydrant_domain_options_t& options) {
    hydrant_domain_t own = 0;
    int status = hydrant_domain_create(&options, &own);
    if (status != GASNET_OK) return failure_text("create", status);
    const hydrant_pin_t held = hydrant_pin(own, arena_.page(10), kPage, HYDRANT_LOCAL_WRITE);
    if (held.region == nullptr) return failure_text("pin", hydrant_pin_status(held));
    const int file = open("/dev/null", O_RDONLY | O_CLOEXEC);
    status = hydrant_release(parents);
    if (status != GASNET_ERR_NOT_INIT) return failure_text("release of the parent's pin", status);
    if (stats_of(own).live_holds != 1 || stats_of(own).regions != 1) return "its own pin is lost";
    status = hydrant_release(held);
    if (status != GASNET_OK) return failure_text("release of its own pin", status);
    const hydrant_pin_t again = hydrant_pin(own, arena_.page(20), kPage, HYDRANT_LOCAL_WRITE);
    if (again.region == nullptr) return failure_text("second pin", hydrant_pin_status(again));
    status = hydrant_release(again);
    if (status != GASNET_OK) return failure_text("second release", status);
    status = hydrant_domain_destroy(own, HYDRANT_FINI_UNPIN);
    if (status != GASNET_OK) return failure_text("destroy", status);
    return fcntl(file, F_GETFD) >= 0 ? "" : "a descriptor of the program's was closed";
  }
};

TEST_F(PinCacheClone, ChildsOwnDomainOutlivesTheFirstUseOfAnInheritedOne) {
  create();
  const hydrant_pin_t held = pin(0);
  const auto child = [&]() -> std::string {
    const RecordingRegistrar own(arena_);
    const std::string wrong = own_domain_works(held, options_for(own));
    return wrong.empty() && own.live() != 0 ? "something is left registered" : wrong;
  };
  EXPECT_EQ(run_in_child(child, ChildKind::kRawClone), "");
  EXPECT_EQ(hydrant_release(held), GASNET_OK);
}

TEST_F(PinCacheClone, ChildsOwnRingsOutliveTheFirstUseOfAnInheritedDomain) {
  hydrant_domain_options_t options;
  hydrant_domain_options_init(&options);
  options.watch = HYDRANT_WATCH_CLIENT;
  options.registrar_name = "uring";
  options.budget_bytes = kMiB;
  if (hydrant_domain_create(&options, &domain_) != GASNET_OK) {
    GTEST_SKIP() << "no uring here: " << hydrant_error_text();
  }
  const hydrant_pin_t held = pin(0);
  const auto child = [&] { return own_domain_works(held, options); };
  EXPECT_EQ(run_in_child(child, ChildKind::kRawClone), "");
  EXPECT_EQ(hydrant_release(held), GASNET_OK);
}

}  // namespace
}  // namespace hydrant::testing
