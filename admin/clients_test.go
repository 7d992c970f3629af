package admin_test

import (
	"regexp"
	"strings"
	"testing"

	"qserver/admin"
)

const (
	tsv  = "text/tab-separated-values"
	tsvB = "text/tab-separated-values; colenc=B"
	tsvU = "text/tab-separated-values; colenc=U"
)

// statusBody is the answer to /rpc/status for newStore.
const statusBody = "age_ms\t1500\nbytes\t700\ncount\t7\ndead\t3\ndelayed\t1\nlog_size\t1048576\nlsn\t30\npath\t/data/casket.kct\n" +
	"queues\t2\nready\t4\nreserved\t2\nsize\t1114112\nsynced_lsn\t29\ntotal_acked\t8\ntotal_expired\t1\ntotal_items\t20\n" +
	"total_purged\t1\ntree_lsn\t20\ntree_size\t65536\ntree_used\t4096\ntype\tqueue\nwaiters\t1\n"

// exchange is a request as a client sends it, and the answer, exactly.
type exchange struct{ send, want string }

// The bytes are those of the clients' own sources or recordings: header spelling, order and bodies are theirs.
func TestClientsOnTheWire(t *testing.T) {
	const (
		ktHead  = "POST /rpc/%s HTTP/1.1\r\nHost: :1978\r\nContent-Length: %s\r\nContent-Type: " + tsv + "\r\n\r\n"
		phpTail = "user-agent: HTTP\\TsvRpc\\Client/0.0.1\r\nContent-Type: " + tsvB +
			"\r\nConnection: Keep-Alive\r\nKeep-Alive: 300\r\n"
	)
	kt := func(name, length string) string {
		return strings.Replace(strings.Replace(ktHead, "%s", name, 1), "%s", length, 1)
	}
	tests := []struct {
		name      string
		exchanges []exchange // on one connection
		calls     []string   // of the store
	}{
		{"ktremotemgr without host", []exchange{
			{kt("void", "0"), expect("200 OK", tsv, "")},
			{kt("status", "0"), expect("200 OK", tsv, statusBody)},
			{kt("status", "5") + "DB\t0\n", expect("200 OK", tsv, statusBody)},
			{kt("synchronize", "6") + "hard\t\n", expect("200 OK", tsv, "")},
			{kt("synchronize", "18") + "command\tno-such-1\n", expect("450 status code 450", tsv, "ERROR\tDB: 8: logical inconsistency: no folder of commands is set\n")},
			{kt("clear", "0"), expect("200 OK", tsv, "")},
			{kt("play_script", "7") + "name\tx\n", expect("501 Not Implemented", tsv, "ERROR\tnot implemented: play_script\n")},
		}, []string{"sync", "checkpoint", "sync", "purge all"}},
		{"RemoteDB with encoded map", []exchange{
			{"POST /rpc/echo HTTP/1.1\r\nHost: 127.0.0.1:1978\r\nContent-Length: 19\r\nContent-Type: " + tsvU + "\r\n\r\na%01\t%e3%81%82\nDB\t0\n",
				expect("200 OK", tsvU, "DB\t0\na%01\t%e3%81%82\n")},
		}, nil},
		{"PHP Net_KyotoTycoon", []exchange{
			{"POST /rpc/status HTTP/1.1\r\nHost: 127.0.0.1:1978\r\n" + phpTail + "Content-Length: 9\r\n\r\nREI=\tMA==", expect("200 OK", tsv, statusBody)},
			{"POST /rpc/echo HTTP/1.1\r\nHost: 127.0.0.1:1978\r\n" + phpTail + "Content-Length: 9\r\n\r\nZm9v\tYmFy", expect("200 OK", tsv, "foo\tbar\n")},
			{"POST /rpc/synchronize HTTP/1.1\r\nHost: 127.0.0.1:1978\r\n" + phpTail + "Content-Length: 19\r\n\r\nREI=\tMA==\naGFyZA==\t", expect("200 OK", tsv, "")},
			{"POST /rpc/set HTTP/1.1\r\nHost: 127.0.0.1:1978\r\n" + phpTail + "Content-Length: 9\r\n\r\nREI=\tMA==", expect("501 Not Implemented", tsv, "ERROR\tnot implemented: set\n")},
		}, []string{"sync", "checkpoint"}},
		{"python-kyototycoon", []exchange{
			{"GET /rpc/status HTTP/1.1\r\nHost: localhost:1978\r\nAccept-Encoding: identity\r\n\r\n", expect("200 OK", tsv, statusBody)},
			{"GET /rpc/status?DB=casket.kct HTTP/1.1\r\nHost: localhost:1978\r\nAccept-Encoding: identity\r\n\r\n", expect("200 OK", tsv, statusBody)},
			{"GET /rpc/status?DB=other.kct HTTP/1.1\r\nHost: localhost:1978\r\nAccept-Encoding: identity\r\n\r\n", expect("400 Bad Request", tsv, "ERROR\tno such database\n")},
			{"POST /rpc/echo HTTP/1.1\r\nHost: localhost:1978\r\nAccept-Encoding: identity\r\nContent-Length: 0\r\n\r\n", expect("200 OK", tsv, "")},
			{"GET /rpc/clear?DB=casket.kct HTTP/1.1\r\nHost: localhost:1978\r\nAccept-Encoding: identity\r\n\r\n", expect("200 OK", tsv, "")},
			{"POST /rpc/get_bulk HTTP/1.1\r\nHost: localhost:1978\r\nAccept-Encoding: identity\r\nContent-Length: 3\r\nContent-Type: " + tsvU + "\r\n\r\n_a\t", expect("501 Not Implemented", tsv, "ERROR\tnot implemented: get_bulk\n")},
		}, []string{"purge all"}},
		{"ukt", []exchange{
			{"POST /rpc/status HTTP/1.1\r\nHost: 127.0.0.1:1978\r\nAccept-Encoding: identity\r\nContent-Length: 9\r\nContent-Type: " + tsvB + "\r\n\r\nREI=\tMA==", expect("200 OK", tsv, statusBody)},
			{"POST /rpc/ulog_remove HTTP/1.1\r\nHost: 127.0.0.1:1978\r\nAccept-Encoding: identity\r\nContent-Length: 43\r\nContent-Type: " + tsvB + "\r\n\r\nREI=\tMA==\ndHM=\tMTc1MDAwMDAwMDAwMDAwMDAwMA==", expect("200 OK", tsv, "")},
			{"POST /rpc/cur_jump_back HTTP/1.1\r\nHost: 127.0.0.1:1978\r\nContent-Length: 0\r\nContent-Type: " + tsvB + "\r\n\r\n", expect("501 Not Implemented", tsv, "ERROR\tnot implemented: cur_jump_back\n")},
			{"POST /rpc/status HTTP/1.1\r\nHost: 127.0.0.1:1978\r\nContent-Length: 28\r\nContent-Type: " + tsvB + "\r\n\r\nREI=\tMA==\nV0FJVA==\tc2lnbmFs\n", expect("501 Not Implemented", tsv, "ERROR\tnot implemented: WAIT\n")},
		}, nil},
		{"curl", []exchange{
			{"GET /rpc/echo?a=b&c HTTP/1.1\r\nHost: localhost:1978\r\nUser-Agent: curl/8.5.0\r\nAccept: */*\r\n\r\n", expect("200 OK", tsv, "a\tb\nc\t\n")},
			{"HEAD /rpc/status HTTP/1.1\r\nHost: localhost:1978\r\nUser-Agent: curl/8.5.0\r\nAccept: */*\r\n\r\n", strings.TrimSuffix(expect("200 OK", tsv, statusBody), statusBody)},
			{"POST /rpc/echo?DB=1&x=q HTTP/1.1\r\nHost: localhost:1978\r\nUser-Agent: curl/8.5.0\r\nContent-Length: 8\r\nContent-Type: application/x-www-form-urlencoded\r\n\r\nDB=a+%3d", expect("200 OK", tsv, "DB\ta =\nx\tq\n")},
			{"POST /rpc/echo HTTP/1.1\r\nHost: localhost:1978\r\nTransfer-Encoding: chunked\r\nContent-Type: " + tsv + "\r\n\r\n3\r\na\tb\r\n5\r\nc\nd\te\r\n0\r\n\r\n", expect("200 OK", tsv, "a\tbc\nd\te\n")},
			{"POST /rpc/echo HTTP/1.1\r\nHost: localhost:1978\r\nContent-Length: 3\r\n\r\na\tb", expect("200 OK", tsv, "")},
			{"PUT /rpc/echo HTTP/1.1\r\nHost: localhost:1978\r\nContent-Length: 3\r\n\r\na\tb", "HTTP/1.1 405 Method Not Allowed\r\nAllow: GET, HEAD, POST\r\n" +
				strings.TrimPrefix(expect("405", tsv, "ERROR\tmethod not allowed; allowed: GET, HEAD, POST\n"), "HTTP/1.1 405\r\n")},
			{"GET /rpc/synchronize HTTP/1.1\r\nHost: localhost:1978\r\n\r\n", "HTTP/1.1 405 Method Not Allowed\r\nAllow: POST\r\n" +
				strings.TrimPrefix(expect("405", tsv, "ERROR\tmethod not allowed; allowed: POST\n"), "HTTP/1.1 405\r\n")},
			{"GET /healthz HTTP/1.1\r\nHost: localhost:1978\r\n\r\n", expect("200 OK", "application/json", "{\"status\":\"ok\"}\n")},
		}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			st := newStore()
			s := &admin.Server{AllowFlushAll: true, Version: "1.2.3", Traffic: traffic}
			s.Attach(st)
			c := dial(t, serve(t, s))
			for _, x := range tt.exchanges {
				c.send(x.send)
				if got := c.answer(strings.HasPrefix(x.send, "HEAD ")); got != x.want {
					t.Fatalf("%q\n got %q\nwant %q", x.send, got, x.want)
				}
			}
			if got := strings.Join(st.done(), ", "); got != strings.Join(tt.calls, ", ") {
				t.Errorf("calls: got %q, want %q", got, tt.calls)
			}
		})
	}
}

// What differs between two runs of report.
var (
	varying = regexp.MustCompile(`(?m)^(serv_current_time|serv_running_term|sys_ru_[us]time)\t\d+\.\d{6}$|` +
		`^(serv_proc_id|serv_thread_count|sys_mem_\w+)\t[1-9]\d*$|^(conf_os_name)\t[a-z]+$`)
	optional = regexp.MustCompile(`(?m)^sys_mem_(total|free|cached)\tX\n`)
)

const reportBody = "cnt_get\t12\ncnt_get_misses\t3\ncnt_misc\t5\ncnt_remove\t8\ncnt_remove_misses\t2\ncnt_script\t0\ncnt_set\t10\ncnt_set_misses\t1\n" +
	"conf_kc_features\tnone\nconf_kc_version\tnone\nconf_kt_features\t(queue)(atomic)(durable)\nconf_kt_version\t1.2.3 (qserver)\nconf_os_name\tX\n" +
	"db_0\tcount=7 size=1114112 path=/data/casket.kct\ndb_total_count\t7\ndb_total_size\t1114112\n"

const reportRest = "serv_conn_count\t5\nserv_current_time\tX\nserv_proc_id\tX\nserv_running_term\tX\nserv_task_count\t1\nserv_thread_count\tX\n" +
	"sys_mem_peak\tX\nsys_mem_rss\tX\nsys_mem_size\tX\nsys_ru_stime\tX\nsys_ru_utime\tX\n"

func TestReportOnTheWire(t *testing.T) {
	const replicated = "repl_delay\t0.250000\nrepl_interval\t0.040000\nrepl_master_host\tdb1\nrepl_master_port\t1978\nrepl_timestamp\t1700000000000000000\n"
	for _, tt := range []struct {
		name, send string
		master     func() (admin.Master, bool)
		want       string
	}{
		{"python", "GET /rpc/report HTTP/1.1\r\nHost: localhost:1978\r\nAccept-Encoding: identity\r\n\r\n", nil, reportBody + reportRest},
		{"DB is ignored", "GET /rpc/report?DB=9 HTTP/1.1\r\nHost: localhost:1978\r\n\r\n",
			func() (admin.Master, bool) { return admin.Master{}, false }, reportBody + reportRest},
		{"slave", "POST /rpc/report HTTP/1.1\r\nHost: :1978\r\nContent-Length: 0\r\nContent-Type: " + tsv + "\r\n\r\n", master, reportBody + replicated + reportRest},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &admin.Server{Version: "1.2.3", Traffic: traffic, Master: tt.master}
			s.Attach(newStore())
			c := dial(t, serve(t, s))
			c.send(tt.send)
			head, body, _ := strings.Cut(c.answer(false), "\r\n\r\n")
			if !strings.HasPrefix(head, "HTTP/1.1 200 OK\r\n") || !strings.Contains(head, "\r\nContent-Type: "+tsv+"\r\n") {
				t.Errorf("head: got %q", head)
			}
			body = varying.ReplaceAllString(body, "$1$2$3\tX")
			if got := optional.ReplaceAllString(body, ""); got != tt.want {
				t.Errorf("body:\n got %q\nwant %q", got, tt.want)
			}
		})
	}
}
