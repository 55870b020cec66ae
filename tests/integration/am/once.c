/* Calls may be macros, but each argument must be evaluated once. */
#include "client.h"

static gex_AM_Index_t on_once_index, on_more_index;
static gasnett_atomic_t arrived = gasnett_atomic_init(0);

static void on_once(gex_Token_t token, gex_AM_Arg_t a, gex_AM_Arg_t b) {
  (void)token;
  CHECK(b == a + 1);
  gasnett_atomic_increment(&arrived, 0);
}
static void on_more(gex_Token_t token, void* payload, size_t bytes, gex_AM_Arg_t a) {
  (void)token, (void)payload;
  CHECK(bytes == 1 && a == 7);
  gasnett_atomic_increment(&arrived, 0);
}

static int evaluated = 0;
static void look(void) { ++evaluated; }
/* An argument that counts its evaluations. */
#define ONCE(value) (look(), (value))
#define EVALUATES(n, call)   \
  do {                       \
    evaluated = 0;           \
    (void)(call);            \
    CHECK(evaluated == (n)); \
  } while (0)

void test_once(void) {
  gex_AM_Entry_t rows[] = {
      {0, (gex_AM_Fn_t)on_once, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST, 2, NULL, "once"},
      {0, (gex_AM_Fn_t)on_more, GEX_FLAG_AM_MEDIUM | GEX_FLAG_AM_REQUEST, 1, NULL, "more"}};
  char near[64] = "x", *at = near;
  char* far = area(me, me, 0);
  const gex_Rank_t to = me;
  gasnet_hsl_t lock = GASNET_HSL_INITIALIZER;
  gasnet_handle_t handle;
  int polls = 0, looked = 0;
  CHECK(gex_EP_RegisterHandlers(endpoint, rows, 2) == GASNET_OK);
  on_once_index = rows[0].gex_index;
  on_more_index = rows[1].gex_index;
  BARRIER();
  EVALUATES(4, gasnet_AMRequestShort2(ONCE(to), ONCE(on_once_index), ONCE(3), ONCE(4)));
  EVALUATES(4, gasnet_AMRequestShort(ONCE(to), ONCE(on_once_index), ONCE(3), ONCE(4)));
  EVALUATES(5, gasnet_AMRequestMedium(ONCE(to), ONCE(on_more_index), ONCE(near), ONCE(1), ONCE(7)));
  EVALUATES(
      6, gex_AM_RequestShort(ONCE(team), ONCE(to), ONCE(on_once_index), ONCE(0), ONCE(5), ONCE(6)));
  EVALUATES(8, gex_AM_RequestMedium(ONCE(team), ONCE(to), ONCE(on_more_index), ONCE(near), ONCE(1),
                                    ONCE(GEX_EVENT_NOW), ONCE(0), ONCE(7)));
  /* The condition is evaluated after each poll, so it counts its own evaluations. */
  GASNET_BLOCKUNTIL((++polls, gasnett_atomic_read(&arrived, 0) == 5));
  CHECK(polls > 0);
  EVALUATES(4, (gasnet_put(ONCE(to), ONCE(far), ONCE(near), ONCE(8)), 0));
  EVALUATES(4, (gasnet_put_bulk(ONCE(to), ONCE(far), ONCE(near), ONCE(8)), 0));
  EVALUATES(4, (gasnet_get(ONCE(near), ONCE(to), ONCE(far), ONCE(8)), 0));
  EVALUATES(4, (gasnet_get_bulk(ONCE(near), ONCE(to), ONCE(far), ONCE(8)), 0));
  EVALUATES(4, (gasnet_put_nbi(ONCE(to), ONCE(far), ONCE(near), ONCE(8)), 0));
  EVALUATES(4, (gasnet_get_nbi_bulk(ONCE(near), ONCE(to), ONCE(far), ONCE(8)), 0));
  gasnet_wait_syncnbi_all();
  EVALUATES(4, handle = gasnet_put_nb(ONCE(to), ONCE(far), ONCE(near), ONCE(8)));
  EVALUATES(1, (gasnet_wait_syncnb(ONCE(handle)), 0));
  EVALUATES(4, handle = gasnet_get_nb_bulk(ONCE(near), ONCE(to), ONCE(far), ONCE(8)));
  EVALUATES(1, (gasnet_wait_syncnb(ONCE(handle)), 0));
  EVALUATES(4, (gasnet_put_val(ONCE(to), ONCE(far), ONCE(9), ONCE(4)), 0));
  EVALUATES(3, gasnet_get_val(ONCE(to), ONCE(far), ONCE(4)) == 9);
  EVALUATES(6, gex_RMA_PutBlocking(ONCE(team), ONCE(to), ONCE(far), ONCE(near), ONCE(16), ONCE(0)));
  EVALUATES(6, gex_RMA_GetBlocking(ONCE(team), ONCE(near), ONCE(to), ONCE(far), ONCE(16), ONCE(0)));
  EVALUATES(1, (gasnet_hsl_lock(ONCE(&lock)), 0));
  EVALUATES(1, (gasnet_hsl_unlock(ONCE(&lock)), 0));
  /* Arguments with side effects. */
  gasnet_put(to, far, at++, 1);
  CHECK(at == near + 1);
  gasnet_put(looked++ == 0 ? to : size, far, near, 1);
  CHECK(looked == 1);
}
