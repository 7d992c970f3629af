package memcache_test

import (
	"net"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"qserver/protocol/memcache"
	"qserver/storage"
)

// TestMemccapable runs libmemcached's check of a server's protocols. It asks for the version first, and then wants what
// memcached of that version answers: here 1.6's, whose protocol is spoken. What contradicts a queue fails:
//
//	delete, and in binary set, replace and their quiet forms    of what is stored: only a message that is reserved can be acked,
//	                                                            and a set never replaces what an earlier one stored
//	incr, decr                                                  a queue has no numbers
//	append, prepend                                             a message does not grow
func TestMemccapable(t *testing.T) {
	command, err := exec.LookPath("memccapable")
	if err != nil {
		t.Skip("memccapable (libmemcached-tools on Debian) is not installed: scripts/test clients installs it")
	}
	for _, tt := range []struct{ protocol, flag, passes, fails string }{
		{
			"ascii", "-a",
			"version,quit,verbosity,set,set noreply,get,gets,mget,flush,flush noreply,add,add noreply,replace,replace noreply,cas,cas noreply,stat",
			"delete,delete noreply,incr,incr noreply,decr,decr noreply,append,append noreply,prepend,prepend noreply",
		},
		{
			"binary", "-b",
			"noop,quit,quitq,flush,flushq,add,addq,get,getq,getk,getkq,version,stat",
			"set,setq,replace,replaceq,delete,deleteq,incr,incrq,decr,decrq,append,appendq,prepend,prependq",
		},
	} {
		t.Run(tt.protocol, func(t *testing.T) {
			s := start(t, tcp, func(srv *memcache.Server, _ *storage.Options) {
				srv.Version, srv.AllowFlushAll = "1.6.18", true
			})
			host, port, err := net.SplitHostPort(s.ln.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			out, _ := exec.CommandContext(t.Context(), command, tt.flag, "-h", host, "-p", port).Output()
			passed := func(name string) bool {
				return regexp.MustCompile(tt.protocol + ` ` + name + ` +\[pass\]`).Match(out)
			}
			for name := range strings.SplitSeq(tt.passes, ",") {
				if !passed(name) {
					t.Errorf("%s does not pass", name)
				}
			}
			for name := range strings.SplitSeq(tt.fails, ",") {
				if passed(name) {
					t.Errorf("%s passes: it belongs to those that do", name)
				}
			}
			if t.Failed() {
				t.Logf("it printed\n%s", out)
			}
		})
	}
}
