// Finds environment variables that look like knobs but are unknown. read_knob() and hydrant-info call it.
#include "firehose/base/config/config.hpp"
#include "firehose/base/config/config_grammar.hpp"
#include "firehose/base/log.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <unistd.h>

namespace hydrant {
namespace {

// Prefixes of all libraries, loaded or not.
constexpr std::string_view kAllPrefixes[] = {"HYDRANT_", "FIREHOSE_", "GASNET_FIREHOSE_"};
// Read by other programs: a launcher passes HYDRANT_JOB_* to its processes.
constexpr std::string_view kOthers[] = {"HYDRANT_TEST_", "HYDRANT_BENCH_", "HYDRANT_JOB_"};

bool has_prefix(std::string_view name, std::span<const std::string_view> prefixes) noexcept {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](std::string_view prefix) { return name.starts_with(prefix); });
}

bool is_known(std::string_view name) noexcept {
  bool known = false;
  for_each_knob([&](const KnobInfo& info) { known |= name == info.name; });
  return known;
}

bool is_owned(std::string_view name) noexcept {
  for (const KnobTable* table = first_knob_table(); table != nullptr; table = table->next()) {
    if (table->owns(name)) return true;
  }
  return false;
}

// "FIREHOSE_BUDGET" -> "BUDGET": wrong prefixes are a common mistake.
std::string_view stem(std::string_view name) noexcept {
  for (std::string_view prefix : {"GASNET_FIREHOSE_", "GASNET_", "FIREHOSE_", "HYDRANT_"}) {
    if (name.starts_with(prefix)) return name.substr(prefix.size());
  }
  return name;
}

}  // namespace

bool KnobTable::owns(std::string_view name) const noexcept { return has_prefix(name, prefixes_); }

const char* KnobTable::why_ignored(std::string_view name) const noexcept {
  for (const IgnoredName& ignored : ignored_) {
    const bool is_prefix = ignored.name.ends_with('_');
    if (is_prefix ? name.starts_with(ignored.name) : name == ignored.name) return ignored.reason;
  }
  return nullptr;
}

const char* why_ignored(const char* name) noexcept {
  for (const KnobTable* table = first_knob_table(); table != nullptr; table = table->next()) {
    if (const char* reason = table->why_ignored(name)) return reason;
  }
  return nullptr;
}

const char* nearest_knob_name(const char* name) noexcept {
  const auto wanted = stem(name);
  // Allows one or two typos in a short name, a few more in a long one.
  size_t best = 2 + wanted.size() / 4;
  const char* nearest = nullptr;
  for_each_knob([&](const KnobInfo& info) {
    const auto known = stem(info.name);
    const bool other_family = name[0] != info.name[0];
    size_t distance = edit_distance(wanted, known) + (other_family ? 1 : 0);
    // "HYDRANT_LOG_LEVEL": one name is a prefix of the other.
    const bool begins = wanted.size() >= 3 && known.size() >= 3 &&
                        (wanted.starts_with(known) || known.starts_with(wanted));
    if (begins && distance > 1) distance = 1;
    if (distance >= best) return;
    best = distance;
    nearest = info.name;
  });
  return nearest;
}

size_t for_each_unknown_name(void (*visit)(void* context, const char* name),
                             void* context) noexcept {
  size_t unknown = 0;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const char* equals = std::strchr(*entry, '=');
    if (equals == nullptr) continue;
    const std::string_view name(*entry, static_cast<size_t>(equals - *entry));
    char copy[96];
    std::snprintf(copy, sizeof copy, "%.*s", static_cast<int>(name.size()), name.data());
    const bool is_ignored = why_ignored(copy) != nullptr;
    if (!is_ignored &&
        (!has_prefix(name, kAllPrefixes) || has_prefix(name, kOthers) || is_known(name)))
      continue;
    if (!is_ignored && !is_owned(name) && nearest_knob_name(copy) == nullptr) continue;
    ++unknown;
    visit(context, copy);
  }
  return unknown;
}

size_t warn_unknown_names() noexcept {
  const auto warn = [](void*, const char* name) {
    if (const char* reason = why_ignored(name)) {
      // A runtime may have set it itself, whatever the network.
      log_info("environment variable %s has no effect: %s", name, reason);
      return;
    }
    const char* nearest = nearest_knob_name(name);
    if (nearest != nullptr) {
      log_warning("environment variable %s is unknown and ignored; did you mean %s?", name,
                  nearest);
    } else {
      log_warning(
          "environment variable %s is unknown and ignored; hydrant-info lists the known ones",
          name);
    }
  };
  return for_each_unknown_name(warn, nullptr);
}

}  // namespace hydrant
