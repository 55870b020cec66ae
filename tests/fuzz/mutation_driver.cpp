// Runs a fuzz target without libFuzzer: first the corpus, then a number of mutations of it and random
// inputs, or as many as some time allows. The same seed gives the same inputs.
#include "tests/fuzz/fuzz_target.hpp"
#include "tests/support/patience.hpp"
#include "tests/support/test_seed.hpp"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <random>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#if HYDRANT_FUZZ_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

namespace {

using Bytes = std::vector<uint8_t>;

constexpr const char* kUsage =
    "usage: fuzz_TARGET [--seconds N] [--long N] [--runs N] [--seed N] [--longest BYTES]\n"
    "                   [--save FILE] [--minimize] [FILE|FOLDER...]\n"
    "Replays the files, then runs mutations of them and random inputs.\n"
    "  --runs N      run this many inputs after the files; default: 10000\n"
    "  --seconds N   run for this time instead; 0: only the files. HYDRANT_FUZZ_SECONDS in the "
    "environment "
    "overrides it\n"
    "  --long N      the time with HYDRANT_TEST_LONG=1 in the environment\n"
    "  --seed N      seed of the mutations; default: HYDRANT_TEST_SEED, else 1\n"
    "  --longest N   longest random input in bytes, 4096\n"
    "  --save FILE   write a failing input to this file\n"
    "  --minimize    shorten the one FILE, a failing input, and write it to "
    "--save\n";

struct Options {
  // Without a time, a number of inputs is the limit.
  std::optional<double> seconds;
  double long_seconds = 60;
  uint64_t runs = 10'000;
  uint64_t seed = 0;
  size_t longest = 4096;
  std::string save;
  bool minimize = false;
  std::vector<std::string> paths;
};

// Time limit of an input in seconds, after which it counts as failed.
constexpr unsigned kMaxRun = 60;

// The current input, for the crash handler.
const Bytes* current = nullptr;
char save_path[4096];

void save_current() {
  const Bytes* failed = current;
  current = nullptr;
  if (failed == nullptr || save_path[0] == 0) return;
  const int fd = open(save_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return;
  for (size_t at = 0; at < failed->size();) {
    const ssize_t n = write(fd, failed->data() + at, failed->size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    at += static_cast<size_t>(n);
  }
  close(fd);
  constexpr char kText[] = "the failing input is in ";
  (void)!write(STDERR_FILENO, kText, sizeof kText - 1);
  (void)!write(STDERR_FILENO, save_path, std::strlen(save_path));
  (void)!write(STDERR_FILENO, "\n", 1);
}

void on_signal(int number) {
  if (number == SIGALRM) {
    constexpr char kText[] = "an input did not end in time\n";
    (void)!write(STDERR_FILENO, kText, sizeof kText - 1);
  }
  save_current();
  std::signal(number == SIGALRM ? SIGABRT : number, SIG_DFL);
  std::raise(number == SIGALRM ? SIGABRT : number);
}

void watch_for_crashes() {
  std::vector<int> signals = {SIGABRT, SIGALRM};
#if HYDRANT_FUZZ_ASAN
  __sanitizer_set_death_callback(save_current);
#else
  signals.insert(signals.end(), {SIGSEGV, SIGBUS, SIGFPE, SIGILL});
#endif
  for (const int number : signals) {
    struct sigaction action = {};
    action.sa_handler = on_signal;
    // Runs this handler once, then the default.
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    sigaction(number, &action, nullptr);
  }
}

void run(const Bytes& input) {
  // Passes a buffer of exactly the input's length: a sanitizer detects reads beyond it.
  current = &input;
  (void)LLVMFuzzerTestOneInput(input.data(), input.size());
  current = nullptr;
}

std::vector<Bytes> read_corpus(const std::vector<std::string>& paths) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    if (!std::filesystem::is_directory(path)) {
      files.push_back(path);
      continue;
    }
    for (const auto& entry : std::filesystem::directory_iterator(path))
      files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  std::vector<Bytes> corpus;
  for (const std::string& file : files) {
    std::ifstream in(file, std::ios::binary);
    if (!in) {
      std::fprintf(stderr, "cannot read %s\n", file.c_str());
      std::exit(2);
    }
    corpus.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  return corpus;
}

class Mutator {
 public:
  Mutator(const std::vector<Bytes>& corpus, uint64_t seed, size_t longest)
      : corpus_(corpus), random_(seed), max_(longest) {}

  Bytes next() {
    if (corpus_.empty() || below(4) == 0) return fresh();
    Bytes input = corpus_[below(corpus_.size())];
    for (size_t n = 1 + below(below(4) == 0 ? 16 : 3); n > 0; --n) mutate(&input);
    if (input.size() > max_) input.resize(max_);
    return input;
  }

 private:
  size_t below(size_t bound) { return static_cast<size_t>(random_() % bound); }
  uint8_t any_byte() { return static_cast<uint8_t>(random_()); }

  Bytes fresh() {
    Bytes input(below(below(3) == 0 ? max_ : 64) + 1);
    for (uint8_t& one : input) one = any_byte();
    return input;
  }
  void overwrite(Bytes* input, uint64_t value, size_t bytes) {
    if (input->size() < bytes) return;
    std::memcpy(input->data() + below(input->size() - bytes + 1), &value, bytes);
  }
  void mutate(Bytes* input) {
    constexpr uint64_t kOdd[] = {0,          1,          0x7f,       0x80,
                                 0xff,       0x7fff,     0xffff,     0x7fffffff,
                                 0x80000000, 0xffffffff, UINT64_MAX, UINT64_MAX - 4095};
    const size_t at = input->empty() ? 0 : below(input->size());
    const auto place = input->begin() + static_cast<std::ptrdiff_t>(at);
    switch (below(9)) {
      case 0:
        if (!input->empty()) *place = static_cast<uint8_t>(*place ^ (1u << below(8)));
        break;
      case 1:
        if (!input->empty()) *place = any_byte();
        break;
      case 2: overwrite(input, kOdd[below(std::size(kOdd))], size_t{1} << below(4)); break;
      case 3:  // increments or decrements a byte
        if (!input->empty()) *place = static_cast<uint8_t>(*place + (below(2) != 0 ? 1 : 255));
        break;
      case 4: input->resize(at); break;
      case 5: input->insert(place, 1 + below(16), any_byte()); break;
      case 6:
        input->erase(place, place + static_cast<std::ptrdiff_t>(
                                        std::min(input->size() - at, 1 + below(16))));
        break;
      case 7: splice(input, at); break;
      default: {  // copies a part of the input
        const Bytes part(place, place + static_cast<std::ptrdiff_t>(
                                            std::min(input->size() - at, 1 + below(64))));
        input->insert(input->begin() + static_cast<std::ptrdiff_t>(below(input->size() + 1)),
                      part.begin(), part.end());
      }
    }
  }
  // Joins the beginning of this input with the end of another.
  void splice(Bytes* input, size_t at) {
    const Bytes& other = corpus_[below(corpus_.size())];
    if (other.empty()) return;
    input->resize(at);
    input->insert(input->end(), other.begin() + static_cast<std::ptrdiff_t>(below(other.size())),
                  other.end());
  }

  const std::vector<Bytes>& corpus_;
  std::mt19937_64 random_;
  const size_t max_;
};

// Runs the input in a child, so that this process survives.
bool fails(const Bytes& input) {
  const pid_t child = fork();
  if (child == 0) {
    save_path[0] = 0;
    const int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    dup2(null, STDERR_FILENO);
    hydrant_test_alarm(kMaxRun);
    run(input);
    _exit(0);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status != 0;
}

int minimize(Bytes input) {
  if (!fails(input)) {
    std::fprintf(stderr, "the input does not fail\n");
    return 2;
  }
  for (size_t part = input.size() / 2; part != 0; part /= 2) {
    for (size_t at = 0; at + part <= input.size();) {
      Bytes shorter = input;
      const auto from = shorter.begin() + static_cast<std::ptrdiff_t>(at);
      shorter.erase(from, from + static_cast<std::ptrdiff_t>(part));
      if (fails(shorter)) {
        input = std::move(shorter);
      } else {
        at += part;
      }
    }
  }
  std::fprintf(stderr, "reduced to %zu bytes\n", input.size());
  current = &input;
  save_current();
  return 0;
}

Options read_options(int argc, char** argv) {
  Options options;
  options.seed = hydrant::testing::test_seed();
  const auto usage = [](int status) {
    std::fputs(kUsage, status == 0 ? stdout : stderr);
    std::exit(status);
  };
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const auto number = [&] {
      if (++i == argc) usage(2);
      return std::strtod(argv[i], nullptr);
    };
    if (name == "--help") usage(0);
    if (name == "--seconds")
      options.seconds = number();
    else if (name == "--long")
      options.long_seconds = number();
    else if (name == "--runs")
      options.runs = static_cast<uint64_t>(number());
    else if (name == "--seed")
      options.seed = static_cast<uint64_t>(number());
    else if (name == "--longest")
      options.longest = static_cast<size_t>(number());
    else if (name == "--minimize")
      options.minimize = true;
    else if (name == "--save" && i + 1 < argc)
      options.save = argv[++i];
    else if (name[0] == '-')
      usage(2);
    else
      options.paths.push_back(name);
  }
  const char* is_long = std::getenv("HYDRANT_TEST_LONG");
  if (is_long != nullptr && is_long[0] == '1') options.seconds = options.long_seconds;
  if (const char* wanted = std::getenv("HYDRANT_FUZZ_SECONDS"))
    options.seconds = std::strtod(wanted, nullptr);
  if (options.save.empty()) options.save = std::filesystem::path(argv[0]).string() + ".failed";
  options.longest = std::max<size_t>(options.longest, 1);
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = read_options(argc, argv);
  std::snprintf(save_path, sizeof save_path, "%s", options.save.c_str());
  watch_for_crashes();
  const std::vector<Bytes> corpus = read_corpus(options.paths);
  if (options.minimize) return corpus.size() == 1 ? minimize(corpus[0]) : 2;
  // Printed first: the seed reproduces a failure.
  std::fprintf(stderr, "seed %llu, %zu files\n", static_cast<unsigned long long>(options.seed),
               corpus.size());
  hydrant_test_alarm(kMaxRun);
  for (const Bytes& input : corpus) run(input);
  Mutator mutator(corpus, options.seed, options.longest);
  const auto start = std::chrono::steady_clock::now();
  const auto is_over = [&](uint64_t runs) {
    if (!options.seconds) return runs == options.runs;
    return std::chrono::steady_clock::now() - start >=
           std::chrono::duration<double>(*options.seconds);
  };
  uint64_t runs = 0;
  for (; !is_over(runs); ++runs) {
    hydrant_test_alarm(kMaxRun);
    run(mutator.next());
  }
  std::fprintf(stderr, "%llu inputs\n", static_cast<unsigned long long>(runs));
  return 0;
}
