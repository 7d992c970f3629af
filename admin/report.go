package admin

import (
	"context"
	"fmt"
	"maps"
	"os"
	"runtime"
	"strconv"
	"time"

	"qserver/storage"
)

// diskBytes is what the store takes on the disk.
func diskBytes(v storage.Stats) int64 { return v.TreeBytes + v.LogBytes }

// status is the procedure of that name: the store as a database of Kyoto Tycoon, and what only a queue has. All values are
// plain, since python-kyototycoon does not decode them.
func status(_ context.Context, c *call) error {
	v := c.st.Stats()
	c.out["path"] = printable(v.Path)
	c.out["type"] = "queue"
	for key, n := range map[string]int64{
		"count":    v.Items,
		"size":     diskBytes(v),
		"queues":   v.Queues,
		"ready":    v.Ready,
		"delayed":  v.Delayed,
		"reserved": v.Reserved,
		"dead":     v.Dead,
		"bytes":    v.Bytes,
		"age_ms":   v.Age.Milliseconds(),
		"waiters":  v.Waiters,

		"tree_size":  v.TreeBytes,
		"tree_used":  v.TreeUsed,
		"log_size":   v.LogBytes,
		"lsn":        int64(v.LSN),
		"synced_lsn": int64(v.Synced),
		"tree_lsn":   int64(v.TreeLSN),

		"total_items":   v.TotalItems,
		"total_acked":   v.TotalAcked,
		"total_purged":  v.TotalPurged,
		"total_expired": v.TotalExpired,
	} {
		c.out[key] = strconv.FormatInt(n, 10)
	}
	return nil
}

// report is the procedure of that name: the server, with the keys of Kyoto Tycoon.
func report(_ context.Context, c *call) error {
	v, traffic, now := c.st.Stats(), c.s.traffic(), time.Now()
	c.out["db_0"] = printable(fmt.Sprintf("count=%d size=%d path=%s", v.Items, diskBytes(v), v.Path))
	for key, n := range map[string]int64{
		"db_total_count": v.Items,
		"db_total_size":  diskBytes(v),

		"serv_conn_count":   traffic.Connections + c.s.conns.Load(),
		"serv_task_count":   traffic.Busy,
		"serv_thread_count": int64(runtime.GOMAXPROCS(0)),
		"serv_proc_id":      int64(os.Getpid()),

		"cnt_set":           traffic.Sets,
		"cnt_set_misses":    traffic.SetMisses,
		"cnt_remove":        traffic.Removes,
		"cnt_remove_misses": traffic.RemoveMisses,
		"cnt_get":           traffic.Gets,
		"cnt_get_misses":    traffic.GetMisses,
		"cnt_script":        0,
		"cnt_misc":          traffic.Misc,
	} {
		c.out[key] = strconv.FormatInt(n, 10)
	}
	c.out["serv_current_time"] = fmt.Sprintf("%d.%06d", now.Unix(), now.Nanosecond()/1000)
	c.out["serv_running_term"] = seconds(now.Sub(c.s.started))
	c.out["conf_kt_version"] = printable(c.s.Version + " (qserver)")
	c.out["conf_kt_features"] = "(queue)(atomic)(durable)"
	c.out["conf_kc_version"] = "none"
	c.out["conf_kc_features"] = "none"
	c.out["conf_os_name"] = runtime.GOOS
	maps.Copy(c.out, systemUsage())
	if c.s.Master != nil {
		if m, ok := c.s.Master(); ok {
			c.out["repl_master_host"] = printable(m.Host)
			c.out["repl_master_port"] = strconv.Itoa(m.Port)
			c.out["repl_timestamp"] = strconv.FormatInt(m.Position.UnixNano(), 10)
			c.out["repl_interval"] = seconds(m.Interval)
			c.out["repl_delay"] = seconds(m.Delay)
		}
	}
	return nil
}

// seconds has six digits behind the point, as all of Kyoto Tycoon's times.
func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', 6, 64) }
