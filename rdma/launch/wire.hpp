// What a rank and its supervisor say to each other. Two sockets per rank, both SOCK_SEQPACKET, so that a
// message is whole or not there:
//
//   calls   the rank asks (Request, card behind it), the supervisor answers with the same id (Reply, card
//           or text behind it). One call at a time.
//   words   what nobody asked for: the supervisor's Word to the rank, the rank's leave and start failure
//           (also as Word) to the supervisor.
//
// Both sides are on one machine and of one version: the magic holds it. What is received is checked in
// full before anything of it is used.
#pragma once

#include "firehose/base/status.hpp"
#include "rdma/bootstrap.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace hydrant::launch {

inline constexpr uint32_t kMagic = 0x48594431;  // "HYD1": changes with any of the structures
inline constexpr size_t kKeyRoom = 32;          // with its zero
inline constexpr size_t kTextRoom = 512;

enum class RequestKind : uint32_t { kHello = 1, kPut, kGet, kFence };

struct Request {
  uint32_t magic = kMagic;
  RequestKind kind = RequestKind::kHello;
  uint32_t id = 0;
  Rank rank = 0;  // kGet: whose card
  uint64_t deadline_ns =
      0;  // kGet, kFence: of CLOCK_MONOTONIC, which all processes of a machine share
  uint32_t card_bytes = 0;  // kPut: what follows
  uint32_t zero = 0;
  char key[kKeyRoom] = {};
};
static_assert(sizeof(Request) == 64);

struct Reply {
  uint32_t magic = kMagic;
  uint32_t id = 0;
  int32_t status = 0;  // a Status
  uint32_t bytes = 0;  // what follows: the card if kOk, else a text without a zero
};
static_assert(sizeof(Reply) == 16);

enum class WordKind : uint32_t {
  kExit = 1,      // to the rank: `rank` has ended the job with `code`
  kDeath,         // to the rank: `rank` was ended by `signal`
  kLeave,         // to the supervisor: this rank ends the job with `code`
  kStartFailure,  // to the supervisor: the program could not be run; `code` is the errno
};

struct Word {
  uint32_t magic = kMagic;
  WordKind kind = WordKind::kExit;
  Rank rank = 0;
  int32_t code = 0;
  int32_t signal = 0;
};
static_assert(sizeof(Word) == 20);

inline constexpr size_t kMaxMessage = sizeof(Request) + Bootstrap::kMaxCardBytes;
using MessageRoom = std::array<std::byte, kMaxMessage + 1>;  // one more: too long is seen

// A request and the card that follows it, or a reply and what follows it. False unless every field is one
// that the other side may send; *tail points into `message`.
bool read_request(std::span<const std::byte> message, Request* request,
                  std::span<const std::byte>* tail) noexcept;
bool read_reply(std::span<const std::byte> message, Reply* reply,
                std::span<const std::byte>* tail) noexcept;
bool read_word(std::span<const std::byte> message, Word* word) noexcept;

// Copies a key into a request; false if it is empty or too long.
bool set_key(std::string_view key, Request* request) noexcept;

// ---- sockets ----

// Sends head and tail as one message and never blocks. Errors: the errno (EAGAIN: no room now), 0 if sent.
int send_message(int fd, std::span<const std::byte> head,
                 std::span<const std::byte> tail = {}) noexcept;

// Receives one message without waiting. `got` is what came, empty if nothing did; *pid, if not null, becomes
// the sender's pid as this process sees it (needs SO_PASSCRED), 0 if unknown.
enum class Received : uint32_t { kMessage, kNothing, kEnd };
Received receive_message(int fd, MessageRoom* room, std::span<const std::byte>* got,
                         int* pid = nullptr) noexcept;

// Waits until `fd` can be read (or written) or now_ns() reaches the deadline; false at the deadline.
bool wait_readable(int fd, uint64_t deadline_ns) noexcept;
bool wait_writable(int fd, uint64_t deadline_ns) noexcept;

template <class T>
std::span<const std::byte> bytes_of(const T& value) noexcept {
  return std::as_bytes(std::span<const T, 1>(&value, 1));
}

}  // namespace hydrant::launch
