// An event of a trace: 64 bytes of numbers and pointers to static texts. Records are formatted when a ring is
// drained, not when the event happens.
#pragma once

#include <cstdint>

namespace hydrant {

enum class TraceKind : uint8_t {
  kCall,        // a public call, from `start` to `end`
  kTransfer,    // a put or get outside a call, or a further one of the same call
  kSend,        // an Active Message was sent
  kRun,         // the handler of an Active Message ran
  kMiss,        // the pin cache registered memory, or failed to
  kText,        // a text of the client; `detail` is from malloc and belongs to the record
  kSourceLine,  // a line of the client's source, for the records that follow; no event of its own
};

inline constexpr uint32_t kNoTracePeer = UINT32_MAX;

struct TraceRecord {
  uint64_t start = 0;  // ticks of TraceClock
  uint64_t end = 0;
  const char* name = nullptr;    // the call; kSourceLine: the file
  const char* detail = nullptr;  // the path of a put or get; kText: the text
  uint64_t bytes = 0;
  uint64_t number = 0;  // of the message in its lane; kMiss: the address; kSourceLine: the line;
                        // kCall: how many polls, if several
  uint32_t peer = kNoTracePeer;
  uint16_t handler = 0;
  TraceKind kind = TraceKind::kCall;
  uint8_t category = 0;  // of the message
  uint8_t lane = 0;      // 0 request, 1 reply; kTransfer: 0 put, 1 get
  uint8_t arguments = 0;
  char letter = 0;         // kText: of its mask; 0 otherwise
  bool is_failed = false;  // kMiss
  uint32_t unused = 0;
};
static_assert(sizeof(TraceRecord) == 64);

}  // namespace hydrant
