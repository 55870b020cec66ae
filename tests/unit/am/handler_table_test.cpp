// The rules of registration.
#include "am/job/handler_table.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace hydrant {
namespace {

void nothing(gex_Token_t) {}

gex_AM_Entry_t row(unsigned index, unsigned nargs = 0,
                   gex_Flags_t flags = GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST) {
  return {static_cast<gex_AM_Index_t>(index),
          reinterpret_cast<gex_AM_Fn_t>(nothing),
          flags,
          nargs,
          nullptr,
          nullptr};
}

// Expects a refusal with a text containing `words`, and that no handler was registered.
void expect_refused(HandlerTable& table, std::vector<gex_AM_Entry_t> rows, const char* words,
                    Status why = Status::kBadArg) {
  const std::vector<gex_AM_Entry_t> before = rows;
  EXPECT_EQ(table.add(rows.data(), rows.size()), why);
  EXPECT_NE(std::string(last_error_text()).find(words), std::string::npos) << last_error_text();
  for (size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(rows[i].gex_index, before[i].gex_index);
}

size_t used(const HandlerTable& table) {
  size_t count = 0;
  for (uint32_t i = 0; i < 256; ++i) count += table.at(i).gex_fnptr != nullptr ? 1 : 0;
  return count;
}

TEST(HandlerTable, FixedIndicesComeFirstThenTheHighestFreeInOrder) {
  HandlerTable table;
  std::vector<gex_AM_Entry_t> rows = {row(0), row(254), row(0), row(128), row(0)};
  ASSERT_EQ(table.add(rows.data(), rows.size()), Status::kOk);
  EXPECT_EQ(rows[0].gex_index, 255);
  EXPECT_EQ(rows[2].gex_index, 253);  // a later row requests 254
  EXPECT_EQ(rows[4].gex_index, 252);
  EXPECT_EQ(rows[3].gex_index, 128);
  std::vector<gex_AM_Entry_t> more = {row(0)};
  ASSERT_EQ(table.add(more.data(), 1), Status::kOk);
  EXPECT_EQ(more[0].gex_index, 251);
  EXPECT_EQ(table.at(251).gex_index, 251) << "the copy that tokens show has the index, too";
}

TEST(HandlerTable, RegistersAllEntriesOrNone) {
  HandlerTable table;
  expect_refused(table, {row(0), row(130), row(130)}, "taken");
  expect_refused(table, {row(200), row(127)}, "index 127");
  expect_refused(table, {row(200), row(1)}, "client indices are 128 to 255");
  expect_refused(table, {row(200), row(201, 17)}, "17 arguments");
  expect_refused(table, {row(200), row(201, 0, GEX_FLAG_AM_REQUEST)}, "category");
  expect_refused(table, {row(200), row(201, 0, GEX_FLAG_AM_SHORT)}, "neither request nor reply");
  gex_AM_Entry_t empty = row(0);
  empty.gex_fnptr = nullptr;
  expect_refused(table, {row(0), empty}, "no function");
  EXPECT_EQ(used(table), 0u);
  gex_AM_Entry_t once = row(200);
  ASSERT_EQ(table.add(&once, 1), Status::kOk);
  expect_refused(table, {row(0), row(200)}, "taken");
  EXPECT_EQ(used(table), 1u);
}

TEST(HandlerTable, AllIndicesCanBeRegisteredAndNoMore) {
  HandlerTable table;
  std::vector<gex_AM_Entry_t> rows(128, row(0));
  ASSERT_EQ(table.add(rows.data(), rows.size()), Status::kOk);
  EXPECT_EQ(rows.front().gex_index, 255);
  EXPECT_EQ(rows.back().gex_index, 128);
  expect_refused(table, {row(0)}, "exceed the limit of 128", Status::kResource);
  EXPECT_EQ(table.add(nullptr, 0), Status::kOk);
}

TEST(HandlerTable, EntryBeyondTheTableIsRejected) {
  HandlerTable table;
  expect_refused(table, std::vector<gex_AM_Entry_t>(129, row(0)), "128", Status::kResource);
  EXPECT_EQ(used(table), 0u);
}

TEST(HandlerTable, LibraryHandlersDoNotCount) {
  HandlerTable table;
  table.add_internal(1, reinterpret_cast<gex_AM_Fn_t>(nothing), 0, 0, "own");
  std::vector<gex_AM_Entry_t> rows(128, row(0));
  EXPECT_EQ(table.add(rows.data(), rows.size()), Status::kOk);
  EXPECT_STREQ(table.at(1).gex_name, "own");
}

}  // namespace
}  // namespace hydrant
