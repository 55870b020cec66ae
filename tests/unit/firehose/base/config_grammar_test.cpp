#include "firehose/base/config/config_grammar.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <string>

namespace hydrant {
namespace {

constexpr uint64_t kKi = 1024;
constexpr uint64_t kMi = kKi * kKi;
constexpr uint64_t kGi = kMi * kKi;

using Parsed = std::optional<uint64_t>;

Parsed size(std::string_view text, uint64_t plain = 1) {
  uint64_t value = 42;
  if (parse_size(text, plain, &value)) return value;
  EXPECT_EQ(value, 42U) << "a refused text must leave the value alone";
  return {};
}
Parsed count(std::string_view text) {
  uint64_t value = 0;
  return parse_count(text, &value) ? Parsed(value) : Parsed();
}
Parsed duration(std::string_view text) {
  uint64_t value = 0;
  return parse_duration(text, &value) ? Parsed(value) : Parsed();
}
Parsed boolean(std::string_view text) {
  uint64_t value = 0;
  return parse_boolean(text, &value) ? Parsed(value) : Parsed();
}
Parsed set(std::string_view text, std::string_view choices) {
  uint64_t value = 0;
  return parse_set(text, choices, &value) ? Parsed(value) : Parsed();
}

TEST(Grammar, SizesTakeUnitsInThreeSpellings) {
  for (const char* text :
       {"64M", "64MB", "64MiB", "64m", " 64 mib ", "65536K", "0x40M", "67108864"}) {
    EXPECT_EQ(size(text), 64 * kMi) << text;
  }
  EXPECT_EQ(size("1T"), kGi * kKi);
  EXPECT_EQ(size("0"), 0U);
  EXPECT_EQ(size("512B"), 512U);
}

TEST(Grammar, SizesTakeFractionsOfAUnit) {
  EXPECT_EQ(size("0.5G"), kGi / 2);
  EXPECT_EQ(size("1.5K"), 1536U);
  EXPECT_EQ(size("2.25MiB"), 2 * kMi + kMi / 4);
  EXPECT_EQ(size("1.984375T"), kGi * kKi / 64 * 127);
}

TEST(Grammar, PlainSizesUseTheCallersUnit) {
  EXPECT_EQ(size("64", kMi), 64 * kMi);
  EXPECT_EQ(size("0.5", kMi), kMi / 2);
  EXPECT_EQ(size("64B", kMi), 64U);
  EXPECT_EQ(size("64K", kMi), 64 * kKi);
}

TEST(Grammar, InvalidSizesAreRejected) {
  for (const char* text :
       {"", " ", "M", "64Q", "64MBB", "-1", "+1", "1e3", "1,5G", "0.5", "0.5B", ".5G", "1.G",
        "1..5G", "0x", "64M 32M", "18446744073709551616", "16777216T", "0x1.8K"}) {
    EXPECT_EQ(size(text), Parsed()) << text;
  }
  EXPECT_EQ(size("18446744073709551615"), UINT64_MAX);
}

TEST(Grammar, CountsAreWholeAndDecimalUnlessHexadecimal) {
  EXPECT_EQ(count("4096"), 4096U);
  EXPECT_EQ(count("010"), 10U);
  EXPECT_EQ(count("0xfF"), 255U);
  for (const char* text : {"", "4K", "1.5", "-3", "0x", "0xg", "12 13"})
    EXPECT_EQ(count(text), Parsed()) << text;
}

TEST(Grammar, DurationsAreSecondsUnlessTheyNameAUnit) {
  EXPECT_EQ(duration("10"), 10'000'000'000U);
  EXPECT_EQ(duration("10s"), 10'000'000'000U);
  EXPECT_EQ(duration("250ms"), 250'000'000U);
  EXPECT_EQ(duration("0.5"), 500'000'000U);
  EXPECT_EQ(duration("1.5m"), 90'000'000'000U);
  EXPECT_EQ(duration("2h"), 7'200'000'000'000U);
  EXPECT_EQ(duration("7ns"), 7U);
  EXPECT_EQ(duration("3 us"), 3'000U);
  for (const char* text : {"", "s", "10x", "-1s", "0.5ns", "never"})
    EXPECT_EQ(duration(text), Parsed()) << text;
}

TEST(Grammar, FractionsMakeWholeBytesAndNanoseconds) {
  EXPECT_EQ(size("0.125K"), 128U);
  EXPECT_EQ(size("1.500000000K"), 1536U);
  EXPECT_EQ(duration("0.3us"), 300U);
  for (const char* text : {"0.0001K", "0.3K", "0.0000001M", "1.00000001G", "0.1G", "1.999999T"})
    EXPECT_EQ(size(text), Parsed()) << text;
  for (const char* text : {"0.0001us", "0.0000001s"}) EXPECT_EQ(duration(text), Parsed()) << text;
}

TEST(Grammar, NeverIsADurationWhereZeroMeansNever) {
  uint64_t value = 7;
  EXPECT_TRUE(parse_duration_or_never(" Never ", &value));
  EXPECT_EQ(value, 0U);
  EXPECT_TRUE(parse_duration_or_never("3 us", &value));
  EXPECT_EQ(value, 3'000U);
  EXPECT_FALSE(parse_duration_or_never("nevermore", &value));
  EXPECT_EQ(value, 3'000U);
}

TEST(Grammar, BooleansAcceptTheUsualSpellings) {
  for (const char* text : {"y", "Y", "yes", "1", "true", "TRUE", "on"})
    EXPECT_EQ(boolean(text), 1U) << text;
  for (const char* text : {"n", "no", "0", "false", "False", "off"})
    EXPECT_EQ(boolean(text), 0U) << text;
  for (const char* text : {"", "2", "ja", "yess"}) EXPECT_EQ(boolean(text), Parsed()) << text;
}

TEST(Grammar, ChoicesAreFoundWithoutRegardToCase) {
  uint64_t index = 9;
  EXPECT_TRUE(parse_choice(" URING ", "auto|uring|mlock", &index));
  EXPECT_EQ(index, 1U);
  EXPECT_FALSE(parse_choice("urin", "auto|uring|mlock", &index));
  EXPECT_FALSE(parse_choice("", "auto|uring|mlock", &index));
  EXPECT_FALSE(parse_choice("auto|uring", "auto|uring|mlock", &index));
  EXPECT_EQ(index, 1U);
}

TEST(Grammar, ChoicesCanBeListed) {
  EXPECT_EQ(choice_count("a|bc|d"), 3U);
  EXPECT_EQ(choice_count(""), 0U);
  EXPECT_EQ(choice_at("a|bc|d", 1), "bc");
  EXPECT_EQ(choice_at("a|bc|d", 2), "d");
  EXPECT_EQ(choice_at("a|bc|d", 3), "");
}

TEST(Grammar, SetsAreListsOfChoices) {
  EXPECT_EQ(set("none", "a|b|c"), 0U);
  EXPECT_EQ(set("all", "a|b|c"), 7U);
  EXPECT_EQ(set("c, A", "a|b|c"), 5U);
  for (const char* text : {"", "a,", ",a", "a b", "d", "a,none"})
    EXPECT_EQ(set(text, "a|b|c"), Parsed()) << text;
}

TEST(Grammar, FormattedValuesAreReadBack) {
  char text[24];
  for (const uint64_t value : {uint64_t{0}, uint64_t{1}, uint64_t{1000}, kKi, 3 * kKi, 64 * kMi,
                               kGi * kKi, kGi + 1, UINT64_MAX}) {
    EXPECT_EQ(size(format_size(value, text, sizeof text)), value) << text;
    EXPECT_EQ(duration(format_duration(value, text, sizeof text)), value) << text;
  }
  EXPECT_STREQ(format_size(64 * kMi, text, sizeof text), "64M");
  EXPECT_STREQ(format_size(1000, text, sizeof text), "1000");
  EXPECT_STREQ(format_duration(10'000'000'000, text, sizeof text), "10s");
  EXPECT_STREQ(format_duration(90'000'000'000, text, sizeof text), "90s");
  EXPECT_STREQ(format_set(5, "a|b|c", text, sizeof text), "a,c");
  EXPECT_STREQ(format_set(0, "a|b|c", text, sizeof text), "none");
}

TEST(Grammar, FormattingRespectsTheRoom) {
  char text[4] = "???";
  format_size(123456, text, sizeof text);
  EXPECT_STREQ(text, "123");
  format_set(7, "alpha|beta|gamma", text, sizeof text);
  EXPECT_STREQ(text, "alp");
  format_size_rounded(123456, text, sizeof text);
  EXPECT_STREQ(text, "120");
}

TEST(Grammar, RoundedSizesAreForPeople) {
  char text[24];
  EXPECT_STREQ(format_size_rounded(0, text, sizeof text), "0 B");
  EXPECT_STREQ(format_size_rounded(1023, text, sizeof text), "1023 B");
  EXPECT_STREQ(format_size_rounded(8 * kMi, text, sizeof text), "8 MiB");
  EXPECT_STREQ(format_size_rounded(kMi + kMi / 2, text, sizeof text), "1.5 MiB");
  EXPECT_STREQ(format_size_rounded(123 * kMi + kMi / 2, text, sizeof text), "123 MiB");
  EXPECT_STREQ(format_size_rounded(UINT64_MAX - 1, text, sizeof text), "15.9 EiB");
  EXPECT_STREQ(format_size_rounded(UINT64_MAX, text, sizeof text), "unlimited");
}

TEST(Grammar, EditDistanceCountsSingleMistakes) {
  EXPECT_EQ(edit_distance("budget", "budget"), 0U);
  EXPECT_EQ(edit_distance("BUDGET", "budget"), 0U);
  EXPECT_EQ(edit_distance("bugdet", "budget"), 1U);
  EXPECT_EQ(edit_distance("budge", "budget"), 1U);
  EXPECT_EQ(edit_distance("budgets", "budget"), 1U);
  EXPECT_EQ(edit_distance("badget", "budget"), 1U);
  EXPECT_EQ(edit_distance("", "abc"), 3U);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
  EXPECT_EQ(edit_distance(std::string(100, 'a'), std::string(200, 'a')), 0U);
}

}  // namespace
}  // namespace hydrant
