// Collects hydrant-info's facts in one JSON document. The tables are made from the same document, so that the
// two cannot disagree. Sizes are bytes; null means no limit, or for memory and pages that the size is
// unknown.
#pragma once

#include "bench/tools/segments_report.hpp"
#include "bench/tools/setting_notes.hpp"
#include "bench/tools/transport_report.hpp"
#include "bench/tools/watching_report.hpp"
#include "firehose/base/config/knobs.hpp"
#include "firehose/base/machine/machine_limits.hpp"
#include "firehose/registrars/registrar_factory.hpp"
#include "rdma/config/job_knobs.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <unistd.h>
#if HYDRANT_HAVE_IBV
#include "firehose/registrars/ibv/ibv_registrar.hpp"
#endif

#include <nlohmann/json.hpp>

namespace hydrant::info {

// 0 means that the number could not be read.
inline Json known_or_null(uint64_t bytes) { return bytes == 0 ? Json() : Json(bytes); }
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

// The verbs registrar is not part of libfirehose: callers pass it to a domain; it cannot be chosen by name.
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

// The most that a domain may pin over the default registrar.
struct ChargeLimit {
  uint64_t bytes = kUnlimited;
  // The RLIMIT_MEMLOCK from which that follows, if it does.
  std::optional<uint64_t> memlock_bytes = std::nullopt;
};

// Describes all registrars. `chosen` marks the default of a domain; *limit is its limit.
inline Json describe_registrars(ChargeLimit* limit) {
  const std::string wanted(knob_choice(Knob::kRegistrar));
  *limit = {};
  Json rows = Json::array();
  for (const RegistrarProbe& probe : probe_registrars()) {
    Json row = describe_registrar(probe.name, probe.reason, probe.usable ? &probe.traits : nullptr);
    const bool chosen =
        wanted == "auto" ? probe.default_choice : probe.usable && wanted == probe.name;
    row["chosen"] = chosen;
    if (chosen) *limit = {probe.traits.max_charge_bytes, probe.traits.memlock_bytes};
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
          {"cgroup_known", access("/proc/self/cgroup", R_OK) == 0},
          {"cgroup_version", limits.cgroup_version},
          {"cgroup_path", limits.cgroup_path},
          {"cgroup_limit_bytes", bytes_or_null(limits.cgroup_limit_bytes)},
          {"cgroup_used_bytes", limits.cgroup_used_bytes},
          {"memory_total_bytes", known_or_null(limits.memory_total_bytes)},
          {"memory_available_bytes", bytes_or_null(limits.memory_available_bytes)},
          {"file_size_bytes", bytes_or_null(limits.file_size_bytes)},
          {"address_space_bytes", bytes_or_null(limits.address_space_bytes)},
          {"page_bytes", limits.page_bytes},
          {"huge_page_bytes", known_or_null(limits.huge_page_bytes)},
          {"transparent_huge_pages", limits.thp_mode},
          {"cpus", limits.cpu_count},
          {"kernel", limits.kernel_release},
          {"membarrier", limits.membarrier}};
}

// The budget of a domain if the program does not set it.
inline Json describe_budget(const MachineLimits& limits, const ChargeLimit& registrar) {
  const BudgetDecision machine = default_budget(limits, registrar.bytes);
  const uint64_t asked = knob_number(Knob::kBudget);
  Json budget = {{"bytes", machine.bytes},
                 {"decided_by", budget_reason_name(machine.decided_by)},
                 {"text", machine.text}};
  if (machine.decided_by == BudgetReason::kRegistrar && registrar.memlock_bytes) {
    char size[32];
    format_size_rounded(*registrar.memlock_bytes, size, sizeof size);
    budget["text"] =
        std::string(machine.text) + ", of the memlock limit of " + size + " (ulimit -l)";
  }
  if (asked >= limits.page_bytes) {
    budget = {
        {"bytes", asked}, {"decided_by", "FIREHOSE_BUDGET"}, {"text", "FIREHOSE_BUDGET is set"}};
  }
  budget["machine_bytes"] = machine.bytes;
  return budget;
}

// The reason why an accepted setting of the environment has no effect; null if it has one.
inline Json knob_note(const KnobInfo& knob, const KnobValue& value, const Json& registrars) {
  if (value.origin != KnobOrigin::kEnvironment) return {};
  if (knob.type == KnobType::kText) {
    const std::string note = setting_note(knob.name, knob_text(knob));
    return note.empty() ? Json() : Json(note);
  }
  if (&knob == &knob_info(JobKnob::kTimeSlice) && value.number != 0) {
    constexpr uint64_t kMinNs = 100'000;
    if (value.number < kMinNs) return "in force is the kernel's minimum, 100us";
    return {};
  }
  if (&knob == &knob_info(Knob::kBucket) && value.number != 0 && knob_number(Knob::kMode) == 0) {
    return "no effect in region mode: set FIREHOSE_MODE=page, or the program does";
  }
  if (&knob != &knob_info(Knob::kMode) || value.number == 0) return {};
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
    const char* reason = why_ignored(name);
    const char* nearest = reason == nullptr ? nearest_knob_name(name) : nullptr;
    static_cast<Json*>(context)->push_back(
        {{"name", name},
         {"did_you_mean", nearest != nullptr ? Json(nearest) : Json()},
         {"reason", reason != nullptr ? Json(reason) : Json()}});
  };
  for_each_unknown_name(add, &rows);
  return rows;
}

inline Json describe_knobs(const Json& registrars) {
  Json rows = Json::array();
  for_each_knob([&](const KnobInfo& info) {
    const KnobValue value = read_knob(info);
    char text[96];
    char accepted[160];
    rows.push_back({{"name", info.name},
                    {"value", info.type == KnobType::kText
                                  ? knob_text(info)
                                  : format_knob(info, value.number, text, sizeof text)},
                    {"number", value.number},
                    {"origin", knob_origin_name(value.origin)},
                    {"rejected", value.rejected != nullptr ? Json(value.rejected) : Json()},
                    {"note", knob_note(info, value, registrars)},
                    {"default", info.default_text},
                    {"type", knob_type_name(info.type)},
                    {"unit", info.unit},
                    {"accepted", describe_accepted(info, accepted, sizeof accepted)},
                    {"effect", info.effect}});
  });
  return rows;
}

inline Json collect(const char* version) {
  const MachineLimits limits = read_machine_limits();
  ChargeLimit limit;
  Json report = {{"version", version}};
  report["registrars"] = describe_registrars(&limit);
  report["transports"] = describe_transports(limits);
  report["limits"] = describe_limits(limits);
  report["default_budget"] = describe_budget(limits, limit);
  report["segments"] = describe_segments();
  report["watching"] = describe_watching(limits);
  report["knobs"] = describe_knobs(report.at("registrars"));
  report["unknown_variables"] = describe_unknown_variables();
  return report;
}

}  // namespace hydrant::info
