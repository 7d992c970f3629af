package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A machine is where a report was made.
type machine struct {
	System     string `json:"system"` // operating system and kernel
	CPU        string `json:"cpu,omitempty"`
	Cores      int    `json:"cores"`
	FileSystem string `json:"file_system,omitempty"` // of the servers' data folders
	Go         string `json:"go"`
	Busy       ratio  `json:"busy"` // share of the cores that others used just before
}

// thisMachine describes it; watch is how long to look at what others use, 0 for not at all.
func thisMachine(dir string, watch time.Duration) machine {
	m := machine{System: runtime.GOOS + "/" + runtime.GOARCH, Cores: runtime.NumCPU(), Go: runtime.Version(), FileSystem: fileSystem(dir)}
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		release := unix.ByteSliceToString(name.Release[:])
		if i := strings.IndexFunc(release, func(r rune) bool { return r != '.' && (r < '0' || r > '9') }); i > 0 {
			release = release[:i] // without the builder's suffix
		}
		m.System += " " + release
	}
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if _, rest, ok := strings.Cut(string(info), "model name"); ok {
			line, _, _ := strings.Cut(rest, "\n")
			m.CPU = strings.TrimSpace(strings.TrimLeft(line, "\t :"))
		}
	}
	m.Busy = busy(watch)
	return m
}

// busy is the share of the cores' time that was not idle during d, from 0 to 1; 0 where it is not known.
func busy(d time.Duration) ratio {
	idle, total := cpuTimes()
	time.Sleep(d)
	idle2, total2 := cpuTimes()
	if total2 == total {
		return 0
	}
	return 1 - ratio(idle2-idle)/ratio(total2-total)
}

// cpuTimes reads the first line of /proc/stat, in ticks: of idling and waiting for disks, and of everything.
func cpuTimes() (idle, total int64) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0
	}
	line, _, _ := strings.Cut(string(b), "\n")
	for i, word := range strings.Fields(line) {
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			continue // the name of the line
		}
		total += n
		if i == 4 || i == 5 {
			idle += n
		}
	}
	return idle, total
}

func (m machine) String() string {
	s := fmt.Sprintf("%d cores", m.Cores)
	if m.CPU != "" {
		s += " (" + m.CPU + ")"
	}
	s += ", " + m.System
	if m.FileSystem != "" {
		s += ", " + m.FileSystem
	}
	return s + ", " + m.Go
}
