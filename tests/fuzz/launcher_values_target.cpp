// Fuzz target: the environment variables by which launchers show themselves, and the values of PMIx.
#include "firehose/base/config/config_grammar.hpp"
#include "firehose/base/log.hpp"
#include "firehose/base/thread.hpp"
#include "rdma/bootstrap/bootstrap_hints.hpp"
#include "tests/fuzz/job_place.hpp"
#include "tests/fuzz/own_environment.hpp"

#if HYDRANT_HAVE_PMIX
#include "rdma/bootstrap/bootstrap_pmix.hpp"
#include "tests/unit/rdma/pmix/fake_pmix.hpp"
#endif

#include <charconv>
#include <map>
#include <memory>

namespace hydrant::fuzz {
namespace {

// ---- variables ----

// A launcher is there if the first variable has a text; the second has the size of the job.
constexpr const char* kLaunchers[][2] = {
    {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_SIZE"},
    {"PMIX_NAMESPACE", ""},
    {"PMI_FD", "PMI_SIZE"},
    {"PMI_RANK", "PMI_SIZE"},
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"},
    {"PALS_RANKID", "PALS_SIZE"},
    {"FLUX_TASK_RANK", "FLUX_JOB_SIZE"},
};

bool has_text(const char* name) {
  const char* text = std::getenv(name);
  return text != nullptr && *text != '\0';
}
// The variable's number, 0 if it has none.
uint64_t number_in(const char* name) {
  uint64_t number = 0;
  const char* text = std::getenv(name);
  return text != nullptr && parse_count(text, &number) && number <= UINT32_MAX ? number : 0;
}

// A rank may not be the last number: its successor is the size.
void check_wrong(const LauncherHint& hint) {
  const bool is_wrong = *hint.wrong != '\0';
  HYDRANT_FUZZ_CHECK(check_hint_numbers(hint) == (is_wrong ? Status::kBadArg : Status::kOk));
  if (is_wrong) {
    const std::string_view text = last_error_text();
    const std::string value = std::getenv(hint.wrong);
    HYDRANT_FUZZ_CHECK(text.starts_with(hint.wrong) && text.find(value.substr(0, 40)) != text.npos);
    HYDRANT_FUZZ_CHECK(number_in(hint.wrong) == 0 || number_in(hint.wrong) == UINT32_MAX);
  }
  // PMIX_RANK alone identifies a job of this launcher.
  if (has_text("PMIX_NAMESPACE") && number_in("PMIX_RANK") == UINT32_MAX)
    HYDRANT_FUZZ_CHECK(is_wrong);
}

void check_found_hint(const LauncherHint& hint) {
  bool any = false;
  for (const auto& [shows, size] : kLaunchers) {
    if (!has_text(shows)) continue;
    any = true;
    HYDRANT_FUZZ_CHECK(hint.size >= number_in(size));
  }
  HYDRANT_FUZZ_CHECK(any == (*hint.variable != '\0'));
  if (!any) return;
  HYDRANT_FUZZ_CHECK(has_text(hint.variable));
  HYDRANT_FUZZ_CHECK(*hint.launcher != '\0' && *hint.command != '\0');
  HYDRANT_FUZZ_CHECK(hint.whole_step || hint.variable == std::string_view("SLURM_PROCID"));
  // The size, or the number of the last rank that is known, is some variable's.
  bool is_told = hint.size == 0;
  for (char** one = environ; *one != nullptr; ++one) {
    const std::string variable = *one;
    const uint64_t number = number_in(variable.substr(0, variable.find('=')).c_str());
    is_told = is_told || number == hint.size || number + 1 == hint.size;
  }
  HYDRANT_FUZZ_CHECK(is_told);
}

void check_hints(std::span<const uint8_t> input) {
  const OwnEnvironment own(lines_of(input));
  const LauncherHint hint = find_launcher_hint();
  check_found_hint(hint);
  check_wrong(hint);
  const auto found = static_cast<Rank>(number_in("FUZZ_FOUND"));
  const char* why = std::getenv("FUZZ_WHY");
  const std::string reason = why != nullptr ? why : "";
  const bool is_fine = *hint.variable == '\0' || hint.size == 1 ||
                       (hint.size == 0 ? reason.empty() : hint.size <= found);
  const Status status = check_launcher_hint(hint, found, reason);
  HYDRANT_FUZZ_CHECK(status == (is_fine ? Status::kOk : Status::kBroken));
  if (is_fine) return;
  const std::string_view text = last_error_text();
  HYDRANT_FUZZ_CHECK(text.starts_with(hint.launcher));
  HYDRANT_FUZZ_CHECK(text.find(hint.command) != text.npos);
  HYDRANT_FUZZ_CHECK(text.find(reason.substr(0, 40)) != text.npos);
  // There is room for all of it, unless ranks are counted in millions.
  constexpr Rank kMillion = 1'000'000;
  HYDRANT_FUZZ_CHECK(hint.size >= kMillion || found >= kMillion ||
                     text.ends_with("HYDRANT_BOOTSTRAP=alone)"));
}

// ---- PMIx ----

#if HYDRANT_HAVE_PMIX
namespace fake = testing::fake_pmix;
using Lines = std::map<std::string, std::string>;

uint64_t soon() { return now_ns() + 60'000'000'000; }

pmix_value_t* make_value(pmix_data_type_t type) {
  auto* value = static_cast<pmix_value_t*>(std::calloc(1, sizeof(pmix_value_t)));
  value->type = type;
  return value;
}

pmix_value_t* make_text(const std::string& text) {
  pmix_value_t* value = make_value(PMIX_STRING);
  value->data.string = strdup(text.c_str());
  return value;
}

pmix_value_t* make_object(std::string_view bytes) {
  pmix_value_t* value = make_value(PMIX_BYTE_OBJECT);
  value->data.bo.size = bytes.size();
  value->data.bo.bytes = static_cast<char*>(std::malloc(bytes.size() + 1));
  std::memcpy(value->data.bo.bytes, bytes.data(), bytes.size());
  return value;
}

// A number, or a string where there are not only digits.
pmix_value_t* make_number(const std::string& text) {
  uint32_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc{} || stopped != end) return make_text(text);
  pmix_value_t* value = make_value(PMIX_UINT32);
  value->data.uint32 = number;
  return value;
}

// Element `index` of a list with commas; "" past its end.
std::string element(std::string_view list, uint32_t index) {
  for (; index > 0; --index) {
    const size_t comma = list.find(',');
    if (comma == list.npos) return "";
    list.remove_prefix(comma + 1);
  }
  return std::string(list.substr(0, list.find(',')));
}

// "size=4": a number, "!": no value, "~": a value whose pointer is null, "": not known. "peers" is a text,
// but with "#" in front.
pmix_status_t answer(const Lines& lines, uint32_t rank, std::string_view key,
                     pmix_value_t** value) {
  const auto line = [&lines](const char* name) {
    const auto found = lines.find(name);
    return found != lines.end() ? found->second : std::string();
  };
  std::string text;
  if (key == PMIX_JOB_SIZE) text = line("size");
  if (key == PMIX_NUM_NODES) text = line("nodes");
  if (key == PMIX_LOCAL_PEERS) text = line("peers");
  if (key == PMIX_NODEID) text = element(line("ids"), rank);
  if (key == "hydrant/raw") text = line("raw");
  if (key == "hydrant/card") {
    const std::vector<char> put = fake::last_put();
    *value = make_object({put.data(), put.size()});
    return PMIX_SUCCESS;
  }
  if (text.empty()) return PMIX_ERR_NOT_FOUND;
  if (text == "!") return PMIX_SUCCESS;
  if (text == "~") {
    *value = make_value(key == "hydrant/raw" ? PMIX_BYTE_OBJECT : PMIX_STRING);
    if (key == "hydrant/raw") (*value)->data.bo.size = 9;
  } else if (key == "hydrant/raw") {
    *value = make_object(text);
  } else if (key == PMIX_LOCAL_PEERS && text[0] != '#') {
    *value = make_text(text);
  } else {
    *value = make_number(text[0] == '#' ? text.substr(1) : text);
  }
  return PMIX_SUCCESS;
}

void check_cards(Bootstrap& bootstrap, const Lines& lines) {
  std::byte room[64];
  size_t bytes = 0;
  const auto given = lines.find("card");
  const std::string card = given != lines.end() ? given->second.substr(0, 64) : "";
  HYDRANT_FUZZ_CHECK(bootstrap.put("card", std::as_bytes(std::span(card))) == Status::kOk);
  const Rank self = bootstrap.topology().rank;
  HYDRANT_FUZZ_CHECK(bootstrap.get(self, "card", room, &bytes, soon()) == Status::kOk);
  HYDRANT_FUZZ_CHECK(bytes == card.size() && std::memcmp(room, card.data(), bytes) == 0);
  // The library's values have a byte more than a card.
  const auto raw = lines.find("raw");
  const std::string value =
      raw != lines.end() && raw->second != "!" && raw->second != "~" ? raw->second : "";
  const bool is_good = !value.empty() && value.size() <= sizeof room + 1;
  const Status status = bootstrap.get(self, "raw", room, &bytes, soon());
  HYDRANT_FUZZ_CHECK((status == Status::kOk) == is_good);
  if (is_good) {
    HYDRANT_FUZZ_CHECK(bytes == value.size() - 1 && std::memcmp(room, value.data(), bytes) == 0);
  } else {
    HYDRANT_FUZZ_CHECK(last_error_text()[0] != '\0');
  }
}

// The ranks of a node as the launcher lists them: numbers with single commas between, in any order.
std::vector<Rank> listed_ranks(std::string_view list) {
  std::vector<Rank> ranks;
  for (uint32_t i = 0; i <= std::count(list.begin(), list.end(), ','); ++i) {
    const std::string text = element(list, i);
    HYDRANT_FUZZ_CHECK(!text.empty() && text.find_first_not_of("0123456789") == text.npos);
    ranks.push_back(static_cast<Rank>(std::stoul(text)));
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

void check_pmix(std::span<const uint8_t> input) {
  Lines lines;
  for (const std::string& line : lines_of(input)) {
    const size_t equals = line.find('=');
    if (equals != line.npos) lines[line.substr(0, equals)] = line.substr(equals + 1);
  }
  uint32_t rank = 0;
  const std::string& own = lines["rank"];
  std::from_chars(own.data(), own.data() + own.size(), rank);
  fake::start(rank, fake::Board::kUnsupported);
  fake::answer_gets([&lines](uint32_t of, const char* key, pmix_value_t** value) {
    return answer(lines, of, key, value);
  });
  std::unique_ptr<Bootstrap> bootstrap;
  if (open_pmix(soon(), &bootstrap) == Status::kOk) {
    const JobTopology& place = bootstrap->topology();
    HYDRANT_FUZZ_CHECK(place.rank == rank);
    HYDRANT_FUZZ_CHECK(listed_ranks(lines["peers"]) == place.node_ranks);
    if (place.leaders.empty()) {
      check_place(place);
    } else {
      check_place_with_leaders(place);
    }
    check_cards(*bootstrap, lines);
    bootstrap->leave(0, ExitReason::kExit, soon());
  } else {
    HYDRANT_FUZZ_CHECK(bootstrap == nullptr && last_error_text()[0] != '\0');
  }
  bootstrap.reset();
  fake::answer_gets({});
  HYDRANT_FUZZ_CHECK(fake::finalized());
}

// Rank 0 of the job of four that a fake libpmix has by itself.
std::unique_ptr<Bootstrap> open_job() {
  std::unique_ptr<Bootstrap> bootstrap;
  fake::start(0, fake::Board::kCarries);
  HYDRANT_FUZZ_CHECK(open_pmix(soon(), &bootstrap) == Status::kOk);
  return bootstrap;
}

// Exits of other ranks, as a lookup answers them.
void check_exits(Input input) {
  const std::unique_ptr<Bootstrap> bootstrap = open_job();
  std::vector<pmix_pdata_t> words(input.below(5));
  const pmix_status_t status = input.below(4) != 3 ? PMIX_SUCCESS : PMIX_ERR_NOT_FOUND;
  std::vector<std::pair<Rank, int>> expected;
  for (pmix_pdata_t& word : words) {
    const uint8_t bits = input.byte();
    const char* const job = (bits & 1) != 0 ? "job-10" : fake::kNamespace;
    std::strncpy(word.proc.nspace, job, PMIX_MAX_NSLEN);
    word.proc.rank = (bits & 2) != 0 ? input.take<uint32_t>() : input.byte() % 8u;
    word.value.type = (bits & 4) != 0 ? static_cast<pmix_data_type_t>(input.byte()) : PMIX_INT;
    word.value.data.integer = input.take<int32_t>();
    if (status == PMIX_SUCCESS && (bits & 1) == 0 && word.proc.rank - 1 < 3 &&
        word.value.type == PMIX_INT)
      expected.emplace_back(word.proc.rank, word.value.data.integer);
  }
  fake::answer_lookup(status, words);
  for (const auto& [rank, code] : expected) {
    const Bootstrap::Event event = bootstrap->read_event();
    HYDRANT_FUZZ_CHECK(event.kind == Bootstrap::Event::Kind::kExit);
    HYDRANT_FUZZ_CHECK(event.rank == rank && event.code == code);
  }
  HYDRANT_FUZZ_CHECK(bootstrap->read_event().kind == Bootstrap::Event::Kind::kNothing);
  bootstrap->leave(0, ExitReason::kExit, soon());
}

// The object that hears of exits exists once per process, and keeps its first job.
bool open_first() {
  open_job()->leave(0, ExitReason::kExit, soon());
  return true;
}
#endif

}  // namespace
}  // namespace hydrant::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hydrant;
  using namespace hydrant::fuzz;
  if (size < 2 || size > 4096) return 0;
  // Warnings are results here.
  set_log_level(LogLevel::kError);
  // The first line selects the part.
#if HYDRANT_HAVE_PMIX
  static const bool is_open = open_first();
  if (data[0] == 'p' && is_open) check_pmix({data + 2, size - 2});
  if (data[0] == 'x' && is_open) check_exits(Input(data + 2, size - 2));
#endif
  if (data[0] != 'p' && data[0] != 'x') check_hints({data, size});
  return 0;
}
