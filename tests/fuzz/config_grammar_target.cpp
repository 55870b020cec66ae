// Fuzz target: the grammars of environment variables and command lines.
#include "firehose/base/config/config_grammar.hpp"
#include "tests/fuzz/fuzz_target.hpp"

namespace hydrant::fuzz {
namespace {

constexpr uint64_t kMark = 0x5eed'5eed'5eed'5eed;
constexpr std::string_view kChoices = "none-of-it|region|page|a|ab|client";

// A rejected text leaves the value unchanged; an accepted number survives formatting and parsing.
template <typename Parse, typename Format>
void check_number(std::string_view text, Parse parse, Format format) {
  uint64_t value = kMark;
  if (!parse(text, &value)) {
    HYDRANT_FUZZ_CHECK(value == kMark);
    return;
  }
  char written[24];
  HYDRANT_FUZZ_CHECK(format(value, written, sizeof written) == written);
  HYDRANT_FUZZ_CHECK(std::memchr(written, 0, sizeof written) != nullptr);
  uint64_t again = kMark;
  HYDRANT_FUZZ_CHECK(parse(written, &again) && again == value);
  char room[64];
  for (size_t bytes = 1; bytes < 12; ++bytes) {
    (void)format(value, room, bytes);
    HYDRANT_FUZZ_CHECK(std::memchr(room, 0, bytes) != nullptr);
  }
  (void)format_size_rounded(value, room, sizeof room);
  HYDRANT_FUZZ_CHECK(std::memchr(room, 0, sizeof room) != nullptr);
}

void check_numbers(std::string_view text) {
  check_number(
      text, [](std::string_view in, uint64_t* value) { return parse_size(in, 1, value); },
      format_size);
  check_number(text, parse_duration, format_duration);
  check_number(text, parse_duration_or_never, format_duration);
  check_number(text, parse_count, [](uint64_t value, char* to, size_t room) -> const char* {
    std::snprintf(to, room, "%llu", static_cast<unsigned long long>(value));
    return to;
  });
  // With a larger default unit a plain number means the same as with that unit.
  uint64_t plain = kMark, scaled = kMark;
  const bool is_count = parse_count(text, &plain);
  if (is_count && parse_size(text, uint64_t{1} << 20, &scaled))
    HYDRANT_FUZZ_CHECK(scaled == plain << 20 && scaled >> 20 == plain);
}

void check_choices(std::string_view text) {
  uint64_t index = kMark;
  if (parse_choice(text, kChoices, &index)) {
    HYDRANT_FUZZ_CHECK(index < choice_count(kChoices));
    uint64_t again = kMark;
    HYDRANT_FUZZ_CHECK(parse_choice(choice_at(kChoices, index), kChoices, &again));
    HYDRANT_FUZZ_CHECK(again == index);
  } else {
    HYDRANT_FUZZ_CHECK(index == kMark);
  }
  uint64_t set = kMark;
  if (parse_set(text, kChoices, &set)) {
    HYDRANT_FUZZ_CHECK(set >> choice_count(kChoices) == 0);
    char written[kChoices.size() + 2];
    (void)format_set(set, kChoices, written, sizeof written);
    uint64_t again = kMark;
    HYDRANT_FUZZ_CHECK(parse_set(written, kChoices, &again) && again == set);
  } else {
    HYDRANT_FUZZ_CHECK(set == kMark);
  }
  uint64_t yes = kMark;
  HYDRANT_FUZZ_CHECK(parse_boolean(text, &yes) ? yes <= 1 : yes == kMark);
}

void check_distance(std::string_view a, std::string_view b) {
  const size_t distance = edit_distance(a, b);
  HYDRANT_FUZZ_CHECK(distance == edit_distance(b, a));
  HYDRANT_FUZZ_CHECK(edit_distance(a, a) == 0);
  HYDRANT_FUZZ_CHECK(distance <= std::min<size_t>(63, std::max(a.size(), b.size())));
}

}  // namespace
}  // namespace hydrant::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hydrant::fuzz;
  if (size > 4096) return 0;
  const GuardedCopy input({data, size});
  const std::string_view text = input.text();
  check_numbers(text);
  check_choices(text);
  check_distance(text.substr(0, size / 2), text.substr(size / 2));
  return 0;
}
