// The mailboxes of a team whose members are on several nodes: small data of collective operations go from
// member to member by RDMA, one line (mailbox_line.hpp) for each send of a schedule.
//
// A member has kLines lines for each edge of the team's hypercube (hypercube.hpp) that it is at, which the
// member at the other end writes. The operations that use mailboxes have consecutive numbers, the same on all
// members. Operation n uses line n % kLines of an edge, in each direction at most once.
//
// When a line is used again, its reader has read it:
//  (1) A member starts operation n when it has completed all operations up to n - kWindow.
//  (2) All operations synchronise: no member completes one before all members have started it.
//  So a member that starts operation n has completed operation n - kWindow. By (2) all members have started
//  that, so by (1) they have completed the operations up to n - kLines. An operation is complete when its
//  lines are read and cleared. So no credits travel, and a line says nothing about other lines.
//
// Nothing waits for ever: the first operation that is incomplete anywhere may always start.
//
// The memory can pass to another team when this member has completed all operations: it has then read and
// cleared all lines that the others have ever written here. They write here for the other team only after
// this member has offered the memory for it.
//
// Order of memory: a member clears a line before it takes part in the operation that permits the next use
// (release and acquire among its threads, the order of a post and the stores before it, then the same at the
// other members). Ranks whose adapters may execute a write twice have no mailboxes.
//
// Edges between members that cannot write into each other's memory have no mailboxes; the same operations
// then send messages there, and obey (1) and (2).
//
// Threads: one at a time; find_next() and edge_to() any.
#pragma once

#include "extended/collective/mailbox/mailbox_line.hpp"
#include "firehose/base/planted_defect.hpp"
#include "firehose/base/status.hpp"
#include "rdma/bootstrap/bootstrap.hpp"

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace hydrant {

// Writes lines into the mailboxes of other members. Never waits, runs no handlers.
class MailboxWriter {
 public:
  // Writes the first words of line `line` of `edge` of the member at the other end. kOk: they will arrive
  // without further action of this rank. Other codes: not sent, retry later; the implementation itself ends
  // the job if retrying cannot help.
  virtual Status post(uint32_t edge, uint32_t line, const uint64_t* words,
                      uint32_t count) noexcept = 0;

 protected:
  ~MailboxWriter() = default;
};

class TeamMailboxes {
 public:
  static constexpr uint32_t kLines = 32;
  static constexpr uint32_t kWindow = kLines / 2;
  static constexpr uint32_t kMaxEdges = 33;
  static constexpr uint32_t kNoEdge = UINT32_MAX;

  // The edges of a member of a team of `size`, at most: one for each bit, and one between a member and that
  // which represents it.
  static constexpr uint32_t edges_of(Rank size) noexcept {
    return static_cast<uint32_t>(std::bit_width(size - 1));
  }
  static constexpr size_t bytes_of(Rank size) noexcept {
    return size_t{edges_of(size)} * kLines * sizeof(MailboxLine);
  }
  static constexpr size_t offset_of(uint32_t edge, uint32_t line) noexcept {
    return (size_t{edge} * kLines + line) * sizeof(MailboxLine);
  }
  // The member at the other end; kNoRank if the member is not at this edge.
  static Rank peer_at(Rank rank, Rank size, uint32_t edge) noexcept;

  struct Config {
    Rank rank = 0;
    Rank size = 1;
    MailboxLine* lines = nullptr;  // this member's: bytes_of(size), zero
    uint64_t edges = 0;            // bit i: edge i has mailboxes, at both ends
    uint32_t node_bits = 0;        // as Member::node_bits; 0: one level
    MailboxWriter* writer = nullptr;
  };
  explicit TeamMailboxes(const Config& config) noexcept : config_(config) {}
  TeamMailboxes(const TeamMailboxes&) = delete;
  TeamMailboxes& operator=(const TeamMailboxes&) = delete;

  Rank rank() const noexcept { return config_.rank; }
  Rank size() const noexcept { return config_.size; }

  // The number of the next operation.
  uint64_t begin() noexcept {
    const uint64_t number = begun_.load(std::memory_order_relaxed);
    begun_.store(number + 1, std::memory_order_relaxed);
    return number;
  }
  bool may_start(uint64_t number) const noexcept {
    return number < completed_ + (has_defect(Defect::kEarlyLine) ? kLines : kWindow);
  }
  void complete(uint64_t number) noexcept;

  bool has_mailboxes(uint32_t edge) const noexcept { return (config_.edges >> edge & 1) != 0; }
  // kNoEdge: the peer is not at an edge of this member, or there are no mailboxes at it.
  uint32_t edge_to(Rank peer) const noexcept;
  // Errors: as MailboxWriter::post().
  Status send(uint32_t edge, uint64_t number, const mailbox_line::Header& header,
              const std::byte* data, size_t bytes) noexcept;
  // kNothing: the line is not there yet. kOther: the peer's call differs, and its header is in *theirs.
  enum class Found : uint8_t { kNothing, kLine, kOther };
  Found find(uint32_t edge, uint64_t number, size_t bytes, const mailbox_line::Header& mine,
             mailbox_line::Header* theirs) const noexcept;
  // As find(). kLine: `to` has the data, and the line is free.
  Found receive(uint32_t edge, uint64_t number, size_t bytes, const mailbox_line::Header& mine,
                std::byte* to, mailbox_line::Header* theirs) noexcept;
  // True if the peer has sent something for the operation that is this member's next one.
  bool find_next(uint32_t edge, mailbox_line::Header* theirs) const noexcept;

 private:
  MailboxLine& line_of(uint32_t edge, uint64_t number) const noexcept {
    return config_.lines[uint64_t{edge} * kLines + number % kLines];
  }

  const Config config_;
  std::atomic<uint64_t> begun_{0};  // operations
  uint64_t completed_ = 0;          // all operations below this number are complete
  uint32_t completed_mask_ = 0;     // bit i: operation completed_ + i is complete
};

}  // namespace hydrant
