// Executes reductions and barriers in mailboxes. mailbox_team.cpp starts them and gives them events.
#include "extended/collective/mailbox/mailbox_operations.hpp"

#include <bit>
#include <new>
#include <utility>

namespace hydrant {

MailboxOperations::MailboxOperations(const TeamMailboxes::Config& mailboxes,
                                     MailboxMessages* messages) noexcept
    : mailboxes_(mailboxes),
      messages_(messages),
      cube_(mailboxes.size),
      fold_(static_cast<uint32_t>(std::countr_zero(cube_.vertices()))),
      vertex_(cube_.vertex_of(mailboxes.rank)),
      is_represented_(cube_.is_represented(mailboxes.rank)),
      represents_(cube_.represents(mailboxes.rank)) {}

MailboxOperations::~MailboxOperations() {
  while (free_ != nullptr) delete std::exchange(free_, free_->next);
}

bool MailboxOperations::send(const Pending& pending, uint32_t edge) noexcept {
  const Call& call = pending.call;
  if (!mailboxes_.has_mailboxes(edge)) [[unlikely]]
    return messages_->send(edge, call.operation, call.signature, pending.vector, call.bytes);
  return mailboxes_.send(edge, pending.line,
                         mailbox_line::header_of(call.operation, call.signature), pending.vector,
                         call.bytes) == Status::kOk;
}

bool MailboxOperations::receive(const Pending& pending, uint32_t edge, std::byte* to) noexcept {
  const Call& call = pending.call;
  if (!mailboxes_.has_mailboxes(edge)) [[unlikely]]
    return messages_->receive(edge, call.operation, call.signature, to, call.bytes);
  mailbox_line::Header theirs;
  const TeamMailboxes::Found found =
      mailboxes_.receive(edge, pending.line, call.bytes,
                         mailbox_line::header_of(call.operation, call.signature), to, &theirs);
  if (found == TeamMailboxes::Found::kOther) [[unlikely]]
    messages_->refuse(edge, call.signature, theirs.signature);
  return found == TeamMailboxes::Found::kLine;
}

bool MailboxOperations::run_fold(Pending& pending) noexcept {
  if (is_represented_) {
    if (!send(pending, fold_)) return false;
    pending.step = last_step();
    return true;
  }
  if (represents_) {
    alignas(64) std::byte received[MailboxLine::kMaxBytes];
    if (!receive(pending, fold_, received)) return false;
    if (pending.call.bytes != 0)
      pending.call.reduction.combine(received, pending.vector, pending.vector, pending.call.bytes);
  }
  pending.step = 1;
  return true;
}

bool MailboxOperations::run_round(Pending& pending, uint32_t edge) noexcept {
  if (!pending.is_sent && !send(pending, edge)) return false;
  pending.is_sent = true;
  alignas(64) std::byte received[MailboxLine::kMaxBytes];
  if (!receive(pending, edge, received)) return false;
  const Call& call = pending.call;
  if (call.bytes != 0) {
    // The lower ranks stand on the left. A function of the client leaves its result in the right operand.
    if ((vertex_ >> edge & 1) != 0)
      call.reduction.combine(received, pending.vector, pending.vector, call.bytes);
    else
      call.reduction.combine(pending.vector, received, pending.vector, call.bytes);
  }
  pending.is_sent = false;
  ++pending.step;
  return true;
}

bool MailboxOperations::run_unfold(Pending& pending) noexcept {
  if (represents_) return send(pending, fold_);
  return !is_represented_ || receive(pending, fold_, pending.vector);
}

// True: the operation is complete.
bool MailboxOperations::run(Pending& pending) noexcept {
  if (!mailboxes_.may_start(pending.line)) return false;
  if (pending.step == 0 && !run_fold(pending)) return false;
  while (pending.step < last_step()) {
    if (!run_round(pending, pending.step - 1)) return false;
  }
  if (!run_unfold(pending)) return false;
  if (pending.call.bytes != 0) std::memcpy(pending.call.dest, pending.vector, pending.call.bytes);
  mailboxes_.complete(pending.line);
  pending.is_done = true;
  return true;
}

bool MailboxOperations::start(const Call& call, Pending** pending) noexcept {
  *pending = nullptr;
  Pending* made = free_ != nullptr ? std::exchange(free_, free_->next) : new (std::nothrow) Pending;
  if (made == nullptr) return false;
  made->is_done = false;
  made->call = call;
  made->line = mailboxes_.begin();
  made->step = 0;
  made->is_sent = false;
  made->next = nullptr;
  if (call.bytes != 0) std::memcpy(made->vector, call.source, call.bytes);
  if (run(*made)) {
    release(made);
    return true;
  }
  *std::exchange(end_, &made->next) = made;
  *pending = made;
  return true;
}

uint32_t MailboxOperations::advance() noexcept {
  uint32_t completed = 0;
  for (Pending** link = &first_; *link != nullptr;) {
    Pending& each = **link;
    if (!run(each)) {
      link = &each.next;
      continue;
    }
    *link = each.next;
    if (end_ == &each.next) end_ = link;
    ++completed;
  }
  return completed;
}

void MailboxOperations::release(Pending* pending) noexcept {
  pending->next = std::exchange(free_, pending);
}

uint32_t MailboxOperations::awaited_edge(const Pending& pending) const noexcept {
  if (pending.is_done || !mailboxes_.may_start(pending.line)) return TeamMailboxes::kNoEdge;
  if (pending.step == 0) return represents_ ? fold_ : TeamMailboxes::kNoEdge;
  if (pending.step == last_step()) return is_represented_ ? fold_ : TeamMailboxes::kNoEdge;
  return pending.is_sent ? pending.step - 1 : TeamMailboxes::kNoEdge;
}

bool MailboxOperations::is_ready(const Pending& pending) noexcept {
  if (pending.is_done) return true;
  if (!mailboxes_.may_start(pending.line)) return false;
  const uint32_t edge = awaited_edge(pending);
  if (edge == TeamMailboxes::kNoEdge) return true;
  const Call& call = pending.call;
  // A peer that makes another call may have sent a message in place of a line.
  if (messages_->has(edge, call.operation, call.signature)) return true;
  if (!mailboxes_.has_mailboxes(edge)) return false;
  mailbox_line::Header theirs;
  return mailboxes_.find(edge, pending.line, call.bytes,
                         mailbox_line::header_of(call.operation, call.signature),
                         &theirs) != TeamMailboxes::Found::kNothing;
}

}  // namespace hydrant
