#include "tests/integration/rma/model_memory.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <sys/mman.h>
#include <utility>

namespace rma_client {
namespace {

constexpr size_t kGuard = 64;
constexpr std::byte kGuardByte{0xa5};
constexpr size_t kPage = 4096;

constexpr size_t kConstantBytes = 256 << 10;
using Constants = std::array<uint64_t, kConstantBytes / sizeof(uint64_t)>;
constexpr Constants make_constants() {
  Constants words{};
  for (size_t i = 0; i < words.size(); ++i) words[i] = (i + 1) * 0x9e3779b97f4a7c15u;
  return words;
}
constinit const Constants kConstants = make_constants();

// Not a memset, because stores may happen in any order; only their completion is guaranteed.
void randomise(std::byte* at, size_t bytes, Random& random) {
  uint64_t word = random();
  size_t i = 0;
  for (; i + sizeof word <= bytes; i += sizeof word) {
    std::memcpy(at + i, &word, sizeof word);
    word = word * 6364136223846793005u + 1442695040888963407u;
  }
  for (; i < bytes; ++i) at[i] = static_cast<std::byte>(word >> (8 * (i % 8)));
}

}  // namespace

Local::Local(Kind kind, size_t bytes, Random& random, SegmentRoom& room)
    : kind_(kind), bytes_(bytes) {
  const size_t shift = below(random, 64);
  if (kind_ == kConstant && bytes + shift <= kConstantBytes) {
    data_ = reinterpret_cast<std::byte*>(const_cast<uint64_t*>(kConstants.data())) + shift;
    return;
  }
  base_bytes_ = bytes + 2 * kGuard + shift;
  if (kind_ == kOwnSegment) base_ = room.take(base_bytes_);
  if (base_ != nullptr) room_ = &room;
  if (kind_ == kBeforeHole) {
    base_bytes_ = (base_bytes_ + kPage - 1) / kPage * kPage;
    void* map = mmap(nullptr, base_bytes_ + kPage, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) wrong("mmap of %zu bytes", base_bytes_);
    base_ = static_cast<std::byte*>(map);
    // Accesses beyond the end raise a signal.
    if (mprotect(base_ + base_bytes_, kPage, PROT_NONE) != 0) wrong("mprotect");
    data_ = base_ + base_bytes_ - bytes;
  } else {
    if (base_ == nullptr) {
      kind_ = kHeapBlock;
      base_ = new std::byte[base_bytes_];
    }
    data_ = base_ + kGuard + shift;
  }
  std::memset(base_, static_cast<int>(kGuardByte), base_bytes_);
  randomise(data_, bytes, random);
}

void Local::swap(Local& other) noexcept {
  std::swap(kind_, other.kind_);
  std::swap(base_, other.base_);
  std::swap(base_bytes_, other.base_bytes_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(room_, other.room_);
}

void Local::check_guards() const {
  if (base_ == nullptr) return;
  for (const std::byte* at = base_; at < base_ + base_bytes_; ++at) {
    if (at == data_) at += bytes_;
    if (at < base_ + base_bytes_ && *at != kGuardByte) {
      wrong("a byte %td from the start of %zu local ones was written", at - data_, bytes_);
    }
  }
}

void Local::scribble() {
  check_guards();
  if (base_ != nullptr) std::memset(data_, 0x5a, bytes_);
}

void Local::release() {
  if (base_ == nullptr) return;
  if (kind_ == kBeforeHole) {
    munmap(base_, base_bytes_ + kPage);
  } else if (kind_ == kOwnSegment) {
    room_->give();
  } else {
    delete[] base_;
  }
  base_ = nullptr;
}

Slice::Slice(gex_Rank_t owner, Area an_area, size_t index, size_t slices)
    : rank(owner), which(an_area) {
  const auto border = [&](size_t i) {
    if (i == 0 || i == slices) return i == 0 ? size_t{0} : kAreaBytes[which];
    return i * (kAreaBytes[which] / slices) + i * 5 % 16 + 1;
  };
  first = border(index);
  holds.resize(border(index + 1) - first);
  for (size_t i = 0; i < holds.size(); ++i) holds[i] = initial_byte(which, first + i);
}

size_t random_size(Random& random, size_t most) {
  size_t bytes = 0;
  switch (below(random, 16)) {
    case 0: break;
    case 1:
    case 2:
    case 3:
    case 4:
    case 5: bytes = 1 + below(random, 16); break;
    case 6:
    case 7: bytes = 1 + below(random, 200); break;
    case 8:
    case 9: bytes = below(random, 5000); break;
    case 10:
    case 11: bytes = (size_t{1} << below(random, 18)) + below(random, 5); break;
    case 12: bytes = (size_t{1} << (3 + below(random, 15))) - 1; break;
    case 13: bytes = 65536 * (1 + below(random, 4)) + below(random, 200) - 100; break;
    case 14: bytes = below(random, size_t{256} << 10); break;
    default: bytes = below(random, 8) == 0 ? below(random, most) : below(random, 40000);
  }
  return std::min(bytes, most);
}

}  // namespace rma_client
