// Deliberate defects, which prove that simulated jobs (tests/simulation) can fail: each leaves out one rule.
// Compiled only where HYDRANT_MUTANTS is 1 (the test presets); elsewhere has_defect() is a constant false.
#pragma once

namespace hydrant {

enum class Defect {
  kNone,
  // of the verbs transport
  kEarlyMessage,   // a message does not wait for an earlier put over rails
  kNoFence,        // a put over a rail ends without a fence
  kEarlyFence,     // a fence does not wait for the writes of an unordered adapter
  kTooManySent,    // messages are sent without a credit
  kReusedSlot,     // a cell is written to a receive slot that may be in use
  kForgottenCell,  // a message that waits for a receive slot is never sent
  kNoReport,       // credits are not reported
  kReusedBuffer,   // the buffer of a message is free before the adapter has read it
  kForgottenWait,  // a put that waits for room does not end with its peer
  kNoProbe,        // idle peers are not probed
  kNoStallCheck,   // an adapter that reports nothing is not noticed
  kOneHandshake,   // a handshake is not repeated
  kFailureIsDone,  // an operation that fails ends with success
  kLostReceive,    // a receive buffer that the adapter refused is not posted again
  kEarlyContact,   // a rank says that it can receive before its buffers are posted
  // of barriers and mailboxes
  kRelaxedWords,    // barriers write words over relaxed adapters
  kRefusedWord,     // a barrier's word that is refused counts as sent
  kEarlyLine,       // a mailbox's line is written again before its reader has cleared it
  kUnorderedLines,  // ranks whose adapters do not keep the order have mailboxes
  // of remote pins, beside some of firehose/watch/mutant.hpp
  kKeptExports,  // memory that a lost peer held stays pinned
  kLostRecall,   // recalls that found no room are not sent again
  kLostRelease,  // released pins that found no room are not sent again
  kCount
};

#if HYDRANT_MUTANTS
inline Defect g_defect = Defect::kNone;
inline bool has_defect(Defect defect) noexcept { return g_defect == defect; }
#else
constexpr bool has_defect(Defect) noexcept { return false; }
#endif

}  // namespace hydrant
