// Checks the rows of all knob tables in the program, and that docs/env_vars.md repeats them.
#pragma once

#include "firehose/base/config/config.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>
#include <string>

namespace hydrant {

inline void expect_complete(const KnobInfo& info) {
  uint64_t value = 0;
  EXPECT_EQ(parse_knob(info, info.default_text, &value), Status::kOk) << last_error_text();
  const std::string effect = info.effect;
  EXPECT_GT(effect.size(), 20U) << info.name;
  EXPECT_EQ(effect.back(), '.') << info.name;
  EXPECT_LE(info.min, info.max) << info.name;
  const bool names_choices =
      info.type == KnobType::kChoice || info.type == KnobType::kSet || info.type == KnobType::kText;
  EXPECT_EQ(names_choices, info.choices[0] != '\0') << info.name;
  if (info.type == KnobType::kSize || info.type == KnobType::kDuration) {
    EXPECT_STRNE(info.unit, "") << info.name;
  }
}

inline void expect_read_back(const KnobInfo& info) {
  const uint64_t values[] = {0, 1, 3, 1000, 4096, 5000, uint64_t{1} << 20, (uint64_t{1} << 20) + 1};
  for (const uint64_t value : values) {
    if (value < info.min || value > info.max || (info.power_of_two && (value & (value - 1)) != 0))
      continue;
    if (info.type == KnobType::kBoolean && value > 1) continue;
    if (info.type == KnobType::kChoice && value > 1) continue;
    if (info.type == KnobType::kSet && value > 3) continue;
    if (info.type == KnobType::kText && value > 1) continue;
    char text[96];
    uint64_t back = ~value;
    EXPECT_EQ(parse_knob(info, format_knob(info, value, text, sizeof text), &back), Status::kOk)
        << last_error_text();
    EXPECT_EQ(back, value) << info.name << " " << text;
  }
}

inline void expect_documented(const KnobInfo& info, const std::string& page) {
  std::string type = knob_type_name(info.type);
  std::string choices = info.choices;
  for (size_t at = 0; (at = choices.find('|', at)) != std::string::npos; at += 2)
    choices.replace(at, 1, ", ");
  if (!choices.empty()) type += ": " + choices;
  const std::string unit = info.unit[0] != '\0' ? info.unit : "–";
  const std::string standard = info.default_text[0] != '\0' ? info.default_text : "–";
  EXPECT_THAT(page, ::testing::HasSubstr(std::string("| `") + info.name + "` | " + type + " | " +
                                         unit + " | " + standard + " | " + info.effect + " |"));
}

inline void expect_good_rows(const char* env_vars_page) {
  std::ifstream file(env_vars_page);
  ASSERT_TRUE(file.good());
  std::ostringstream text;
  text << file.rdbuf();
  const std::string page = text.str();
  std::set<std::string> names;
  for_each_knob([&](const KnobInfo& info) {
    EXPECT_TRUE(names.insert(info.name).second) << info.name << " twice";
    expect_complete(info);
    expect_read_back(info);
    expect_documented(info, page);
  });
}

}  // namespace hydrant
