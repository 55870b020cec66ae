// The arguments of messages that carry puts and gets: a pointer or a length takes two.
#pragma once

#include "am/handler/token.hpp"
#include "am/message/send.hpp"
#include "extended/event/completion_counter.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

namespace hydrant {

template <size_t kWords>
struct Args {
  std::array<int32_t, 2 * kWords> values;
};
template <typename... Words>
Args<sizeof...(Words)> pack_words(Words... words) noexcept {
  Args<sizeof...(Words)> args;
  size_t at = 0;
  const auto add = [&](uint64_t word) {
    args.values[at++] = static_cast<int32_t>(static_cast<uint32_t>(word));
    args.values[at++] = static_cast<int32_t>(static_cast<uint32_t>(word >> 32));
  };
  (add(words), ...);
  return args;
}
constexpr uint64_t join_words(int32_t low, int32_t high) noexcept {
  return uint64_t{static_cast<uint32_t>(high)} << 32 | static_cast<uint32_t>(low);
}
inline uint64_t counter_name(CompletionCounter& counter) noexcept {
  return reinterpret_cast<uintptr_t>(&counter);
}
inline CompletionCounter& named_counter(int32_t low, int32_t high) noexcept {
  return *reinterpret_cast<CompletionCounter*>(join_words(low, high));
}

// The common part of all messages.
template <size_t kWords>
OutgoingMessage rma_request(Rank peer, uint32_t handler, const Args<kWords>& args,
                            bool immediate) noexcept {
  return {.peer = peer,
          .handler = handler,
          .nargs = 2 * kWords,
          .args = args.values.data(),
          .immediate = immediate};
}

// Sends `message` as the reply to the message of the token. Ends the job if that fails, unless the job is
// ending.
void rma_reply(gex_Token_t token, OutgoingMessage message) noexcept;
// Replies to a put that it is complete, or that [at, at+bytes) of this rank is unreachable; 0 bytes: success.
// The words name the initiator's counter.
void reply_done(gex_Token_t token, int32_t low, int32_t high, uintptr_t at, size_t bytes) noexcept;

}  // namespace hydrant
