// What hydrant-info knows, as one JSON document; the tables for people are made from the same document,
// so that the two cannot disagree. Sizes are bytes, null where nothing limits.
#pragma once

#include "bench/tools/transport_report.hpp"
#include "bench/tools/watching_report.hpp"
#include "firehose/base/config.hpp"
#include "firehose/base/machine_limits.hpp"
#include "firehose/registrars/registrar_factory.hpp"

#include <cstdint>
#include <string>
#if HYDRANT_HAVE_IBV
#include "rdma/ibv/ibv_registrar.hpp"
#endif

#include <nlohmann/json.hpp>

namespace hydrant::info {

inline Json bytes_or_null(uint64_t bytes) { return bytes == kUnlimited ? Json() : Json(bytes); }

inline const char* scope_name(ChargeScope scope) {
  switch (scope) {
    case ChargeScope::kNone: return "none";
    case ChargeScope::kProcess: return "process";
    case ChargeScope::kUser: return "user";
    case ChargeScope::kDevice: return "device";
  }
  return "unknown";
}

inline Json access_names(Access access) {
  Json names = Json::array({"local_read"});
  if (includes(access, Access::kLocalWrite)) names.push_back("local_write");
  if (includes(access, Access::kRemoteRead)) names.push_back("remote_read");
  if (includes(access, Access::kRemoteWrite)) names.push_back("remote_write");
  if (includes(access, Access::kRemoteAtomic)) names.push_back("remote_atomic");
  return names;
}

inline Json describe_traits(const RegistrarTraits& traits) {
  return {{"key_bytes", traits.key_bytes},
          {"granule_bytes", traits.granule_bytes},
          {"max_region_bytes", bytes_or_null(traits.max_region_bytes)},
          {"max_regions", bytes_or_null(traits.max_regions)},
          {"max_charge_bytes", bytes_or_null(traits.max_charge_bytes)},
          {"charge_scope", scope_name(traits.charge_scope)},
          {"access", access_names(traits.supported)},
          {"divisible", traits.divisible},
          {"exports", traits.exports}};
}

inline Json describe_registrar(const char* name, const char* reason,
                               const RegistrarTraits* traits) {
  Json row = {{"name", name}, {"usable", traits != nullptr}, {"chosen", false}};
  row["reason"] = traits != nullptr ? Json() : Json(reason);
  row["traits"] = traits != nullptr ? describe_traits(*traits) : Json();
  return row;
}

// The registrar over verbs lives outside libfirehose: a domain takes it from the caller, never by name.
#if HYDRANT_HAVE_IBV
inline Json describe_ibv() {
  std::unique_ptr<IbvRegistrar> registrar;
  if (IbvRegistrar::open(nullptr, &registrar) != Status::kOk) {
    return describe_registrar("ibv", last_error_text(), nullptr);
  }
  Json row = describe_registrar("ibv", "", &registrar->traits());
  row["device"] = registrar->device_name();
  return row;
}
#else
inline Json describe_ibv() {
  return describe_registrar(
      "ibv", "not built: libibverbs was absent or switched off (HYDRANT_WITH_IBV)", nullptr);
}
#endif

// All registrars. `chosen` is the one that a domain takes when it names none; *max_charge is its limit.
inline Json describe_registrars(uint64_t* max_charge) {
  const std::string wanted(knob_choice(Knob::kRegistrar));
  *max_charge = kUnlimited;
  Json rows = Json::array();
  for (const RegistrarProbe& probe : probe_registrars()) {
    Json row = describe_registrar(probe.name, probe.reason, probe.usable ? &probe.traits : nullptr);
    const bool chosen =
        wanted == "auto" ? probe.default_choice : probe.usable && wanted == probe.name;
    row["chosen"] = chosen;
    if (chosen) *max_charge = probe.traits.max_charge_bytes;
    if (probe.usable) {
      row["traits"]["charge_comes_back_late"] = probe.charge_comes_back_late;
      row["traits"]["knows_huge_pages"] = probe.knows_huge_pages;
    }
    rows.push_back(std::move(row));
  }
  rows.push_back(describe_ibv());
  return rows;
}

inline Json describe_limits(const MachineLimits& limits) {
  return {{"memlock_bytes", bytes_or_null(limits.memlock_bytes)},
          {"memlock_hard_bytes", bytes_or_null(limits.memlock_hard_bytes)},
          {"memlock_lifted", limits.memlock_lifted},
          {"cgroup_version", limits.cgroup_version},
          {"cgroup_path", limits.cgroup_path},
          {"cgroup_limit_bytes", bytes_or_null(limits.cgroup_limit_bytes)},
          {"cgroup_used_bytes", limits.cgroup_used_bytes},
          {"memory_total_bytes", limits.memory_total_bytes},
          {"memory_available_bytes", limits.memory_available_bytes},
          {"page_bytes", limits.page_bytes},
          {"huge_page_bytes", limits.huge_page_bytes},
          {"transparent_huge_pages", limits.thp_mode},
          {"cpus", limits.cpu_count},
          {"kernel", limits.kernel_release},
          {"membarrier", limits.membarrier}};
}

// What a domain's budget is when the program leaves it open.
inline Json describe_budget(const MachineLimits& limits, uint64_t registrar_max_charge) {
  const BudgetDecision machine = default_budget(limits, registrar_max_charge);
  const uint64_t asked = knob_number(Knob::kBudget);
  Json budget = {{"bytes", machine.bytes},
                 {"decided_by", budget_reason_name(machine.decided_by)},
                 {"text", machine.text}};
  if (asked >= limits.page_bytes) {
    budget = {
        {"bytes", asked}, {"decided_by", "FIREHOSE_BUDGET"}, {"text", "FIREHOSE_BUDGET is set"}};
  }
  budget["machine_bytes"] = machine.bytes;
  return budget;
}

// Why a setting of the environment has no effect although it is accepted; null where it has.
inline Json knob_note(Knob knob, const KnobValue& value, const Json& registrars) {
  if (value.origin != KnobOrigin::kEnvironment) return {};
  if (knob == Knob::kBucket && value.number != 0 && knob_number(Knob::kMode) == 0) {
    return "no effect in region mode: set FIREHOSE_MODE=page, or the program does";
  }
  if (knob != Knob::kMode || value.number == 0) return {};
  for (const Json& row : registrars) {
    if (!row.at("chosen").get<bool>() || row.at("traits").at("key_bytes").get<uint32_t>() == 0)
      continue;
    return "does not apply to registrar " + row.at("name").get<std::string>() +
           ", which has keys: only the program can ask for one key per bucket";
  }
  return {};
}

inline Json describe_unknown_variables() {
  Json rows = Json::array();
  const auto add = [](void* context, const char* name) {
    const char* nearest = nearest_knob_name(name);
    static_cast<Json*>(context)->push_back(
        {{"name", name}, {"did_you_mean", nearest != nullptr ? Json(nearest) : Json()}});
  };
  for_each_unknown_name(add, &rows);
  return rows;
}

inline Json describe_knobs(const Json& registrars) {
  Json rows = Json::array();
  for (size_t i = 0; i < kKnobCount; ++i) {
    const Knob knob = knob_at(i);
    const KnobInfo& info = knob_info(knob);
    const KnobValue value = read_knob(knob);
    char text[96];
    char accepted[160];
    rows.push_back({{"name", info.name},
                    {"value", info.type == KnobType::kText
                                  ? knob_text(knob)
                                  : format_knob(knob, value.number, text, sizeof text)},
                    {"number", value.number},
                    {"origin", knob_origin_name(value.origin)},
                    {"rejected", value.rejected != nullptr ? Json(value.rejected) : Json()},
                    {"note", knob_note(knob, value, registrars)},
                    {"default", info.default_text},
                    {"type", knob_type_name(info.type)},
                    {"unit", info.unit},
                    {"accepted", describe_accepted(knob, accepted, sizeof accepted)},
                    {"effect", info.effect}});
  }
  return rows;
}

inline Json collect(const char* version) {
  const MachineLimits limits = read_machine_limits();
  uint64_t max_charge = kUnlimited;
  Json report = {{"version", version}};
  report["registrars"] = describe_registrars(&max_charge);
  report["transports"] = describe_transports(limits);
  report["limits"] = describe_limits(limits);
  report["default_budget"] = describe_budget(limits, max_charge);
  report["watching"] = describe_watching(limits);
  report["knobs"] = describe_knobs(report.at("registrars"));
  report["unknown_variables"] = describe_unknown_variables();
  return report;
}

}  // namespace hydrant::info
