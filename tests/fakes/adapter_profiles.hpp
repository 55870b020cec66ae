// Facts of real adapters for the fake libibverbs: what the driver of each reports and refuses. The tests of
// verbs run over one of them if HYDRANT_TEST_ADAPTER names it.
#pragma once

#include "tests/fakes/fake_ibverbs.hpp"

#include <vector>

namespace hydrant::fake_verbs {

struct AdapterProfile {
  const char* name;
  Device device;
  // Part of the refusal that names what the adapter lacks; empty: it carries the transport.
  const char* refusal = "";
};
const std::vector<AdapterProfile>& adapter_profiles();
// The device of tests that need no particular one: that of the profile which HYDRANT_TEST_ADAPTER names, or
// Device() where the variable is not set or empty. It is called fake0. A name of no profile ends the process.
Device adapter();

}  // namespace hydrant::fake_verbs
