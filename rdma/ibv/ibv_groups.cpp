// Processes of another group, started apart from this one, become peers by their cards: docs/verbs.md,
// "Groups that meet". Cards travel by a path of the application's own, because the launcher of one group has
// nothing of another to hand out. Connecting is as between own ranks; what differs is who is called what.
#include "rdma/ibv/ibv_group_card.hpp"
#include "rdma/ibv/ibv_transport.hpp"

#include <cstdio>

namespace hydrant {

using ibv::GroupCard;
using ibv::Peer;

// A group is called what its rank 0 has drawn: nobody else draws that, and all its ranks can read it.
Status IbvTransport::learn_group() noexcept {
  if (group_ != 0) return Status::kOk;
  uint64_t nonce = nonce_;
  if (self_ != 0) {
    ibv::Card card;
    if (const Status status = read_card(0, &card); status != Status::kOk)
      return add_context(status, "to say what this group is called");
    nonce = card.address.nonce;
  }
  if (nonce == 0) return fail(Status::kBroken, "the card of rank 0 names no process");
  group_ = nonce;
  return Status::kOk;
}

Status IbvTransport::group_card(std::span<std::byte> blob, size_t* bytes) noexcept {
  const size_t needed = ibv::group_card_bytes(rail_count_);
  if (blob.size() < needed)
    return fail(Status::kBadArg,
                "the group card has %zu bytes, there is room for %zu: %zu are enough", needed,
                blob.size(), kMostGroupCardBytes);
  const MutexLock lock(contact_mu_);
  if (const Status status = learn_group(); status != Status::kOk) return status;
  GroupCard made{self_, ranks_, own_card(rail_count_)};
  made.card.group = group_;
  ibv::encode_group_card(made, blob.data());
  *bytes = needed;
  return Status::kOk;
}

// Of the first `count` that are joined; kNoRank: it is none of them.
Rank IbvTransport::number_of(uint64_t group, Rank rank, uint32_t count) const noexcept {
  for (uint32_t i = 0; i < count; ++i) {
    if (joined_[i].card.group == group && joined_[i].rank == rank) return ranks_ + i;
  }
  return kNoRank;
}

// Gives it a number, the next one unless it has one: *count, of those that have one, is moved on.
Status IbvTransport::admit(std::span<const std::byte> blob, uint32_t* count,
                           Rank* number) noexcept {
  GroupCard card;
  if (const Status status = ibv::decode_group_card(blob, &card); status != Status::kOk)
    return status;
  if (card.card.group == group_)
    return fail(
        Status::kBadArg,
        "the card of rank %u of this group: own ranks are peers by their rank, leave it out",
        card.rank);
  *number = number_of(card.card.group, card.rank, *count);
  if (*number != kNoRank) {
    if (joined_[*number - ranks_].card.address.nonce == card.card.address.nonce) return Status::kOk;
    return fail(Status::kBadArg,
                "rank %u of group %016llx is joined by another card: a group has one process of a "
                "rank in all its life",
                card.rank, static_cast<unsigned long long>(card.card.group));
  }
  const ibv::PeerName who = name_of(ranks_ + *count, card.rank, card.card.group);
  if (const Status status = check_settings(who, card.card); status != Status::kOk) return status;
  if (*count == options_.most_joined)
    return fail(Status::kResource,
                "no room for more than %u processes of other groups "
                "(IbvTransport::Options::most_joined): open the transport with more",
                options_.most_joined);
  joined_[*count] = card;
  *number = ranks_ + (*count)++;
  return Status::kOk;
}

Status IbvTransport::join(std::span<const std::span<const std::byte>> cards,
                          std::span<Rank> numbers) noexcept {
  if (numbers.size() < cards.size())
    return fail(Status::kBadArg, "%zu cards, and room for the numbers of %zu", cards.size(),
                numbers.size());
  const MutexLock lock(contact_mu_);
  if (const Status status = learn_group(); status != Status::kOk) return status;
  // Nobody reads what is behind the count until it is moved.
  uint32_t count = joined_count_.load(std::memory_order_relaxed);
  for (size_t i = 0; i < cards.size(); ++i) {
    if (const Status status = admit(cards[i], &count, &numbers[i]); status != Status::kOk)
      return add_context(status, "card %zu of %zu, nobody is joined", i + 1, cards.size());
  }
  joined_count_.store(count, std::memory_order_release);
  return Status::kOk;
}

// By which number whoever has sent it is a peer; kNoRank, and a text: it is none. Who is not joined here yet
// is not answered, and asks again.
Rank IbvTransport::sender_of(const ibv::Greeting& greeting) noexcept {
  const uint64_t group = greeting.card.group;
  if (greeting.to != self_ || greeting.to_nonce != nonce_) {
    (void)fail(Status::kBadArg, "a greeting from rank %u to rank %u of another job", greeting.from,
               greeting.to);
    return kNoRank;
  }
  if (group == 0) {
    if (greeting.from < ranks_ && greeting.from != self_ && greeting.known_as == self_)
      return greeting.from;
    (void)fail(Status::kBadArg, "a greeting from rank %u, to whom this is rank %u", greeting.from,
               greeting.known_as);
    return kNoRank;
  }
  const Rank number =
      number_of(group, greeting.from, joined_count_.load(std::memory_order_relaxed));
  if (number == kNoRank) {
    counts_.early.fetch_add(1, std::memory_order_relaxed);
    (void)fail(Status::kBadArg, "a greeting from rank %u of group %016llx, which is not joined",
               greeting.from, static_cast<unsigned long long>(group));
    return kNoRank;
  }
  if (joined_[number - ranks_].card.address.nonce == greeting.card.address.nonce) return number;
  (void)fail(Status::kBadArg, "a greeting as from rank %u of group %016llx, by another process",
             greeting.from, static_cast<unsigned long long>(group));
  return kNoRank;
}

ibv::PeerName IbvTransport::name_of(Rank number, Rank their_rank, uint64_t group) noexcept {
  ibv::PeerName name;
  if (group == 0) {
    std::snprintf(name.text, sizeof name.text, "rank %u", number);
  } else {
    std::snprintf(name.text, sizeof name.text, "peer %u (rank %u of group %016llx)", number,
                  their_rank, static_cast<unsigned long long>(group));
  }
  return name;
}

}  // namespace hydrant
