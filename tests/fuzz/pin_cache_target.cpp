// Fuzz target: the random cache client with one thread. The input alone decides, so failures are
// reproducible.
#include "tests/fuzz/cache_client.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hydrant::fuzz;
  Input input(data, size);
  CacheWorld world(input, false);
  CacheClient client(world, input);
  client.run();
  client.finish();
  return 0;
}
