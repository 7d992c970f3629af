//go:build !unix

package admin

import (
	"os/exec"
	"time"
)

// cpuTimes is what the process has used of the processors.
func cpuTimes() (user, system time.Duration) { return runtimeCPU(), 0 }

// ownGroup does nothing here: the end of the context kills the command itself only.
func ownGroup(*exec.Cmd) {}
