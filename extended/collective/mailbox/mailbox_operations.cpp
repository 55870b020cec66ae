// Executes reductions and barriers in mailboxes. mailbox_team.cpp starts them and gives them events.
#include "extended/collective/mailbox/mailbox_operations.hpp"

#include "extended/collective/steps/hypercube.hpp"

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

namespace hydrant {

MailboxOperations::MailboxOperations(const TeamMailboxes::Config& mailboxes,
                                     MailboxMessages* messages) noexcept
    : mailboxes_(mailboxes), messages_(messages) {
  add_steps(mailboxes.node_bits);
}

void MailboxOperations::add_steps(uint32_t node_bits) noexcept {
  using Kind = Step::Kind;
  const Hypercube cube(mailboxes_.size());
  const Rank rank = mailboxes_.rank();
  const auto rounds = static_cast<uint32_t>(std::countr_zero(cube.vertices()));
  const uint32_t fold = rounds;  // the edge between a member and that which represents it
  const uint32_t vertex = cube.vertex_of(rank);
  const auto is_upper = [&](uint32_t round) { return (vertex >> round & 1) != 0; };
  // The vertices behind whose edge this one stands alone.
  const uint32_t joined =
      std::min({node_bits, rounds, static_cast<uint32_t>(std::countr_zero(vertex))});

  if (cube.is_represented(rank)) {
    add(Kind::kSend, fold);
    add(Kind::kReplace, fold);
    return;
  }
  if (cube.represents(rank)) add(Kind::kLower, fold);
  for (uint32_t round = 0; round < joined; ++round) add(Kind::kHigher, round);
  if (joined < std::min(node_bits, rounds)) {
    add(Kind::kSend, joined);
    add(Kind::kReplace, joined);
  } else {
    for (uint32_t round = joined; round < rounds; ++round) {
      add(Kind::kSend, round);
      add(is_upper(round) ? Kind::kLower : Kind::kHigher, round);
    }
  }
  for (uint32_t round = joined; round-- != 0;) add(Kind::kSend, round);
  if (cube.represents(rank)) add(Kind::kSend, fold);
}

MailboxOperations::~MailboxOperations() {
  for (Pending** list : {&first_, &free_}) {
    while (*list != nullptr) delete std::exchange(*list, (*list)->next_);
  }
}

bool MailboxOperations::send(const Pending& pending, uint32_t edge) noexcept {
  const Call& call = pending.call;
  if (!mailboxes_.has_mailboxes(edge)) [[unlikely]]
    return messages_->send(edge, call.operation, call.signature, pending.vector_, call.bytes);
  return mailboxes_.send(edge, pending.line_,
                         mailbox_line::header_of(call.operation, call.signature), pending.vector_,
                         call.bytes) == Status::kOk;
}

bool MailboxOperations::receive(const Pending& pending, uint32_t edge, std::byte* to) noexcept {
  const Call& call = pending.call;
  if (!mailboxes_.has_mailboxes(edge)) [[unlikely]]
    return messages_->receive(edge, call.operation, call.signature, to, call.bytes);
  mailbox_line::Header theirs;
  const TeamMailboxes::Found found =
      mailboxes_.receive(edge, pending.line_, call.bytes,
                         mailbox_line::header_of(call.operation, call.signature), to, &theirs);
  if (found == TeamMailboxes::Found::kOther) [[unlikely]]
    messages_->refuse(edge, call.signature, theirs.signature);
  return found == TeamMailboxes::Found::kLine;
}

bool MailboxOperations::run_step(Pending& pending, const Step& step) noexcept {
  using Kind = Step::Kind;
  if (step.kind == Kind::kSend) return send(pending, step.edge);
  if (step.kind == Kind::kReplace) return receive(pending, step.edge, pending.vector_);
  alignas(64) std::byte received[MailboxLine::kMaxBytes];
  if (!receive(pending, step.edge, received)) return false;
  const Call& call = pending.call;
  if (call.bytes == 0) return true;
  // The lower ranks stand on the left. A function of the client leaves its result in the right operand.
  if (step.kind == Kind::kLower)
    call.reduction.combine(received, pending.vector_, pending.vector_, call.bytes);
  else
    call.reduction.combine(pending.vector_, received, pending.vector_, call.bytes);
  return true;
}

bool MailboxOperations::run(Pending& pending) noexcept {
  if (!mailboxes_.may_start(pending.line_)) return false;
  for (; pending.step_ < step_count_; ++pending.step_) {
    if (!run_step(pending, steps_[pending.step_])) return false;
  }
  if (pending.call.bytes != 0) std::memcpy(pending.call.dest, pending.vector_, pending.call.bytes);
  mailboxes_.complete(pending.line_);
  pending.is_done = true;
  return true;
}

bool MailboxOperations::start(const Call& call, Pending** pending) noexcept {
  *pending = nullptr;
  Pending* made =
      free_ != nullptr ? std::exchange(free_, free_->next_) : new (std::nothrow) Pending;
  if (made == nullptr) return false;
  made->is_done = false;
  made->call = call;
  made->line_ = mailboxes_.begin();
  made->step_ = 0;
  made->next_ = nullptr;
  if (call.bytes != 0) std::memcpy(made->vector_, call.source, call.bytes);
  if (run(*made)) {
    release(made);
    return true;
  }
  *std::exchange(end_, &made->next_) = made;
  *pending = made;
  return true;
}

uint32_t MailboxOperations::advance() noexcept {
  uint32_t completed = 0;
  for (Pending** link = &first_; *link != nullptr;) {
    Pending& each = **link;
    // The operations behind it have to wait, too.
    if (!mailboxes_.may_start(each.line_)) break;
    if (!run(each)) {
      link = &each.next_;
      continue;
    }
    *link = each.next_;
    if (end_ == &each.next_) end_ = link;
    ++completed;
  }
  return completed;
}

void MailboxOperations::release(Pending* pending) noexcept {
  pending->next_ = std::exchange(free_, pending);
}

uint32_t MailboxOperations::awaited_edge(const Pending& pending) const noexcept {
  if (pending.is_done || !mailboxes_.may_start(pending.line_)) return TeamMailboxes::kNoEdge;
  const Step& step = steps_[pending.step_];
  return step.kind == Step::Kind::kSend ? TeamMailboxes::kNoEdge : step.edge;
}

bool MailboxOperations::is_ready(const Pending& pending) noexcept {
  if (pending.is_done) return true;
  if (!mailboxes_.may_start(pending.line_)) return false;
  const uint32_t edge = awaited_edge(pending);
  if (edge == TeamMailboxes::kNoEdge) return true;
  const Call& call = pending.call;
  // A peer that makes another call may have sent a message in place of a line.
  if (messages_->has(edge, call.operation, call.signature)) return true;
  if (!mailboxes_.has_mailboxes(edge)) return false;
  mailbox_line::Header theirs;
  return mailboxes_.find(edge, pending.line_, call.bytes,
                         mailbox_line::header_of(call.operation, call.signature),
                         &theirs) != TeamMailboxes::Found::kNothing;
}

}  // namespace hydrant
