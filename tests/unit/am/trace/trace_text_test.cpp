// Masks, lines and files of a trace.
#include "am/trace/trace_text.hpp"

#include "am/trace/trace_file.hpp"
#include "am/trace/trace_mask.hpp"
#include "tests/support/patience.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <fcntl.h>
#include <fstream>
#include <memory>
#include <string>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

namespace hydrant::testing {
namespace {

std::string text_of(TraceMask mask) {
  char text[sizeof kTraceLetters];
  return mask.format(text);
}

TEST(TraceMask, LettersAndComplements) {
  TraceMask mask;
  EXPECT_EQ(text_of(mask), kTraceLetters);
  EXPECT_TRUE(mask.parse("pG"));
  EXPECT_EQ(text_of(mask), "GPU");
  EXPECT_TRUE(mask.parse("^XU"));
  EXPECT_EQ(text_of(mask), "GPRSWBLAIOCDNHU");
  EXPECT_TRUE(mask.parse("^"));
  EXPECT_EQ(text_of(mask), kTraceLetters);
  EXPECT_TRUE(mask.parse(""));
  EXPECT_EQ(text_of(mask), "U");
  EXPECT_FALSE(mask.parse("P,G"));
  EXPECT_EQ(text_of(mask), "GPU");
  EXPECT_FALSE(mask.parse("Z\xc3"));
}

TEST(TraceMask, CallsHaveTheirLetters) {
  const struct {
    const char* name;
    char letter;
  } calls[] = {{"gex_RMA_PutNBI", 'P'},        {"gex_RMA_GetNBVal", 'G'},
               {"gex_VIS_StridedPutNB", 'P'},  {"gex_VIS_IndexedGetNB", 'G'},
               {"gex_AM_RequestShort", 'A'},   {"gex_AD_OpNB_I32", 'R'},
               {"gex_AD_Create", 'O'},         {"gex_Coll_BarrierNB", 'B'},
               {"gasnet_barrier_wait", 'B'},   {"gex_Coll_ReduceToAllNB", 'W'},
               {"gex_Event_Wait", 'S'},        {"gasnet_AMPoll", 'X'},
               {"gasnet_getSegmentInfo", 'O'}, {"gasnet_get_nb_val", 'G'},
               {"gex_TM_Split", 'O'},          {"gex_NBI_Wait", 'S'}};
  for (const auto& call : calls) EXPECT_EQ(letter_of_call(call.name), call.letter) << call.name;
}

TEST(TraceText, TextsStayOnOneLineAndAreCut) {
  TraceLine line;
  line.add_on_one_line("two\nlines\r\n\n");
  EXPECT_EQ(std::string(line.text(), line.bytes()), "two lines");
  TraceLine cut;
  cut.add_on_one_line(std::string(100'000, 'x'));
  EXPECT_EQ(cut.bytes(), TraceLine::kTextBytes);
  for (int i = 0; i < 2000; ++i) {
    cut.add("and more");
    cut.add_number(UINT64_MAX);
    cut.add_hex(UINT64_MAX);
    cut.add_padded(7, 9);
  }
  EXPECT_LE(cut.bytes(), TraceLine::kTextBytes + 1024);
}

TEST(TraceText, NumbersHaveTheirDigits) {
  TraceLine line;
  line.add_padded(42, 9);
  line.add(" ");
  line.add_hex(0xabc);
  line.add(" ");
  line.add_number(0);
  EXPECT_EQ(std::string(line.text(), line.bytes()), "000000042 0xabc 0");
}

class TraceFiles : public ::testing::Test {
 protected:
  void TearDown() override { unlink(path_.c_str()); }
  std::string content() const {
    std::ifstream file(path_);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  const std::string path_ = "trace_file_test." + std::to_string(getpid());
  std::unique_ptr<TraceFile> file_ = std::make_unique<TraceFile>();
};

TEST_F(TraceFiles, LinesBeforeTheOpenAreKept) {
  file_->append("dropped: nothing is expected", 28);
  file_->expect();
  file_->append("early", 5);
  file_->flush();
  ASSERT_TRUE(file_->open("GASNET_TRACEFILE", path_.c_str(), 3, true));
  file_->print("late %d", 7);
  file_->close();
  EXPECT_EQ(content(), "early\nlate 7\n");
  EXPECT_EQ(file_->lost_lines(), 0u);
}

TEST_F(TraceFiles, EachPercentSignIsTheRank) {
  ASSERT_TRUE(file_->open("GASNET_TRACEFILE", "./%trace%", 12, true));
  EXPECT_STREQ(file_->path(), "./12trace12");
  file_->close();
  unlink("./12trace12");
}

TEST_F(TraceFiles, TheFirstWriterEmptiesAndOthersAppend) {
  for (const bool is_first : {true, false, true, false}) {
    ASSERT_TRUE(file_->open("GASNET_TRACEFILE", path_.c_str(), 0, is_first));
    file_->append(is_first ? "first" : "other", 5);
    file_->close();
  }
  EXPECT_EQ(content(), "first\nother\n");
}

TEST_F(TraceFiles, LongLinesAndManyOfThemAreWhole) {
  ASSERT_TRUE(file_->open("GASNET_TRACEFILE", path_.c_str(), 0, true));
  std::string expected;
  for (size_t i = 0; i < 3000; ++i) {
    const std::string line(i * 31 % 200 + (i == 1500 ? 100'000 : 0),
                           static_cast<char>('a' + i % 26));
    file_->append(line.data(), line.size());
    expected += line + "\n";
  }
  file_->close();
  EXPECT_TRUE(content() == expected);
}

TEST_F(TraceFiles, LinesThatADiskDoesNotTakeAreCounted) {
  ASSERT_TRUE(file_->open("GASNET_TRACEFILE", "/dev/full", 0, false));
  for (int i = 0; i < 10'000; ++i) file_->print("line %d", i);
  file_->close();
  EXPECT_EQ(file_->lost_lines(), 10'000u);
}

std::string read_some(int fd) {
  std::string all;
  char buffer[4096];
  for (ssize_t got = 1; got > 0;) {
    got = read(fd, buffer, sizeof buffer);
    if (got > 0) all.append(buffer, static_cast<size_t>(got));
  }
  return all;
}

TEST_F(TraceFiles, PipeIsOpenedWhenAReaderComes) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  ASSERT_TRUE(file_->open("GASNET_TRACEFILE", path_.c_str(), 0, true));
  file_->print("early");
  file_->flush();
  const int reads = open(path_.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  ASSERT_GE(reads, 0);
  file_->flush();
  file_->print("late");
  file_->close();
  EXPECT_EQ(read_some(reads), "early\nlate\n");
  EXPECT_EQ(file_->lost_lines(), 0u);
  close(reads);
}

TEST_F(TraceFiles, PipeWithoutReaderKeepsTheFirstLines) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  ASSERT_TRUE(file_->open("GASNET_TRACEFILE", path_.c_str(), 0, true));
  const std::string line(99, 'x');
  for (int i = 0; i < 1000; ++i) file_->append(line.data(), line.size());
  EXPECT_EQ(file_->lost_lines(), 1000u - 655u);  // 64 KiB have room for 655 of 100 bytes
  const int reads = open(path_.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  ASSERT_GE(reads, 0);
  EXPECT_GE(fcntl(reads, F_SETPIPE_SZ, 1 << 17), 1 << 17);
  file_->close();
  EXPECT_EQ(read_some(reads).size(), 65500u);
  EXPECT_EQ(file_->lost_lines(), 1000u - 655u);
  close(reads);
}

TEST_F(TraceFiles, LinesOfAPipeThatNobodyOpensAreCounted) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  ASSERT_TRUE(file_->open("GASNET_TRACEFILE", path_.c_str(), 0, true));
  for (int i = 0; i < 10'000; ++i) file_->print("line %d", i);
  file_->close();
  EXPECT_EQ(file_->lost_lines(), 10'000u);
}

// Standard output as a full pipe that does not block.
class FullPipe {
 public:
  FullPipe() {
    std::fflush(stdout);
    int ends[2] = {-1, -1};
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    reads_ = ends[0];
    EXPECT_EQ(fcntl(ends[1], F_SETFL, O_WRONLY | O_NONBLOCK), 0);
    EXPECT_EQ(dup2(ends[1], STDOUT_FILENO), STDOUT_FILENO);
    close(ends[1]);
    const char filling[4096] = {};
    for (ssize_t written = 1; written > 0; before_ += written > 0 ? written : 0)
      written = write(STDOUT_FILENO, filling, sizeof filling);
  }
  ~FullPipe() {
    end_output();
    close(standard_);
    close(reads_);
  }
  FullPipe(const FullPipe&) = delete;
  FullPipe& operator=(const FullPipe&) = delete;

  void end_output() const { EXPECT_EQ(dup2(standard_, STDOUT_FILENO), STDOUT_FILENO); }
  // The bytes behind the filling, up to end_output().
  std::string read_all() const {
    std::string all;
    char part[4096];
    for (ssize_t got = 0; (got = read(reads_, part, sizeof part)) > 0;)
      all.append(part, static_cast<size_t>(got));
    return all.substr(std::min(all.size(), static_cast<size_t>(before_)));
  }

 private:
  const int standard_ = dup(STDOUT_FILENO);
  int reads_ = -1;
  ssize_t before_ = 0;
};

TEST_F(TraceFiles, SlowReaderOfAPipeGetsAllLines) {
  file_ = std::make_unique<TraceFile>(patient_ns(100'000'000'000));
  std::string expected;
  std::string seen;
  {
    FullPipe pipe;
    ASSERT_TRUE(file_->open("GASNET_TRACEFILE", "stdout", 0, true));
    std::thread reader([&] {
      const timespec pause = {.tv_sec = 0, .tv_nsec = 50'000'000};
      nanosleep(&pause, nullptr);  // the pipe has no room while the file is written
      seen = pipe.read_all();
    });
    for (int i = 0; i < 10'000; ++i) {
      file_->print("line %d", i);
      expected += "line " + std::to_string(i) + "\n";
    }
    file_->close();
    pipe.end_output();
    reader.join();
  }
  EXPECT_EQ(file_->lost_lines(), 0u);
  EXPECT_TRUE(seen == expected);
}

TEST_F(TraceFiles, LinesThatNobodyReadsAreCounted) {
  file_ = std::make_unique<TraceFile>(10'000'000);
  {
    const FullPipe pipe;
    ASSERT_TRUE(file_->open("GASNET_TRACEFILE", "stdout", 0, true));
    for (int i = 0; i < 10'000; ++i) file_->print("line %d", i);
    file_->close();
  }
  EXPECT_EQ(file_->lost_lines(), 10'000u);
}

}  // namespace
}  // namespace hydrant::testing
