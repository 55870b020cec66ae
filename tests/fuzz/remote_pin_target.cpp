// Fuzz target: remote pins between three ends, with forged messages of all kinds.
#include "firehose/remote/channel/remote_wire.hpp"
#include "tests/fuzz/remote_client.hpp"

namespace hydrant::fuzz {
namespace {

// A rank that failed to create its end answers only moves.
void check_refusal(std::span<const uint8_t> bytes) {
  const GuardedCopy message(bytes);
  remote_wire::Message reply;
  const bool is_move = remote_wire::refuse_move(message.data(), message.size(), &reply);
  const size_t expected =
      is_move ? sizeof(remote_wire::Header) + sizeof(remote_wire::Reply) : size_t{0};
  HYDRANT_FUZZ_CHECK(reply.size() == expected);
  HYDRANT_FUZZ_CHECK(!is_move ||
                     message.size() >= sizeof(remote_wire::Header) + sizeof(remote_wire::Move));
}

}  // namespace
}  // namespace hydrant::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hydrant::fuzz;
  Input input(data, size);
  check_refusal({data, size});
  RemoteClients clients(input);
  clients.run();
  clients.finish();
  return 0;
}
