// Encodes entries as the text values of PMI-2, decodes them, and parses the launcher's map of ranks to nodes.
// bootstrap_pmi2.cpp calls it; bootstrap_pmix.cpp uses fill_topology().
#include "rdma/bootstrap/bootstrap_pmi2_text.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <numeric>

namespace hydrant {
namespace {

constexpr std::string_view kDigits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr uint32_t kMaxNodes = 1u << 20;

struct Block {
  uint32_t first_node = 0;
  uint32_t nodes = 0;
  uint32_t ranks = 0;  // per node
};

// Takes `text` from the front of *rest.
bool take(std::string_view* rest, std::string_view text) {
  if (!rest->starts_with(text)) return false;
  rest->remove_prefix(text.size());
  return true;
}

bool take_number(std::string_view* rest, uint32_t* number) {
  const auto [end, error] = std::from_chars(rest->data(), rest->data() + rest->size(), *number);
  if (error != std::errc{} || *number > kMaxNodes) return false;
  rest->remove_prefix(static_cast<size_t>(end - rest->data()));
  return true;
}

bool read_blocks(std::string_view text, std::vector<Block>* blocks) {
  if (!take(&text, "(vector")) return false;
  while (take(&text, ",(")) {
    Block block;
    const bool good = take_number(&text, &block.first_node) && take(&text, ",") &&
                      take_number(&text, &block.nodes) && take(&text, ",") &&
                      take_number(&text, &block.ranks) && take(&text, ")");
    if (!good || block.nodes == 0 || block.ranks == 0) return false;
    blocks->push_back(block);
  }
  return text == ")" && !blocks->empty();
}

}  // namespace

std::string encode_base64(std::span<const std::byte> bytes) {
  std::string text;
  for (size_t at = 0; at < bytes.size(); at += 3) {
    const size_t count = std::min<size_t>(3, bytes.size() - at);
    uint32_t group = 0;
    for (size_t i = 0; i < 3; ++i) {
      group = group << 8 | (i < count ? std::to_integer<uint32_t>(bytes[at + i]) : 0);
    }
    for (size_t i = 0; i < 4; ++i) {
      text += i <= count ? kDigits[group >> (18 - 6 * i) & 63] : '=';
    }
  }
  return text;
}

bool decode_base64(std::string_view text, std::vector<std::byte>* bytes) {
  if (text.size() % 4 != 0) return false;
  bytes->clear();
  for (size_t at = 0; at < text.size(); at += 4) {
    const bool last = at + 4 == text.size();
    uint32_t group = 0;
    size_t padding = 0;
    for (size_t i = 0; i < 4; ++i) {
      const char digit = text[at + i];
      const size_t value = kDigits.find(digit);
      if (digit == '=' && last && i >= 2) {
        ++padding;
        group <<= 6;
      } else if (value == kDigits.npos || padding > 0) {
        return false;
      } else {
        group = group << 6 | static_cast<uint32_t>(value);
      }
    }
    // The bits after the last byte must be zero, as encode_base64() writes them.
    if ((group & ((1u << (8 * padding)) - 1)) != 0) return false;
    for (size_t i = 0; i < 3 - padding; ++i) {
      bytes->push_back(static_cast<std::byte>(group >> (16 - 8 * i) & 255));
    }
  }
  return true;
}

std::string encode_pmi2_piece(std::span<const std::byte> entry, size_t piece) {
  const size_t start = piece * kPmi2PieceBytes;
  const std::string text =
      encode_base64(entry.subspan(start, std::min(kPmi2PieceBytes, entry.size() - start)));
  return piece == 0 ? std::to_string(entry.size()) + ":" + text : text;
}

bool Pmi2Entry::add(std::string_view text) {
  if (!has_length_) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), length_);
    const auto digits = static_cast<size_t>(end - text.data());
    if (error != std::errc{} || length_ > Bootstrap::kMaxValueBytes ||
        text.substr(0, digits) != std::to_string(length_))
      return false;
    text.remove_prefix(digits);
    if (!take(&text, ":")) return false;
  }
  std::vector<std::byte> part;
  if (!decode_base64(text, &part)) return false;
  if (part.size() != std::min(kPmi2PieceBytes, length_ - bytes_.size())) return false;
  has_length_ = true;
  bytes_.insert(bytes_.end(), part.begin(), part.end());
  return true;
}

void fill_topology(std::span<const uint32_t> nodes, JobTopology* topology) {
  // The launcher's node numbers are arbitrary; here nodes count from 0 in the order of their first ranks.
  // Sorted by node, and by rank within it, the first rank of each node comes before its others.
  std::vector<Rank> by_node(nodes.size());
  std::iota(by_node.begin(), by_node.end(), Rank{0});
  std::sort(by_node.begin(), by_node.end(),
            [nodes](Rank a, Rank b) { return nodes[a] != nodes[b] ? nodes[a] < nodes[b] : a < b; });
  topology->node_ranks.clear();
  topology->leaders.clear();
  const uint32_t own = nodes[topology->rank];
  for (size_t i = 0; i < by_node.size(); ++i) {
    const Rank rank = by_node[i];
    if (i == 0 || nodes[by_node[i - 1]] != nodes[rank]) topology->leaders.push_back(rank);
    if (nodes[rank] != own) continue;
    if (rank == topology->rank)
      topology->node_rank = static_cast<uint32_t>(topology->node_ranks.size());
    topology->node_ranks.push_back(rank);
  }
  std::sort(topology->leaders.begin(), topology->leaders.end());
  topology->node_count = static_cast<uint32_t>(topology->leaders.size());
  const auto leader = std::lower_bound(topology->leaders.begin(), topology->leaders.end(),
                                       topology->node_ranks.front());
  topology->node = static_cast<uint32_t>(leader - topology->leaders.begin());
}

Status read_process_mapping(std::string_view text, JobTopology* topology) {
  std::vector<Block> blocks;
  if (!read_blocks(text, &blocks)) {
    return fail(Status::kBroken, "the launcher's map of ranks to nodes, \"%.*s\", cannot be read",
                static_cast<int>(std::min<size_t>(text.size(), 200)), text.data());
  }
  std::vector<uint32_t> nodes;
  while (nodes.size() < topology->size) {
    for (const Block& block : blocks) {
      const uint64_t count = uint64_t{block.nodes} * block.ranks;
      for (uint64_t i = 0; i < count && nodes.size() < topology->size; ++i) {
        nodes.push_back(block.first_node + static_cast<uint32_t>(i / block.ranks));
      }
    }
  }
  fill_topology(nodes, topology);
  return Status::kOk;
}

}  // namespace hydrant
