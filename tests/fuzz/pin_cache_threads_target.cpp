// Fuzz target: the random cache client with four threads over the same domains; each has a quarter of the
// input.
#include "tests/fuzz/cache_client.hpp"

#include <thread>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hydrant::fuzz;
  constexpr size_t kThreads = 4;
  Input input(data, size);
  CacheWorld world(input, true);
  const size_t part = input.left() / kThreads;
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kThreads; ++i) {
    const auto bytes = input.bytes(part);
    threads.emplace_back([&world, bytes] {
      CacheClient client(world, Input(bytes.data(), bytes.size()));
      client.run();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return 0;
}
