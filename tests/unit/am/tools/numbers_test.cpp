#define GASNETT_THREAD_SAFE 1
#include "am/tools/numbers.hpp"

#include <gtest/gtest.h>

#include <clocale>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gasnet_tools.h>
#include <string>

namespace {

std::string formatted(int64_t value, bool is_mem_size) {
  char text[50];
  EXPECT_EQ(gasnett_format_number(value, text, sizeof text, is_mem_size), text);
  return text;
}

TEST(FormatNumber, PlainNumbers) {
  EXPECT_EQ(formatted(0, false), "0");
  EXPECT_EQ(formatted(-17, false), "-17");
  EXPECT_EQ(formatted((INT64_C(1) << 50) - 1, false), "1125899906842623");
  EXPECT_EQ(formatted(INT64_C(1) << 50, false), "0x4000000000000");
  EXPECT_EQ(formatted(INT64_MIN, false), "0x8000000000000000");
}

TEST(FormatNumber, SizesTakeTheLargestUnitThatFits) {
  EXPECT_EQ(formatted(0, true), "0 B");
  EXPECT_EQ(formatted(1023, true), "1023 B");
  EXPECT_EQ(formatted(1024, true), "1 KB");
  EXPECT_EQ(formatted(1025, true), "1025 B");
  EXPECT_EQ(formatted(10 * 1024 + 1, true), "10 KB");
  EXPECT_EQ(formatted(-(INT64_C(3) << 30), true), "-3 GB");
  EXPECT_EQ(formatted(INT64_C(7) << 40, true), "7 TB");
}

TEST(FormatNumber, ShortBufferIsCutAndTerminated) {
  char text[4] = {'x', 'x', 'x', 'x'};
  gasnett_format_number(123456, text, sizeof text, 0);
  EXPECT_STREQ(text, "123");
}

TEST(ParseInt, ReadsWhatFormatNumberWrites) {
  for (int bit = 0; bit < 63; ++bit) {
    for (const int64_t value : {INT64_C(1) << bit, -(INT64_C(1) << bit)}) {
      EXPECT_EQ(gasnett_parse_int(formatted(value, false).c_str(), 0), value);
      EXPECT_EQ(gasnett_parse_int(formatted(value, true).c_str(), 1), value);
    }
  }
}

TEST(ParseInt, UnitsAndTheirDefaults) {
  EXPECT_EQ(gasnett_parse_int("5", 0), 5);
  EXPECT_EQ(gasnett_parse_int("5", 1024), 5 * 1024);
  EXPECT_EQ(gasnett_parse_int("5B", 1024), 5);
  EXPECT_EQ(gasnett_parse_int("5k", 1), 5 * 1024);
  EXPECT_EQ(gasnett_parse_int(" 5 KiB ", 1), 5 * 1024);
  EXPECT_EQ(gasnett_parse_int("1.5MB", 1), 3 << 19);
  EXPECT_EQ(gasnett_parse_int("-2gb", 1), -(INT64_C(2) << 30));
  EXPECT_EQ(gasnett_parse_int("+.25 T", 1), INT64_C(1) << 38);
  EXPECT_EQ(gasnett_parse_int("5K", 0), 5) << "a number without unit ends at the letter";
}

TEST(ParseInt, Hexadecimal) {
  EXPECT_EQ(gasnett_parse_int("0x1B", 1), 0x1b) << "B is a digit";
  EXPECT_EQ(gasnett_parse_int("0X10 KB", 1), 16 * 1024);
  EXPECT_EQ(gasnett_parse_int("-0xff", 0), -255);
  EXPECT_EQ(gasnett_parse_int("0xffffffffffffffff", 0), -1);
  EXPECT_EQ(gasnett_parse_int("0x", 0), 0);
}

TEST(ParseInt, OutOfRangeSaturates) {
  EXPECT_EQ(gasnett_parse_int("9223372036854775808", 0), INT64_MAX);
  EXPECT_EQ(gasnett_parse_int("99999999999999999999999", 0), INT64_MAX);
  EXPECT_EQ(gasnett_parse_int("-99999999999 TB", 1), -INT64_MAX);
}

TEST(ParseInt, TextWithoutDigitsIsZero) {
  EXPECT_EQ(gasnett_parse_int(nullptr, 0), 0);
  EXPECT_EQ(gasnett_parse_int("", 1), 0);
  EXPECT_EQ(gasnett_parse_int("  ", 1), 0);
  EXPECT_EQ(gasnett_parse_int("many", 1), 0);
}

TEST(ParseInteger, ReturnsTheUnparsedText) {
  EXPECT_STREQ(hydrant::parse_integer("12abc", 0).rest, "abc");
  EXPECT_STREQ(hydrant::parse_integer("12 KBs", 1).rest, "s");
  EXPECT_STREQ(hydrant::parse_integer("12 KB ", 1).rest, "");
  EXPECT_STREQ(hydrant::parse_integer("abc", 0).rest, "abc");
  EXPECT_EQ(hydrant::parse_integer(nullptr, 0).rest, nullptr);
}

// Sets a locale with a decimal comma for its lifetime. The locale is defined here: few systems have one.
class CommaLocale {
 public:
  CommaLocale() {
    if (mkdtemp(directory_) == nullptr) return;
    const std::filesystem::path folder = std::filesystem::path(directory_) / "comma";
    std::filesystem::create_directory(folder);
    // glibc's format: a magic number, the number of items and where they begin. The items are the point, the
    // separator of thousands, its grouping, both as wide characters, and the character set.
    const uint32_t head[] = {0x20031115u ^ LC_NUMERIC, 6, 32, 34, 35, 36, 40, 44};
    const uint32_t wide[] = {',', 0};
    std::ofstream file(folder / "LC_NUMERIC", std::ios::binary);
    file.write(reinterpret_cast<const char*>(head), sizeof head).write(",\0\0", 4);
    file.write(reinterpret_cast<const char*>(wide), sizeof wide).write("UTF-8", 6);
    file.close();
    setenv("LOCPATH", directory_, 1);
    is_set_ = setlocale(LC_NUMERIC, "comma") != nullptr && *localeconv()->decimal_point == ',';
  }
  ~CommaLocale() {
    setlocale(LC_NUMERIC, "C");
    unsetenv("LOCPATH");
    std::filesystem::remove_all(directory_);
  }
  CommaLocale(const CommaLocale&) = delete;
  CommaLocale& operator=(const CommaLocale&) = delete;
  bool is_set() const { return is_set_; }

 private:
  char directory_[32] = "/tmp/hydrant-locale-XXXXXX";
  bool is_set_ = false;
};

TEST(ParseDouble, NumbersAndFractions) {
  double value = 0;
  EXPECT_TRUE(hydrant::parse_double("-1e4", &value));
  EXPECT_DOUBLE_EQ(value, -1e4);
  EXPECT_TRUE(hydrant::parse_double(" 3 / 8 ", &value));
  EXPECT_DOUBLE_EQ(value, 0.375);
  EXPECT_TRUE(hydrant::parse_double("+.75/ -2.", &value));
  EXPECT_DOUBLE_EQ(value, -0.375);
  for (const char* bad :
       {"", "x", "1x", "1/", "1/0", "1/2/3", "+", "-", ".", "e5", "1e", "+-1", "- 1"}) {
    EXPECT_FALSE(hydrant::parse_double(bad, &value)) << bad;
  }
  EXPECT_DOUBLE_EQ(value, -0.375) << "unchanged on failure";
}

TEST(ParseDouble, NonDecimalTextIsRejected) {
  double value = 7;
  for (const char* bad : {"nan", "NAN(1)", "inf", "-Infinity", "1/inf", "nan/1", "0x10", "0x1p3",
                          "1/0x2", "1e999", "-1e999", "1/1e999", "1e300/1e-300"}) {
    EXPECT_FALSE(hydrant::parse_double(bad, &value)) << bad;
  }
  EXPECT_DOUBLE_EQ(value, 7);
}

// The locale's decimal comma is part of no number, and the point of every one.
TEST(ParseDouble, LocaleIsIgnored) {
  const CommaLocale comma;
  ASSERT_TRUE(comma.is_set());
  double value = 0;
  EXPECT_TRUE(hydrant::parse_double("1.5", &value));
  EXPECT_DOUBLE_EQ(value, 1.5);
  EXPECT_FALSE(hydrant::parse_double("1,5", &value));
  EXPECT_TRUE(hydrant::parse_double("0.5/0.25", &value));
  EXPECT_DOUBLE_EQ(value, 2);
}

}  // namespace
