// Checksums and counts of zero bytes, computed a word at a time. Called by clients through gasnet_tools.h.
#include <hydrant/gasnet/misc.h>

#include <cstring>

namespace hydrant {
namespace {

uint64_t load(const void* p) noexcept {
  uint64_t word = 0;
  std::memcpy(&word, p, sizeof word);
  return word;
}

size_t zeros_in(uint64_t word) noexcept {
  return static_cast<size_t>(hydrant_tools_count0s_uint64(word));
}

// Odd, with bits spread evenly: 2^64 divided by the golden ratio.
constexpr uint64_t kMultiplier = 0x9e3779b97f4a7c15;

uint64_t mix(uint64_t sum, uint64_t word) noexcept {
  sum = (sum ^ word) * kMultiplier;
  return sum ^ (sum >> 29);  // multiplication carries only upwards, so mix downwards
}

}  // namespace
}  // namespace hydrant

uint64_t hydrant_tools_checksum(const void* p, int numbytes) {
  auto left = static_cast<size_t>(numbytes);
  const auto* at = static_cast<const unsigned char*>(p);
  uint64_t sum = hydrant::mix(0, left);  // makes trailing zeros count
  for (; left >= sizeof sum; left -= sizeof sum, at += sizeof sum) {
    sum = hydrant::mix(sum, hydrant::load(at));
  }
  uint64_t rest = 0;
  if (left > 0) std::memcpy(&rest, at, left);
  return hydrant::mix(sum, rest);
}

size_t hydrant_tools_count0s(const void* p, size_t numbytes) {
  const auto* at = static_cast<const unsigned char*>(p);
  size_t zeros = 0;
  for (; numbytes >= sizeof(uint64_t); numbytes -= sizeof(uint64_t), at += sizeof(uint64_t)) {
    zeros += hydrant::zeros_in(hydrant::load(at));
  }
  for (; numbytes > 0; --numbytes, ++at) zeros += *at == 0;
  return zeros;
}

size_t hydrant_tools_count0s_copy(void* GASNETT_RESTRICT dst, const void* GASNETT_RESTRICT src,
                                  size_t numbytes) {
  auto* to = static_cast<unsigned char*>(dst);
  const auto* from = static_cast<const unsigned char*>(src);
  size_t zeros = 0;
  for (; numbytes >= sizeof(uint64_t); numbytes -= sizeof(uint64_t)) {
    const uint64_t word = hydrant::load(from);
    std::memcpy(to, &word, sizeof word);
    zeros += hydrant::zeros_in(word);
    to += sizeof word;
    from += sizeof word;
  }
  for (; numbytes > 0; --numbytes) {
    zeros += *from == 0;
    *to++ = *from++;
  }
  return zeros;
}
