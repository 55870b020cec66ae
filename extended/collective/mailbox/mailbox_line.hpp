// A line of a mailbox: small data of a collective operation, which an adapter writes into a member's memory.
//
// The first word has the number and the signature of the operation, each other word seven bytes of data.
// Every byte of a written word has its top bit set, and a free line is zero. So a partially written word is
// recognised, whatever the order of its bytes, and the adapter only has to write each byte once
// (barrier_rdma_state.hpp). The receiver clears what it has read.
#pragma once

#include "extended/barrier/barrier_rdma_state.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace hydrant {

struct alignas(64) MailboxLine {
  static constexpr size_t kMaxBytes = 48;
  static constexpr uint32_t kWords = 8;
  static constexpr uint32_t kNumberBits = 24;  // of the operation's number in the first word

  std::atomic<uint64_t> words[kWords];
};
static_assert(sizeof(MailboxLine) == 64);

namespace mailbox_line {

inline constexpr size_t kBytesPerWord = 7;
// The bits that are set in each written word.
inline constexpr uint64_t kWritten = barrier_word::kPhases;

constexpr uint32_t words_of(size_t bytes) noexcept {
  return 1 + static_cast<uint32_t>((bytes + kBytesPerWord - 1) / kBytesPerWord);
}
static_assert(words_of(MailboxLine::kMaxBytes) == MailboxLine::kWords);

constexpr bool is_written(uint64_t word) noexcept { return (word & kWritten) == kWritten; }

// The contents of the first word. Members compare it: a difference means that their calls differ.
struct Header {
  uint32_t number = 0;  // of the operation within the team, modulo 2^24
  uint32_t signature = 0;

  friend constexpr bool operator==(const Header&, const Header&) = default;
};
constexpr Header header_of(uint32_t number, uint32_t signature) noexcept {
  return {.number = number & ((1u << MailboxLine::kNumberBits) - 1), .signature = signature};
}
constexpr uint64_t word_of(const Header& header) noexcept {
  return kWritten | barrier_word::spread(uint64_t{header.number} << 32 | header.signature);
}
constexpr Header header_in(uint64_t word) noexcept {
  const uint64_t bits = barrier_word::gather(word & ~kWritten);
  return {.number = static_cast<uint32_t>(bits >> 32), .signature = static_cast<uint32_t>(bits)};
}

// Fills words_of(bytes) words.
inline void write(uint64_t* words, const Header& header, const std::byte* data,
                  size_t bytes) noexcept {
  *words++ = word_of(header);
  for (size_t done = 0; done < bytes; done += kBytesPerWord) {
    uint64_t bits = 0;
    std::memcpy(&bits, data + done, std::min(kBytesPerWord, bytes - done));
    *words++ = kWritten | barrier_word::spread(bits);
  }
}
// Copies the data of a written line.
inline void read(const MailboxLine& line, std::byte* data, size_t bytes) noexcept {
  const std::atomic<uint64_t>* word = line.words;
  for (size_t done = 0; done < bytes; done += kBytesPerWord) {
    const uint64_t bits =
        barrier_word::gather((++word)->load(std::memory_order_relaxed) & ~kWritten);
    std::memcpy(data + done, &bits, std::min(kBytesPerWord, bytes - done));
  }
}

}  // namespace mailbox_line
}  // namespace hydrant
