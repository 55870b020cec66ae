// Checks the limits of the options, and computes how much registered memory and how many queue entries they
// need: docs/verbs.md, "Objects of a process". ibv_transport_open.cpp calls it.
#include "rdma/ibv/settings/ibv_options.hpp"

#include "rdma/config/job_knobs.hpp"
#include "rdma/ibv/device/datagram_pair.hpp"
#include "rdma/ibv/registrar/verbs_memory.hpp"
#include "rdma/ibv/wire/ibv_wire.hpp"

#include <algorithm>
#include <string_view>

namespace hydrant::ibv {

namespace {

constexpr uint32_t kLineBytes = 64;
constexpr uint32_t kMaxJoined = 65536;

}  // namespace

uint32_t Options::receives_per_peer() const noexcept {
  return kLaneCount * credits + kControlCredits;
}

uint32_t Options::message_bytes() const noexcept { return eager_bytes + kHeaderBytes; }

uint32_t Options::slot_bytes() const noexcept {
  return (message_bytes() + kLineBytes - 1) / kLineBytes * kLineBytes;
}

uint32_t datagram_bytes(uint32_t rails) noexcept {
  return (kGrhBytes + static_cast<uint32_t>(handshake_bytes(rails)) + kLineBytes - 1) / kLineBytes *
         kLineBytes;
}

Options chosen_options() noexcept {
  Options options;
  options.eager_bytes = static_cast<uint32_t>((knob_number(JobKnob::kAmEager) + 7) / 8 * 8);
  options.credits = static_cast<uint32_t>(knob_number(JobKnob::kIbvCredits));
  options.relaxed_ordering = knob_number(JobKnob::kIbvRelaxedOrdering) != 0;
  options.handshakes.has_thread = knob_number(JobKnob::kIbvConnectThread) != 0;
  // The send queue has room for the credits of both lanes.
  options.send_depth = std::max(options.send_depth, 2 * options.credits);
  return options;
}

namespace {

std::optional<PutOrder> chosen_order() noexcept {
  const std::string_view chosen = knob_choice(JobKnob::kIbvOrder);
  if (chosen == "ordered") return PutOrder::kOrdered;
  if (chosen == "unordered") return PutOrder::kUnordered;
  if (chosen == "relaxed") return PutOrder::kRelaxed;
  return std::nullopt;
}

}  // namespace

PortSettings chosen_port_settings() noexcept {
  return {.pkey = static_cast<uint16_t>(knob_number(JobKnob::kIbvPkey)),
          .service_level = static_cast<uint8_t>(knob_number(JobKnob::kIbvServiceLevel)),
          .traffic_class = static_cast<uint8_t>(knob_number(JobKnob::kIbvTrafficClass)),
          .order = chosen_order()};
}

Status check_options(const Options& o) noexcept {
  if (o.eager_bytes < MessageChannel::kMaxHeadBytes || o.eager_bytes > UINT16_MAX ||
      o.eager_bytes % 8 != 0)
    return fail(Status::kBadArg, "messages of %u bytes: between %u and %u, a multiple of 8",
                o.eager_bytes, MessageChannel::kMaxHeadBytes, UINT16_MAX - 7);
  if (o.cell_bytes == 0 || o.cell_bytes % kLineBytes != 0)
    return fail(Status::kBadArg, "cells of %u bytes: a multiple of %u", o.cell_bytes, kLineBytes);
  // A report returns half of the credits together, and control messages need room beside messages and cells.
  if (o.credits < 4 || o.credits > 4096 || o.receive_slots < 2 || o.receive_slots > 256 ||
      o.cells == 0 || o.cells > 4096 || o.send_depth < 16 || o.send_depth > 16384 ||
      o.operations == 0)
    return fail(Status::kBadArg,
                "%u credits (4 to 4096), %u receive slots (2 to 256), %u cells (1 to 4096), a send "
                "queue of %u (16 to 16384), %u operations (1 or more)",
                o.credits, o.receive_slots, o.cells, o.send_depth, o.operations);
  if (o.max_joined > kMaxJoined)
    return fail(Status::kBadArg, "room for %u processes of other groups: %u are the most",
                o.max_joined, kMaxJoined);
  return Status::kOk;
}

Needs needs_of(const Options& options, const Port& port, uint32_t ports) noexcept {
  const uint64_t receives = options.receives_per_peer();
  const auto pages = [](uint64_t bytes) { return VerbsMemory::registered_bytes(bytes); };
  Needs needs;
  needs.bytes_at_start =
      kLaneCount * pages(uint64_t{options.cells} * options.cell_bytes) +
      pages(uint64_t{kDatagramReceives + kDatagramSends} * datagram_bytes(ports - 1)) +
      (ports - 1) * pages(1);
  needs.bytes_per_peer = pages((options.send_slots() + receives) * options.slot_bytes()) +
                         pages(uint64_t{kLaneCount} * options.receive_slots * options.cell_bytes);
  // Without a shared receive queue each queue pair has its own.
  const uint64_t by_receives = port.max_receives != 0 ? port.max_receives / receives : UINT32_MAX;
  needs.max_peers = static_cast<uint32_t>(
      std::min({by_receives, uint64_t{port.max_completions} / options.completions_per_peer(),
                uint64_t{std::max(port.max_queue_pairs, 1u) - 1}}));
  return needs;
}

uint64_t Needs::peers_within(uint64_t limit) const noexcept {
  const uint64_t room = limit - limit / kPartForPins;
  return room < bytes_at_start ? 0 : (room - bytes_at_start) / bytes_per_peer;
}

uint64_t Needs::kept_of(uint64_t limit, uint32_t peers) const noexcept {
  const uint64_t wanted = bytes_at_start + uint64_t{std::min(peers, max_peers)} * bytes_per_peer;
  return std::min(wanted, limit - limit / kPartForPins);
}

}  // namespace hydrant::ibv
