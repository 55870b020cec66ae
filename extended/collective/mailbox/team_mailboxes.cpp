// Implements the mailboxes of a team. mailbox_operations.cpp sends and receives; mailbox_team.cpp writes into
// the memory of other members.
#include "extended/collective/mailbox/team_mailboxes.hpp"

#include "extended/collective/steps/hypercube.hpp"

namespace hydrant {

Rank TeamMailboxes::peer_at(Rank rank, Rank size, uint32_t edge) noexcept {
  const Hypercube cube(size);
  const auto fold = static_cast<uint32_t>(std::countr_zero(cube.vertices()));
  if (cube.is_represented(rank)) return edge == fold ? rank + 1 : kNoRank;
  if (edge < fold) return cube.member_at(cube.vertex_of(rank) ^ uint32_t{1} << edge);
  return edge == fold && cube.represents(rank) ? rank - 1 : kNoRank;
}

uint32_t TeamMailboxes::edge_to(Rank peer) const noexcept {
  const Hypercube cube(config_.size);
  // 0 between a member and that which represents it.
  const uint32_t difference = cube.vertex_of(config_.rank) ^ cube.vertex_of(peer);
  const auto edge =
      static_cast<uint32_t>(std::countr_zero(difference != 0 ? difference : cube.vertices()));
  return has_mailboxes(edge) && peer_at(config_.rank, config_.size, edge) == peer ? edge : kNoEdge;
}

void TeamMailboxes::complete(uint64_t number) noexcept {
  completed_mask_ |= uint32_t{1} << (number - completed_);
  for (; (completed_mask_ & 1) != 0; ++completed_) completed_mask_ >>= 1;
}

Status TeamMailboxes::send(uint32_t edge, uint64_t number, const mailbox_line::Header& header,
                           const std::byte* data, size_t bytes) noexcept {
  uint64_t words[MailboxLine::kWords];
  mailbox_line::write(words, header, data, bytes);
  return config_.writer->post(edge, static_cast<uint32_t>(number % kLines), words,
                              mailbox_line::words_of(bytes));
}

TeamMailboxes::Found TeamMailboxes::find(uint32_t edge, uint64_t number, size_t bytes,
                                         const mailbox_line::Header& mine,
                                         mailbox_line::Header* theirs) const noexcept {
  const MailboxLine& line = line_of(edge, number);
  const uint64_t first = line.words[0].load(std::memory_order_acquire);
  if (!mailbox_line::is_written(first)) return Found::kNothing;
  // Before the other words: the peer may have written another number of them.
  if (first != mailbox_line::word_of(mine)) [[unlikely]] {
    *theirs = mailbox_line::header_in(first);
    return Found::kOther;
  }
  for (uint32_t i = 1; i < mailbox_line::words_of(bytes); ++i) {
    if (!mailbox_line::is_written(line.words[i].load(std::memory_order_acquire)))
      return Found::kNothing;
  }
  return Found::kLine;
}

TeamMailboxes::Found TeamMailboxes::receive(uint32_t edge, uint64_t number, size_t bytes,
                                            const mailbox_line::Header& mine, std::byte* to,
                                            mailbox_line::Header* theirs) noexcept {
  const Found found = find(edge, number, bytes, mine, theirs);
  if (found != Found::kLine) return found;
  MailboxLine& line = line_of(edge, number);
  mailbox_line::read(line, to, bytes);
  for (uint32_t i = 0; i < mailbox_line::words_of(bytes); ++i)
    line.words[i].store(0, std::memory_order_relaxed);
  return found;
}

bool TeamMailboxes::find_next(uint32_t edge, mailbox_line::Header* theirs) const noexcept {
  const uint64_t first = line_of(edge, begun_.load(std::memory_order_relaxed))
                             .words[0]
                             .load(std::memory_order_acquire);
  if (!mailbox_line::is_written(first)) return false;
  *theirs = mailbox_line::header_in(first);
  return true;
}

}  // namespace hydrant
