// Memory of other ranks is mapped by a domain that is made when it is first wanted.
#include <hydrant/pin_cache.h>

#include "extended/binding/firehose_binding.hpp"
#include "tests/support/recording_registrar.hpp"
#include "tests/unit/extended/pinned_fixture.hpp"

#include <vector>

namespace hydrant {
namespace {

using Mappings = test::PinnedFixture;

// The program has as many domains as a process may have, for a while.
TEST_F(Mappings, AShortagePasses) {
  in_new_thread([&] {
    hydrant_domain_options_t options;
    hydrant_domain_options_init(&options);
    options.registrar_name = "mlock";
    options.watch = HYDRANT_WATCH_CLIENT;
    std::vector<hydrant_domain_t> domains;
    hydrant_domain_t domain = 0;
    int code = GASNET_OK;
    while ((code = hydrant_domain_create(&options, &domain)) == GASNET_OK)
      domains.push_back(domain);
    EXPECT_EQ(code, GASNET_ERR_RESOURCE) << hydrant_error_text();
    EXPECT_FALSE(make_mappings());
    for (const hydrant_domain_t each : domains)
      EXPECT_EQ(hydrant_domain_destroy(each, HYDRANT_FINI_UNPIN), GASNET_OK);
    EXPECT_FALSE(have_mappings()) << "nothing was made";
    EXPECT_TRUE(testing::wait_until([] { return make_mappings(); }));
  });
}

}  // namespace
}  // namespace hydrant
