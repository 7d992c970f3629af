package memcache_test

import (
	"strings"
	"testing"

	"qserver/protocol/memcache"
)

func TestParseKey(t *testing.T) {
	type key = memcache.ParsedKey
	plain := func(name string) key { return key{Name: name, Reserves: true} }
	for _, tt := range []struct {
		name, raw, family string
		want              key
	}{
		{"name", "q", "get", plain("q")},
		{"colons", "ns:q:md5:d41d8c", "get", plain("ns:q:md5:d41d8c")},
		{"UTF-8", "q\xc3\xa9", "get", plain("q\xc3\xa9")},
		{"raw byte", "\xff", "get", plain("\xff")},
		{"250 bytes", repeat("a", 250), "get", plain(repeat("a", 250))},
		{"braces", "{q}", "get", plain("q")},
		{"hash stop", "q|#|", "get", plain("q")},
		{"braces and option", "{q}/open", "get", key{Name: "q", Open: true, Reserves: true}},
		{"hash stop and option", "q|#|/peek", "get", key{Name: "q", Peek: true}},
		{"empty braces are a name", "{}", "get", plain("{}")},
		{"one brace is a name", "{q", "get", plain("{q")},
		{"wait", "q/t=500", "get", key{Name: "q", WaitMS: 500, Reserves: true}},
		{"the largest wait counts", "q/t=5/t=700/t=6", "get", key{Name: "q", WaitMS: 700, Reserves: true}},
		{"close and open, either way round", "q/open/close", "get", key{Name: "q", Open: true, Close: true, Reserves: true}},
		{"close with a wait", "q/close/t=10", "get", key{Name: "q", Close: true, WaitMS: 10}},
		{"abort", "q/abort", "get", key{Name: "q", Abort: true}},
		{"lease and tag", "q/lease=60/n=7f3a", "get", key{Name: "q", LeaseS: 60, Tag: "7f3a", Reserves: true}},
		{"batch", "q/batch=10000", "get", key{Name: "q", Batch: 10000, Reserves: true}},
		{"set", "q/delay=5/pri=0/dedup=a=b", "set", key{Name: "q", DelayS: 5, Dedup: "a=b", Reserves: true}},
		{"largest priority", "q/pri=4294967295", "set", key{Name: "q", Priority: 4294967295, Reserves: true}},
		{"delete", "q/id=9007199254740991/release=0", "delete", key{Name: "q", Receipt: 9007199254740991, Reserves: true}},
		{"touch", "q/n=a", "touch", key{Name: "q", Tag: "a", Reserves: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := memcache.ParseKey([]byte(tt.raw), tt.family, false); got != tt.want {
				t.Errorf("%s: got %+v, want %+v", tt.raw, got, tt.want)
			}
		})
	}
}

func TestParseKeyRefuses(t *testing.T) {
	for _, tt := range []struct {
		name, raw, family string
		malformed         bool
	}{
		{"empty", "", "get", true},
		{"251 bytes", repeat("a", 251), "get", true},
		{"251 bytes with an option", repeat("a", 246) + "/open", "get", true},
		{"NUL", "a\x00b", "get", true},
		{"tab", "a\tb", "get", true},
		{"DEL", "a\x7fb", "get", true},
		{"CR", "a\rb", "get", true},
		{"only options", "/t=5", "get", true},
		{"unknown", "q/bogus", "get", false},
		{"unknown with a value", "q/bogus=1", "get", false},
		{"upper case", "q/OPEN", "get", false},
		{"trailing slash", "q/", "get", false},
		{"doubled slash", "q//open", "get", false},
		{"braces in front of more", "{q}x/bogus", "get", false},
		{"slash in braces", "{a/b}", "get", false},
		{"value on a flag", "q/open=1", "get", false},
		{"flag for a value", "q/t", "get", false},
		{"empty wait", "q/t=", "get", false},
		{"negative wait", "q/t=-1", "get", false},
		{"signed wait", "q/t=+1", "get", false},
		{"wait over a day", "q/t=86400001", "get", false},
		{"fractional lease", "q/lease=1.5", "get", false},
		{"lease over 30 days", "q/lease=2592001", "get", false},
		{"batch of none", "q/batch=0", "get", false},
		{"batch too large", "q/batch=10001", "get", false},
		{"empty tag", "q/n=", "get", false},
		{"the same twice", "q/open/open", "get", false},
		{"two tags", "q/n=1/n=2", "get", false},
		{"peek and open", "q/peek/open", "get", false},
		{"peek and lease", "q/peek/lease=5", "get", false},
		{"abort and close", "q/abort/close", "get", false},
		{"abort and open", "q/open/abort", "get", false},
		{"close and lease", "q/close/lease=5", "get", false},
		{"tag and batch", "q/n=1/batch=2", "get", false},
		{"get's on set", "q/t=5", "set", false},
		{"set's on get", "q/delay=5", "get", false},
		{"priority too large", "q/pri=4294967296", "set", false},
		{"delay over ten years", "q/delay=315360001", "set", false},
		{"empty dedup", "q/dedup=", "set", false},
		{"receipt 0", "q/id=0", "delete", false},
		{"receipt 2^53", "q/id=9007199254740992", "delete", false},
		{"huge receipt", "q/id=99999999999999999999999", "delete", false},
		{"bury", "q/bury", "delete", false},
		{"two delays", "q/release=1/backoff=1", "delete", false},
		{"release on touch", "q/release=0", "touch", false},
		{"kick", "q/kick", "none", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := memcache.ParseKey([]byte(tt.raw), tt.family, false)
			if got.Malformed != tt.malformed || got.Wrong == tt.malformed {
				t.Errorf("%s: got malformed %v, wrong option %v; want %v, %v", tt.raw, got.Malformed, got.Wrong, tt.malformed, !tt.malformed)
			}
		})
	}
}

func TestParseKeyPlain(t *testing.T) {
	for _, raw := range []string{"a/b", "q/t=5", "{q}/open", "/", "q|#|", "q//"} {
		if got := memcache.ParseKey([]byte(raw), "get", true); got.Name != raw || got.Malformed || got.Wrong {
			t.Errorf("%s: got %+v, want it as the name", raw, got)
		}
	}
	if got := memcache.ParseKey([]byte("a\tb"), "get", true); !got.Malformed {
		t.Errorf("tab: got %+v, want malformed", got)
	}
}

func TestKeyDetached(t *testing.T) {
	name, tag, dedup, whole := memcache.ReparseDetached([]byte("{queue}/dedup=K1/n=tag/delay=5"))
	if name != "queue" || tag != "tag" || dedup != "K1" || whole != "{queue}/dedup=K1/n=tag/delay=5" {
		t.Errorf("got %q, %q, %q, %q", name, tag, dedup, whole)
	}
}

func TestNumericVersion(t *testing.T) {
	for _, tt := range []struct{ version, want string }{
		{"1.2.3", "1.2.3"}, {"255.255.255", "255.255.255"}, {"1.0.0-rc1", "1.0.0"}, {"1.2.3.4", "1.2.3"}, {"2.10.7+dirty", "2.10.7"},
		{"", "1.0.0"}, {"devel", "1.0.0"}, {"0.1.2", "1.0.0"}, {"256.0.0", "1.0.0"}, {"1.2", "1.0.0"}, {"v1.2.3", "1.0.0"}, {"1..2", "1.0.0"},
	} {
		if got := memcache.NumericVersion(tt.version); got != tt.want {
			t.Errorf("%q: got %s, want %s", tt.version, got, tt.want)
		}
	}
}

// FuzzKey checks that no key makes the parser panic, that a name it accepts is never empty nor longer than the key, that
// options never end up in a name, and that what it refuses is refused for one reason.
func FuzzKey(f *testing.F) {
	for _, s := range []string{"q", "q/t=5/open", "{q}/close/open", "q|#|/n=x", "q/id=1/release=3", "q/dedup=/", "/", "{}", "|#|", "q/pri=4294967296"} {
		f.Add([]byte(s), byte(0))
	}
	families := []string{"get", "set", "delete", "touch", "none"}
	f.Fuzz(func(t *testing.T, raw []byte, family byte) {
		got := memcache.ParseKey(raw, families[int(family)%len(families)], false)
		if got.Malformed && got.Wrong {
			t.Fatalf("%q: refused for two reasons", raw)
		}
		if got.Malformed || got.Wrong {
			return
		}
		if len(got.Name) == 0 || len(raw) > 250 || !strings.Contains(string(raw), got.Name) || strings.Contains(got.Name, "/") {
			t.Fatalf("%q: accepted as %+v", raw, got)
		}
		if got.WaitMS < 0 || got.LeaseS < 0 || got.DelayS < 0 || got.Batch < 0 || got.Batch > 10000 || got.Receipt > 1<<53-1 {
			t.Fatalf("%q: out of range: %+v", raw, got)
		}
		if again := memcache.ParseKey([]byte(got.Name), "none", true); again.Malformed {
			t.Fatalf("%q: the name %q is not a key", raw, got.Name)
		}
	})
}
