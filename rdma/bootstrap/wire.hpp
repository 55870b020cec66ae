// The messages between a rank and its supervisor. Each rank has two sockets of type SOCK_SEQPACKET, which
// deliver whole messages:
//
//   calls   requests of the rank (Request, followed by an entry) and the supervisor's reply with the same id
//           (Reply, followed by an entry or text). One call at a time.
//   events  one-way messages of type Event: exits and deaths to the rank; leave and start failure to the
//           supervisor.
//
// Both sides are on one machine and of one version, which the magic ensures. Receivers validate a message
// completely before they use any of it.
#pragma once

#include "firehose/base/status.hpp"
#include "rdma/bootstrap/bootstrap.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace hydrant::launch {

inline constexpr uint32_t kMagic =
    0x48594432;                         // "HYD2": changes with every change of the structures
inline constexpr size_t kKeyRoom = 32;  // including the terminator
inline constexpr size_t kTextRoom = 512;

inline constexpr Rank kMaxRanks = 4096;  // of a job with a supervisor

// The rank's ends of its two sockets, close-on-exec and never 0, 1 or 2.
struct RankSockets {
  int calls = -1;
  int events = -1;
};

enum class RequestKind : uint32_t { kHello = 1, kPut, kGet, kFence };

struct Request {
  uint32_t magic = kMagic;
  RequestKind kind = RequestKind::kHello;
  uint32_t id = 0;
  Rank rank = 0;  // kGet: the owner of the entry
  // kGet, kFence: of CLOCK_MONOTONIC, which all processes of a machine share.
  uint64_t deadline_ns = 0;
  uint32_t value_bytes = 0;  // kPut: length of the entry that follows
  uint32_t zero = 0;
  char key[kKeyRoom] = {};
};
static_assert(sizeof(Request) == 64);

struct Reply {
  uint32_t magic = kMagic;
  uint32_t id = 0;
  int32_t status = 0;  // a Status
  uint32_t bytes = 0;  // length of what follows: the entry if kOk, else a text without terminator
};
static_assert(sizeof(Reply) == 16);

enum class EventKind : uint32_t {
  kExit = 1,      // to the rank: `rank` has ended the job with `code`
  kDeath,         // to the rank: `rank` was ended by `signal`
  kLeave,         // to the supervisor: this rank ends the job with `code`
  kStartFailure,  // to the supervisor: the program could not be run; `code` is the errno
};

struct Event {
  uint32_t magic = kMagic;
  EventKind kind = EventKind::kExit;
  Rank rank = 0;
  int32_t code = 0;
  int32_t signal = 0;
  ExitReason how = ExitReason::kExit;  // kLeave
};
static_assert(sizeof(Event) == 24);

inline constexpr size_t kMaxMessage = sizeof(Request) + Bootstrap::kMaxValueBytes;
using MessageRoom =
    std::array<std::byte, kMaxMessage + 1>;  // one extra byte detects messages that are too long

// Parse a request and its entry, a reply and its tail, or an event. False unless every field is valid for the
// sending side; *tail points into `message`.
bool read_request(std::span<const std::byte> message, Request* request,
                  std::span<const std::byte>* tail) noexcept;
bool read_reply(std::span<const std::byte> message, Reply* reply,
                std::span<const std::byte>* tail) noexcept;
bool read_event(std::span<const std::byte> message, Event* event) noexcept;

// Copies a key into a request; false if it is empty or too long.
bool set_key(std::string_view key, Request* request) noexcept;

// ---- sockets ----

// Sends head and tail as one message, without blocking. 0 if sent, else the errno (EAGAIN: no room now).
int send_message(int fd, std::span<const std::byte> head,
                 std::span<const std::byte> tail = {}) noexcept;

// Receives one message without waiting. `got` is the message, empty if there is none. *pid, if not null,
// becomes the sender's pid in this process's namespace (needs SO_PASSCRED), 0 if unknown.
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
