# make -C BUILD/ibv-conduit -f clients.mak PROGRAM: a client in this folder, over the conduit that was built there.
SOURCES := $(dir $(lastword $(MAKEFILE_LIST)))
include ibv-seq.mak

%: $(SOURCES)%.c
	$(GASNET_CC) $(GASNET_CPPFLAGS) $(GASNET_CFLAGS) -o $@ $< $(GASNET_LDFLAGS) $(GASNET_LIBS)
