// Names in the environment that look like knobs and are none.
#include "firehose/base/config.hpp"
#include "firehose/base/config_grammar.hpp"
#include "firehose/base/log.hpp"

#include <cstdio>
#include <cstring>
#include <unistd.h>

namespace hydrant {
namespace {

bool starts_with(const char* text, const char* prefix) noexcept {
  return std::strncmp(text, prefix, std::strlen(prefix)) == 0;
}

bool is_ours(const char* name) noexcept {
  // HYDRANT_JOB_* is what a launcher says to its processes.
  for (const char* other : {"HYDRANT_TEST_", "HYDRANT_BENCH_", "HYDRANT_JOB_"}) {
    if (starts_with(name, other)) return false;
  }
  return starts_with(name, "HYDRANT_") || starts_with(name, "FIREHOSE_") ||
         starts_with(name, "GASNET_FIREHOSE_");
}

bool is_known(std::string_view name) noexcept {
  for (size_t i = 0; i < kKnobCount; ++i) {
    if (name == knob_info(knob_at(i)).name) return true;
  }
  return false;
}

// "FIREHOSE_BUDGET" -> "BUDGET": people mix up the prefixes.
std::string_view stem(std::string_view name) noexcept {
  for (std::string_view prefix : {"GASNET_FIREHOSE_", "GASNET_", "FIREHOSE_", "HYDRANT_"}) {
    if (name.starts_with(prefix)) return name.substr(prefix.size());
  }
  return name;
}

}  // namespace

const char* nearest_knob_name(const char* name) noexcept {
  const auto wanted = stem(name);
  // A typo or two in a short word, a few more in a long one.
  size_t best = 2 + wanted.size() / 4;
  const char* nearest = nullptr;
  for (size_t i = 0; i < kKnobCount; ++i) {
    const KnobInfo& info = knob_info(knob_at(i));
    const auto known = stem(info.name);
    const bool other_family = name[0] != info.name[0];
    size_t distance = edit_distance(wanted, known) + (other_family ? 1 : 0);
    // "HYDRANT_LOG_LEVEL": one is the beginning of the other.
    const bool begins = wanted.size() >= 3 && known.size() >= 3 &&
                        (wanted.starts_with(known) || known.starts_with(wanted));
    if (begins && distance > 1) distance = 1;
    if (distance >= best) continue;
    best = distance;
    nearest = info.name;
  }
  return nearest;
}

size_t for_each_unknown_name(void (*visit)(void* context, const char* name),
                             void* context) noexcept {
  size_t unknown = 0;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const char* equals = std::strchr(*entry, '=');
    if (equals == nullptr || !is_ours(*entry)) continue;
    const std::string_view name(*entry, static_cast<size_t>(equals - *entry));
    if (is_known(name)) continue;
    ++unknown;
    char copy[96];
    std::snprintf(copy, sizeof copy, "%.*s", static_cast<int>(name.size()), name.data());
    visit(context, copy);
  }
  return unknown;
}

size_t warn_unknown_names() noexcept {
  const auto warn = [](void*, const char* name) {
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
