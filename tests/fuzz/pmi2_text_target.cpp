// Fuzz target: texts carried by PMI-2: cards in base64, and the launcher's map of ranks to nodes.
#include "rdma/bootstrap/bootstrap_pmi2_text.hpp"
#include "tests/fuzz/job_place.hpp"

namespace hydrant::fuzz {
namespace {

void check_base64(const GuardedCopy& input) {
  std::vector<std::byte> bytes;
  if (decode_base64(input.text(), &bytes)) HYDRANT_FUZZ_CHECK(encode_base64(bytes) == input.text());
  const std::string text = encode_base64(input.span());
  HYDRANT_FUZZ_CHECK(decode_base64(text, &bytes));
  HYDRANT_FUZZ_CHECK(bytes.size() == input.size() &&
                     std::equal(bytes.begin(), bytes.end(), input.data()));
}

// An accepted first piece is the text that encode_pmi2_piece() writes for a card of that length.
void check_first_piece(const GuardedCopy& input) {
  Pmi2Entry card;
  if (!card.add(input.text())) return;
  std::vector<std::byte> bytes(card.bytes().begin(), card.bytes().end());
  HYDRANT_FUZZ_CHECK(card.is_whole() == (bytes.size() == card.length()));
  bytes.resize(card.length());
  HYDRANT_FUZZ_CHECK(encode_pmi2_piece(bytes, 0) == input.text());
}

void check_card(const GuardedCopy& input) {
  const auto bytes = input.span().first(std::min(input.size(), Bootstrap::kMaxValueBytes));
  Pmi2Entry card;
  for (size_t piece = 0; piece < pmi2_pieces(bytes.size()); ++piece)
    HYDRANT_FUZZ_CHECK(!card.is_whole() && card.add(encode_pmi2_piece(bytes, piece)));
  HYDRANT_FUZZ_CHECK(card.is_whole() && std::equal(bytes.begin(), bytes.end(), card.bytes().begin(),
                                                   card.bytes().end()));
}

void check_map(Rank size, Rank rank, const GuardedCopy& input) {
  JobTopology place;
  place.size = size;
  place.rank = rank;
  if (read_process_mapping(input.text(), &place) != Status::kOk) {
    HYDRANT_FUZZ_CHECK(place.node_count == 1 && place.node_ranks.size() == 1);
    return;
  }
  HYDRANT_FUZZ_CHECK(place.size == size && place.rank == rank);
  check_place_with_leaders(place);
}

}  // namespace
}  // namespace hydrant::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hydrant::fuzz;
  if (size > 4096) return 0;
  Input input(data, size);
  const auto ranks = static_cast<hydrant::Rank>(1 + input.byte());
  const auto rank = static_cast<hydrant::Rank>(input.byte() % ranks);
  const GuardedCopy text(input.all());
  check_base64(text);
  check_first_piece(text);
  check_card(text);
  check_map(ranks, rank, text);
  return 0;
}
