// hydrant-info's facts about transports: which one the ranks of a job on this machine would use, and why not
// others.
#pragma once

#include "firehose/base/machine/machine_limits.hpp"
#include "rdma/config/job_knobs.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>
#if HYDRANT_HAVE_IBV
#include "rdma/ibv/device/ibv_port_choice.hpp"
#include "rdma/ibv/device/port_distance.hpp"
#include "rdma/ibv/ibv_transport.hpp"

#include <arpa/inet.h>
#endif

#include <nlohmann/json.hpp>

namespace hydrant::info {

using Json = nlohmann::ordered_json;

#if HYDRANT_HAVE_IBV

inline std::string gid_text(const ibv_gid& gid) {
  char text[INET6_ADDRSTRLEN] = "";
  return inet_ntop(AF_INET6, gid.raw, text, sizeof text) != nullptr ? text : "?";
}

// `rails` is the number of chosen ports.
inline Json describe_port(const ibv::PortReport& report, uint32_t rails,
                          const MachineLimits& limits) {
  const ibv::Port& port = report.port;
  Json row = {
      {"device", port.name},
      {"port", port.number},
      {"usable", report.is_usable},
      {"chosen", report.is_chosen},
      {"place", report.is_chosen ? Json(report.place) : Json()},
      {"distance", report.distance == ibv::kUnknownDistance ? Json() : Json(report.distance)},
      {"reason", report.is_usable ? Json() : Json(report.reason)},
      {"left_out", report.left_out.empty() ? Json() : Json(report.left_out)}};
  if (!report.is_usable) return row;
  const ibv::Needs needs = ibv::needs_of(ibv::chosen_options(), port, std::max(rails, 1U));
  row["link"] = port.is_ethernet ? "ethernet" : "infiniband";
  row["rate_mbps"] = port.rate_mbps == 0 ? Json() : Json(port.rate_mbps);
  row["gid_index"] = port.gid_index;
  row["gid"] = gid_text(port.gid);
  row["lid"] = port.lid;
  row["pkey"] = port.pkey == 0 ? Json() : Json(port.pkey);
  row["mtu_bytes"] = 128U << port.mtu;
  row["max_message_bytes"] = port.max_message_bytes;
  row["on_demand_paging"] = report.on_demand;
  row["atomics"] = port.atomics == IBV_ATOMIC_NONE  ? Json()
                   : port.atomics == IBV_ATOMIC_HCA ? Json("adapter")
                                                    : Json("global");
  row["most_peers"] = needs.max_peers;
  row["bytes_at_start"] = needs.bytes_at_start;
  row["bytes_per_peer"] = needs.bytes_per_peer;
  // The number of peers that memlock allows, if it applies.
  uint64_t peers = needs.max_peers;
  if (!limits.memlock_lifted && limits.memlock_bytes != kUnlimited)
    peers = needs.peers_within(limits.memlock_bytes);
  row["most_peers_by_memlock"] = peers;
  return row;
}

inline Json describe_ports(const MachineLimits& limits, Json* passed_by, std::string* why) {
  Json rows = Json::array();
  const std::string wanted(knob_text(JobKnob::kIbvPorts));
  const ibv::PortReports reports =
      ibv::report_ports(wanted.c_str(), ibv::kMaxRails, ibv::chosen_port_settings());
  uint32_t rails = 0;
  for (const ibv::PortReport& report : reports.all) rails += report.is_chosen ? 1 : 0;
  for (const ibv::PortReport& report : reports.all)
    rows.push_back(describe_port(report, rails, limits));
  for (const auto& [item, reason] : reports.passed_by)
    passed_by->push_back({{"item", item}, {"reason", reason}});
  *why = reports.why;
  return rows;
}

#else

inline Json describe_ports(const MachineLimits&, Json*, std::string* why) {
  *why = "not built: libibverbs was absent or switched off (HYDRANT_WITH_IBV)";
  return Json::array();
}

#endif

// {"ports": [...], "passed_by": items of HYDRANT_IBV_PORTS that match no usable port, "near": name or null,
// "far": name or null, "reason": text if either is null, else null}
inline Json describe_transports(const MachineLimits& limits) {
  std::string why;
  Json report;
  Json passed_by = Json::array();
  report["ports"] = describe_ports(limits, &passed_by, &why);
  report["passed_by"] = passed_by;
  bool has_port = false;
  for (const Json& row : report["ports"]) has_port |= row.at("chosen").get<bool>();
  const std::string wanted(knob_choice(JobKnob::kTransport));
  const bool far_is_asked = wanted != "shm";
  if (!far_is_asked) {
    for (Json& row : report["ports"]) {
      row["chosen"] = false;
      row["place"] = nullptr;
      if (row["usable"]) row["left_out"] = "HYDRANT_TRANSPORT=shm";
    }
  }
  report["near"] = wanted != "ibv" ? Json("shm") : has_port ? Json("ibv") : Json();
  report["far"] = far_is_asked && has_port ? Json("ibv") : Json();
  report["reason"] = !far_is_asked ? Json("HYDRANT_TRANSPORT=shm") : has_port ? Json() : Json(why);
  return report;
}

}  // namespace hydrant::info
