package admin

import (
	"os"
	"runtime/metrics"
	"strconv"
	"strings"
	"time"
)

// systemUsage is what the process and the machine use, by the names of Kyoto Tycoon's report: CPU seconds, and bytes of
// memory. What this system does not tell is absent.
func systemUsage() map[string]string {
	m := map[string]string{}
	user, system := cpuTimes()
	m["sys_ru_utime"], m["sys_ru_stime"] = seconds(user), seconds(system)
	total, rss := runtimeMemory()
	m["sys_mem_peak"], m["sys_mem_size"], m["sys_mem_rss"] = total, total, rss
	copyKilobytes(m, "/proc/self/status", map[string]string{
		"VmPeak": "sys_mem_peak", "VmSize": "sys_mem_size", "VmRSS": "sys_mem_rss",
	})
	copyKilobytes(m, "/proc/meminfo", map[string]string{
		"MemTotal": "sys_mem_total", "MemFree": "sys_mem_free", "Cached": "sys_mem_cached",
	})
	return m
}

// copyKilobytes reads lines "Name:  123 kB" and stores bytes under the new names. A file that cannot be read changes nothing.
func copyKilobytes(m map[string]string, path string, names map[string]string) {
	data, err := os.ReadFile(path)
	if err != nil {
		return
	}
	for line := range strings.Lines(string(data)) {
		name, value, _ := strings.Cut(line, ":")
		key, ok := names[name]
		if !ok {
			continue
		}
		number, isKB := strings.CutSuffix(strings.TrimSpace(value), " kB")
		if n, err := strconv.ParseInt(number, 10, 64); err == nil && isKB {
			m[key] = strconv.FormatInt(n<<10, 10)
		}
	}
}

// runtimeMemory is what the Go runtime has from the system, and how much of it is not given back, in bytes.
func runtimeMemory() (total, resident string) {
	s := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(s)
	all, released := s[0].Value.Uint64(), s[1].Value.Uint64()
	return strconv.FormatUint(all, 10), strconv.FormatUint(all-released, 10)
}

// runtimeCPU is the Go runtime's own estimate, as of the last garbage collection.
func runtimeCPU() time.Duration {
	s := []metrics.Sample{{Name: "/cpu/classes/user:cpu-seconds"}}
	metrics.Read(s)
	return time.Duration(s[0].Value.Float64() * float64(time.Second))
}
