// Fuzz target: settings of a job that are texts: rank 0's environment as other ranks read it from the job's
// store, numbers with units, and the signals that a program keeps for itself.
#include <hydrant/gasnet/debugging.h>
#include <hydrant/gasnet/env.h>

#include "am/exit/exit.hpp"
#include "am/job/shared_environment.hpp"
#include "am/tools/numbers.hpp"
#include "firehose/base/log.hpp"
#include "tests/fuzz/own_environment.hpp"
#include "tests/support/fake_bootstrap.hpp"

#include <cctype>
#include <cmath>
#include <csignal>
#include <initializer_list>
#include <optional>
#include <strings.h>

namespace hydrant::fuzz {
namespace {

using testing::FakeBootstrap;
using Value = FakeBootstrap::Value;

// ---- rank 0's environment ----

constexpr const char* kHeadKey = "environment";
const std::vector<std::string> kOwn = {"FUZZ_OWN=1"};

uint64_t sum_of(std::string_view text) {
  uint64_t sum = 0xcbf29ce484222325;
  for (const char c : text) sum = (sum ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return sum;
}
std::string part_key(size_t index) { return "environment." + std::to_string(index); }

Value* card_of(FakeBootstrap& store, const std::string& key) {
  const auto found = store.entries.find({0, key});
  return found == store.entries.end() ? nullptr : &found->second;
}

std::string stored_text(FakeBootstrap& store) {
  std::string text;
  for (size_t i = 0; Value* part = card_of(store, part_key(i)); ++i)
    text.append(reinterpret_cast<const char*>(part->data()), part->size());
  return text;
}

// Changes the store as a defect of a launcher could; perhaps with a head that fits what is there then.
void tamper(Input& input, FakeBootstrap* store) {
  for (uint32_t changes = input.below(4); changes > 0; --changes) {
    const uint8_t which = input.byte();
    const std::string key = which == 0 ? kHeadKey : part_key(which - 1u);
    const uint8_t what = input.byte();
    const size_t at = input.take<uint16_t>();
    Value* card = card_of(*store, key);
    if (card == nullptr) continue;
    switch (what % 5) {
      case 0: store->entries.erase({0, key}); break;
      case 1: card->resize(std::min(card->size(), at)); break;
      case 2: card->push_back(std::byte{what}); break;
      case 3:
        if (!card->empty()) (*card)[at % card->size()] ^= std::byte{what};
        break;
      default: break;
    }
  }
  Value* head = card_of(*store, kHeadKey);
  if (head == nullptr || head->size() != 16 || (input.byte() & 1) == 0) return;
  const std::string text = stored_text(*store);
  const uint64_t words[2] = {text.size(), sum_of(text)};
  std::memcpy(head->data(), words, sizeof words);
}

// The text that a rank takes over; nothing if it keeps its own environment.
std::optional<std::string> accepted_text(FakeBootstrap& store) {
  const Value* head = card_of(store, kHeadKey);
  uint64_t words[2];
  if (head == nullptr || head->size() != sizeof words) return std::nullopt;
  std::memcpy(words, head->data(), sizeof words);
  if (words[0] == 0 || words[0] > SharedEnvironment::kMaxBytes) return std::nullopt;
  std::string text;
  for (size_t i = 0; text.size() < words[0]; ++i) {
    const Value* part = card_of(store, part_key(i));
    const size_t bytes = std::min<size_t>(words[0] - text.size(), Bootstrap::kMaxValueBytes);
    if (part == nullptr || part->size() != bytes) return std::nullopt;
    text.append(reinterpret_cast<const char*>(part->data()), bytes);
  }
  if (sum_of(text) != words[1] || text == kOwn[0] + '\0') return std::nullopt;
  return text;
}

// The variables of a text, in order, and without those that have no name.
std::vector<std::pair<std::string, std::string>> variables_in(const std::string& text) {
  std::vector<std::pair<std::string, std::string>> variables;
  for (size_t at = 0; at < text.size(); at += std::strlen(&text[at]) + 1) {
    const std::string one = &text[at];
    const size_t equals = one.find('=');
    if (equals != std::string::npos)
      variables.emplace_back(one.substr(0, equals), one.substr(equals + 1));
  }
  return variables;
}

void check_value(SharedEnvironment& here, const std::string& name,
                 const std::vector<std::pair<std::string, std::string>>& variables) {
  // The first of those with one name counts.
  const auto first = std::find_if(variables.begin(), variables.end(),
                                  [&](const auto& one) { return one.first == name; });
  const char* found = here.find(name.c_str());
  if (first == variables.end()) {
    HYDRANT_FUZZ_CHECK(found == nullptr);
  } else {
    HYDRANT_FUZZ_CHECK(found != nullptr && found == first->second);
  }
}

void check_found(SharedEnvironment& here, const std::optional<std::string>& text) {
  const auto variables = variables_in(text.value_or(""));
  constexpr size_t kMaxChecked = 16;
  const size_t step = variables.size() / kMaxChecked + 1;
  for (size_t i = 0; i < variables.size(); i += step)
    check_value(here, variables[i].first, variables);
  for (const char* name : {"", "A", "FUZZ_OWN"}) check_value(here, name, variables);
}

// Rank 0 shares what is not a launcher's, in order.
void check_published(const std::vector<std::string>& variables, std::string_view text) {
  for (const std::string& one : variables) {
    const bool is_shared = text.starts_with(std::string(one) + '\0');
    if (is_shared) text.remove_prefix(one.size() + 1);
    HYDRANT_FUZZ_CHECK(is_shared || (!one.empty() && one[0] >= 'A' && one[0] <= '_'));
    for (const char* prefix : {"PMI", "SLURM_", "OMPI_", "HYDRANT_JOB_", "_="})
      HYDRANT_FUZZ_CHECK(!is_shared || !one.starts_with(prefix));
  }
  HYDRANT_FUZZ_CHECK(text.empty());
}

void check_environment(Input& input) {
  // Repeated, and sometimes with a variable that makes it too large to be shared.
  constexpr uint8_t kHuge = 252;
  const uint8_t size = input.byte();
  const std::span<const uint8_t> head = input.bytes(16);
  Input changes(head.data(), head.size());
  const std::vector<std::string> lines = lines_of(input.all());
  std::vector<std::string> variables;
  for (uint32_t times = 1 + size % 4u; times > 0; --times)
    variables.insert(variables.end(), lines.begin(), lines.end());
  if (size >= kHuge) variables.push_back("HUGE=" + std::string(SharedEnvironment::kMaxBytes, 'x'));
  FakeBootstrap store;
  {
    const OwnEnvironment rank_0(variables);
    SharedEnvironment shared;
    HYDRANT_FUZZ_CHECK(shared.publish(store) == Status::kOk);
  }
  const std::string published = stored_text(store);
  if (!published.empty()) check_published(variables, published);
  tamper(changes, &store);
  const std::optional<std::string> text = accepted_text(store);
  const OwnEnvironment other(kOwn);
  SharedEnvironment here;
  here.adopt(store);
  check_found(here, text);
}

// ---- numbers ----

bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
void skip_blanks(const char** p) {
  while (is_blank(**p)) ++*p;
}

uint64_t take_unit(const char** p, uint64_t otherwise) {
  skip_blanks(p);
  constexpr std::string_view kLetters = "BKMGT";
  const size_t index =
      **p == '\0' ? kLetters.npos
                  : kLetters.find(static_cast<char>(**p >= 'a' && **p <= 'z' ? **p - 32 : **p));
  if (index == kLetters.npos) return otherwise;
  ++*p;
  if (index != 0) *p += strncasecmp(*p, "ib", 2) == 0 ? 2 : strncasecmp(*p, "b", 1) == 0 ? 1 : 0;
  return uint64_t{1} << (10 * index);
}

// The grammar of <hydrant/gasnet/env.h>, independent of parse_integer(). Not exact for fractions.
ParsedInteger expected_integer(const char* p, uint64_t plain, bool* is_exact) {
  const bool has_units = plain != 0;
  uint64_t unit = has_units ? plain : 1;
  *is_exact = true;
  skip_blanks(&p);
  const bool is_negative = *p == '-';
  if (*p == '-' || *p == '+') skip_blanks(&++p);
  if (strncasecmp(p, "0x", 2) == 0 && isxdigit(static_cast<unsigned char>(p[2])) != 0) {
    uint64_t bits = 0;
    for (p += 2; isxdigit(static_cast<unsigned char>(*p)) != 0; ++p)
      bits = bits << 4 | std::stoul(std::string(1, *p), nullptr, 16);
    if (has_units) unit = take_unit(&p, unit);
    skip_blanks(&p);
    bits *= unit;
    return {static_cast<int64_t>(is_negative ? 0 - bits : bits), p};
  }
  if (!is_digit(*p) && !(*p == '.' && is_digit(p[1]))) return {0, p};
  const char* end = p;
  while (is_digit(*end)) ++end;
  if (*end == '.') {
    for (++end; is_digit(*end); ++end) *is_exact = false;
  }
  const long double number = std::strtold(std::string(p, end).c_str(), nullptr);
  p = end;
  if (has_units) unit = take_unit(&p, unit);
  skip_blanks(&p);
  const long double value = number * static_cast<long double>(unit);
  if (value > 1e18L) *is_exact = false;
  constexpr long double kMax = 9223372036854775807.0L;
  const auto magnitude = static_cast<int64_t>(std::min(value, kMax));
  return {is_negative ? -magnitude : magnitude, p};
}

void check_integer(const GuardedCopy& text, uint64_t unit) {
  const char* const begin = text.text().data();
  const ParsedInteger parsed = parse_integer(begin, unit);
  bool is_exact = false;
  const ParsedInteger expected = expected_integer(begin, unit, &is_exact);
  HYDRANT_FUZZ_CHECK(parsed.rest == expected.rest);
  HYDRANT_FUZZ_CHECK(hydrant_tools_parse_int(begin, unit) == parsed.value);
  if (is_exact) {
    HYDRANT_FUZZ_CHECK(parsed.value == expected.value);
  } else {
    const auto wanted = static_cast<long double>(expected.value);
    HYDRANT_FUZZ_CHECK(std::fabs(static_cast<long double>(parsed.value) - wanted) <=
                       2 + std::fabs(wanted) * 1e-9L);
  }
}

// A decimal number of digits, a point and an exponent, independent of take_double(); null if there is none.
const char* skip_decimal(const char* p) {
  skip_blanks(&p);
  if (*p == '+' || *p == '-') ++p;
  const char* const whole = p;
  while (is_digit(*p)) ++p;
  bool has_digits = p != whole;
  if (*p == '.') {
    const char* const fraction = ++p;
    while (is_digit(*p)) ++p;
    has_digits = has_digits || p != fraction;
  }
  if (!has_digits) return nullptr;
  if (*p != 'e' && *p != 'E') return p;
  const char* exponent = p + 1;
  if (*exponent == '+' || *exponent == '-') ++exponent;
  if (!is_digit(*exponent)) return p;
  while (is_digit(*exponent)) ++exponent;
  return exponent;
}

// The same value as strtod() in the "C" locale, but for texts that are decimal numbers alone.
void check_double(const GuardedCopy& text) {
  constexpr double kMark = 4711;
  const char* const begin = text.text().data();
  double value = kMark;
  const bool is_good = parse_double(begin, &value);
  const char* rest = skip_decimal(begin);
  const double top = rest != nullptr ? std::strtod(begin, nullptr) : 0;
  double bottom = 1;
  if (rest != nullptr) skip_blanks(&rest);
  const bool is_fraction = rest != nullptr && *rest == '/';
  if (is_fraction) {
    const char* const second = rest + 1;
    rest = skip_decimal(second);
    if (rest != nullptr) bottom = std::strtod(second, nullptr);
    if (rest != nullptr) skip_blanks(&rest);
  }
  const bool is_decimal = rest != nullptr && *rest == '\0';
  if (!is_good) {
    HYDRANT_FUZZ_CHECK(std::fabs(value - kMark) <= 0);
    // A number that is too large or too small for double is none.
    const auto is_normal = [](double one) { return std::isnormal(one); };
    HYDRANT_FUZZ_CHECK(!is_decimal || !is_normal(top) || !is_normal(bottom) ||
                       !std::isfinite(top / bottom));
    return;
  }
  HYDRANT_FUZZ_CHECK(is_decimal && std::isfinite(value));
  const double whole = is_fraction ? top / bottom : top;
  HYDRANT_FUZZ_CHECK(std::memcmp(&whole, &value, sizeof value) == 0);
}

// A formatted number fits its room and, whole, is read back.
void check_format(int64_t number, size_t room) {
  for (const int is_size : {0, 1}) {
    const GuardedCopy buffer(std::vector<uint8_t>(room, 0xaa));
    auto* const place = static_cast<char*>(static_cast<void*>(buffer.data()));
    HYDRANT_FUZZ_CHECK(hydrant_tools_format_number(number, place, room, is_size) == place);
    HYDRANT_FUZZ_CHECK(room == 0 || std::memchr(place, 0, room) != nullptr);
    if (room < 32) continue;
    const int64_t again = hydrant_tools_parse_int(place, is_size != 0 ? 1 : 0);
    // Sizes are rounded towards zero to a tenth at most.
    const auto lost = static_cast<double>(number) - static_cast<double>(again);
    const bool is_close =
        is_size != 0 && std::fabs(lost) * 10 <= std::fabs(static_cast<double>(number));
    HYDRANT_FUZZ_CHECK(again == number || (is_close && std::signbit(lost) == (number < 0)));
  }
}

void check_numbers(Input& input) {
  constexpr uint64_t kUnits[] = {0, 1, 1024, uint64_t{1} << 20, UINT64_MAX};
  const uint8_t unit = input.byte();
  const auto number = input.take<int64_t>();
  check_format(number >> (unit % 64u), unit % 48u);
  check_format(number >> (unit % 64u), 32);
  std::vector<uint8_t> bytes;
  for (const uint8_t one : input.all()) {
    if (one == 0) break;
    bytes.push_back(one);
  }
  bytes.push_back(0);
  const GuardedCopy text(bytes);
  check_integer(text, unit < 250 ? kUnits[unit % 5] : static_cast<uint64_t>(number));
  check_double(text);
}

// ---- signals ----

bool is_name_of(const std::string& name, int number) {
  constexpr size_t kMax = 31;
  if (name.size() > kMax) return false;
  const char* const whole = hydrant_tools_signame_fromval(number);
  if (strcasecmp(name.c_str(), whole) == 0 || strcasecmp(name.c_str(), whole + 3) == 0) return true;
  char* end = nullptr;
  const long value = std::strtol(name.c_str(), &end, 10);
  return end != name.c_str() && *end == '\0' && value == number;
}

bool is_kept(const std::string& list, int number) {
  if (list == "*") return true;
  for (size_t at = 0; at <= list.size();) {
    const size_t comma = std::min(list.find(',', at), list.size());
    if (is_name_of(list.substr(at, comma - at), number)) return true;
    at = comma + 1;
  }
  return false;
}

void check_signals(Input& input) {
  const std::vector<std::string> lines = lines_of(input.bytes(160));
  const std::string list = lines.empty() ? "" : lines[0];
  const OwnEnvironment own({"GASNET_NO_CATCH_SIGNAL=" + list});
  for (const int number :
       {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGQUIT, SIGINT, SIGTERM, SIGHUP})
    HYDRANT_FUZZ_CHECK(catches_signal(number) != is_kept(list, number));
}

}  // namespace
}  // namespace hydrant::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hydrant;
  using namespace hydrant::fuzz;
  if (size > 4096) return 0;
  // Warnings are results here.
  set_log_level(LogLevel::kError);
  Input input(data, size);
  switch (input.byte() % 3) {
    case 0: check_environment(input); break;
    case 1: check_numbers(input); break;
    default: check_signals(input); break;
  }
  return 0;
}
