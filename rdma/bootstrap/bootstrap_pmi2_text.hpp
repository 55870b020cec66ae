// Text encoding for PMI-2, which carries only text: entries in base64, cut into values that fit, and the map
// of ranks to nodes. Pure functions.
#pragma once

#include "firehose/base/status.hpp"
#include "rdma/bootstrap/bootstrap.hpp"

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hydrant {

// A value has at most 1023 characters; a piece of this many bytes becomes 800 and a length.
inline constexpr size_t kPmi2PieceBytes = 600;

// The text of one piece of an entry; the first piece starts with the length of the entry and ':'.
std::string encode_pmi2_piece(std::span<const std::byte> entry, size_t piece);
inline size_t pmi2_pieces(size_t value_bytes) noexcept {
  return value_bytes == 0 ? 1 : (value_bytes + kPmi2PieceBytes - 1) / kPmi2PieceBytes;
}

// Assembles an entry from its pieces, in order.
class Pmi2Entry {
 public:
  // False for a text that encode_pmi2_piece() would not write as the next piece.
  bool add(std::string_view text);
  bool is_whole() const noexcept { return has_length_ && bytes_.size() == length_; }
  size_t length() const noexcept { return length_; }
  std::span<const std::byte> bytes() const noexcept { return bytes_; }

 private:
  size_t length_ = 0;
  bool has_length_ = false;
  std::vector<std::byte> bytes_;
};

std::string encode_base64(std::span<const std::byte> bytes);
// False for a text that encode_base64() would not write.
bool decode_base64(std::string_view text, std::vector<std::byte>* bytes);

// "(vector,(0,2,4))" means: from node 0 on, two nodes with four ranks each; the blocks repeat until all ranks
// have a node. Fills *topology except rank and size, which the caller has set.
// Errors: kBroken, with the text that could not be read.
Status read_process_mapping(std::string_view text, JobTopology* topology);

// Fills *topology from the node of each rank; `nodes` has topology->size entries.
void fill_topology(std::span<const uint32_t> nodes, JobTopology* topology);

}  // namespace hydrant
