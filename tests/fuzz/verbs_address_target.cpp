// Fuzz target: addresses that processes exchange for verbs: endpoint endpoint addresses, handshakes, group
// addresses, keys.
#include "firehose/registrars/ibv/ibv_key_blob.hpp"
#include "rdma/ibv/wire/ibv_group_address.hpp"
#include "rdma/ibv/wire/ibv_wire.hpp"
#include "tests/fuzz/fuzz_target.hpp"

#include <vector>

namespace hydrant::fuzz {
namespace {

using namespace ibv;

constexpr std::byte kSpareFlags{0xf8};

// Encoding an accepted input reproduces it, but for unknown flags of a handshake; a rejected input leaves the
// result unchanged.
template <typename Parsed, typename Decode, typename Encode, typename Bytes>
bool round_trip(const GuardedCopy& in, Parsed* parsed, Decode decode, Encode encode, Bytes bytes) {
  std::memset(static_cast<void*>(parsed), 0x5a, sizeof *parsed);
  const std::vector<char> before(static_cast<const char*>(static_cast<const void*>(parsed)),
                                 static_cast<const char*>(static_cast<const void*>(parsed + 1)));
  if (decode(in, parsed) != Status::kOk) {
    HYDRANT_FUZZ_CHECK(std::memcmp(parsed, before.data(), before.size()) == 0);
    return false;
  }
  HYDRANT_FUZZ_CHECK(bytes(*parsed) == in.size());
  std::vector<std::byte> again(in.size());
  encode(*parsed, again.data());
  HYDRANT_FUZZ_CHECK(std::memcmp(again.data(), in.data(), again.size()) == 0);
  return true;
}

void check_card(const EndpointAddress& endpoint) {
  HYDRANT_FUZZ_CHECK(endpoint.rail_count < kMaxRails);
  const AddressText text = text_of(endpoint.address);
  HYDRANT_FUZZ_CHECK(std::memchr(text.text, 0, sizeof text.text) != nullptr && text.text[0] != 0);
}

void check_cards(const GuardedCopy& in) {
  EndpointAddress endpoint;
  if (round_trip(
          in, &endpoint,
          [](const GuardedCopy& from, EndpointAddress* to) {
            return decode_endpoint(from.span(), to);
          },
          encode_endpoint, [](const EndpointAddress& of) { return endpoint_bytes(of.rail_count); }))
    check_card(endpoint);
  Handshake handshake;
  if (round_trip(
          in, &handshake,
          [](const GuardedCopy& from, Handshake* to) { return decode_handshake(from.span(), to); },
          [&in](const Handshake& of, std::byte* out) {
            encode_handshake(of, out);
            out[6] |= in.data()[6] & kSpareFlags;
          },
          [](const Handshake& of) { return handshake_bytes(of.endpoint.rail_count); }))
    check_card(handshake.endpoint);
  GroupAddress group;
  if (round_trip(
          in, &group,
          [](const GuardedCopy& from, GroupAddress* to) {
            return decode_group_address(from.span(), to);
          },
          encode_group_address,
          [](const GroupAddress& of) { return group_address_bytes(of.endpoint.rail_count); })) {
    check_card(group.endpoint);
    HYDRANT_FUZZ_CHECK(group.rank < group.ranks);
  }
}

void check_key(const GuardedCopy& in) {
  IbvKeyBlob key;
  const bool good = round_trip(
      in, &key,
      [](const GuardedCopy& from, IbvKeyBlob* to) {
        return decode_ibv_key(from.data(), from.size(), to);
      },
      encode_ibv_key, [](const IbvKeyBlob& of) { return ibv_blob_bytes(of.rail_count); });
  if (good) HYDRANT_FUZZ_CHECK(key.range.valid() && key.rail_count < kMaxRails);
}

// Writes a correct checksum at the end of a group address: mutations alone would never produce one.
void mend_checksum(std::vector<uint8_t>* bytes) {
  if (bytes->size() < 8) return;
  uint64_t sum = 0xcbf29ce484222325;
  for (size_t i = 0; i < bytes->size() - 8; ++i) sum = (sum ^ (*bytes)[i]) * 0x100000001b3;
  std::memcpy(bytes->data() + bytes->size() - 8, &sum, 8);
}

}  // namespace
}  // namespace hydrant::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hydrant::fuzz;
  if (size == 0 || size > 4096) return 0;
  // Bit 0 of the first byte requests a correct checksum at the end.
  std::vector<uint8_t> bytes(data + 1, data + size);
  if ((data[0] & 1) != 0) mend_checksum(&bytes);
  const GuardedCopy in(bytes);
  check_cards(in);
  check_key(in);
  return 0;
}
