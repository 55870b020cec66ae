/* Starts firehose and defines its callbacks. The other file registers the handlers. */
#include "gasnet_client.h"

#include "check.h"

static client_counts_t counts;
static unsigned pinned[CLIENT_PAGES];
static uint32_t next_key = 1;

client_counts_t client_counts(void) { return counts; }

/* Counts pages of the segment; other memory (the sources of puts) only as bytes. */
static void count_pages(const firehose_region_t* region, int change) {
  gex_Segment_t segment = gex_EP_QuerySegment(gex_TM_QueryEP(client_team));
  const uintptr_t start = (uintptr_t)gex_Segment_QueryAddr(segment);
  size_t page;
  if (region->addr < start || region->addr >= start + CLIENT_PAGES * CLIENT_PAGE) return;
  for (page = 0; page < region->len / CLIENT_PAGE; ++page) {
    unsigned* count = &pinned[(region->addr - start) / CLIENT_PAGE + page];
    CHECK(change > 0 || *count != 0);
    *count += (unsigned)change;
  }
}

int firehose_move_callback(gex_Rank_t node, const firehose_region_t* unpin_list, size_t unpin_num,
                           firehose_region_t* pin_list, size_t pin_num) {
  size_t i;
  CHECK(node == gex_TM_QueryRank(client_team));
  for (i = 0; i < unpin_num; ++i) {
    CHECK(unpin_list[i].client.lkey + 1 == unpin_list[i].client.rkey % 1000000 + 1);
    count_pages(&unpin_list[i], -1);
    ++counts.unpins;
  }
  for (i = 0; i < pin_num; ++i) {
    pin_list[i].client.lkey = next_key % 1000000;
    pin_list[i].client.rkey = node * 1000000 + next_key++ % 1000000;
    count_pages(&pin_list[i], 1);
    ++counts.pins;
  }
  return 0;
}

int firehose_remote_callback(gex_Rank_t node, const firehose_region_t* pin_list, size_t num_pinned,
                             firehose_remotecallback_args_t* args) {
  const uintptr_t at = (uintptr_t)args->at;
  CHECK(node != gex_TM_QueryRank(client_team) && num_pinned == 1);
  CHECK(pin_list->addr <= at && at + sizeof args->word <= pin_list->addr + pin_list->len);
  CHECK(pin_list->client.rkey / 1000000 == gex_TM_QueryRank(client_team));
  *args->at = args->word;
  ++counts.remote_callbacks;
  return 0;
}

void client_start(size_t bytes, firehose_info_t* info) {
  firehose_init(bytes, 0, CLIENT_LARGEST * CLIENT_PAGE, NULL, 0, FIREHOSE_INIT_FLAG_UNPIN_ON_FINI,
                info);
}

void client_end(void) {
  size_t page;
  firehose_fini();
  for (page = 0; page < CLIENT_PAGES; ++page) CHECK(pinned[page] == 0);
}
