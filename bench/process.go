package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// startTimeout is how long a server may take until it answers; a long recovery is part of what is measured.
const startTimeout = 5 * time.Minute

// A process is a server that was started here.
type process struct {
	cmd  *exec.Cmd
	log  string         // file with what it printed
	done chan struct{}  // closed when it has ended
	end  syscall.Signal // that makes it end in its own way
	err  error          // how it ended; valid once done is closed
}

// startProcess starts a program whose output goes to the end of a file. It is killed when ctx ends.
func startProcess(ctx context.Context, log, path string, args ...string) (*process, error) {
	f, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	p := &process{cmd: exec.CommandContext(ctx, path, args...), log: log, done: make(chan struct{}), end: syscall.SIGTERM}
	p.cmd.Stdout, p.cmd.Stderr = f, f
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// await polls ready every 2 ms. If the process ends first, or takes too long, the error has the end of its output.
func (p *process) await(ctx context.Context, ready func() bool) error {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(startTimeout)
	for !ready() {
		select {
		case <-tick.C:
		case <-p.done:
			return fmt.Errorf("it ended at once (%v): %s", p.err, p.tail())
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-limit:
			p.kill()
			return fmt.Errorf("not ready after %s: %s", startTimeout, p.tail())
		}
	}
	return nil
}

// stop asks the process to end and waits; after 60 seconds it is killed, which is an error.
func (p *process) stop() error {
	p.cmd.Process.Signal(p.end) // which does nothing when it has ended already
	select {
	case <-p.done:
	case <-time.After(time.Minute):
		p.kill()
		return fmt.Errorf("%s did not end within a minute of %s", filepath.Base(p.cmd.Path), p.end)
	}
	if p.cmd.ProcessState.ExitCode() > 0 {
		return fmt.Errorf("%s: %w: %s", filepath.Base(p.cmd.Path), p.err, p.tail())
	}
	return nil
}

// kill ends the process by SIGKILL and waits until it is gone.
func (p *process) kill() {
	p.cmd.Process.Kill()
	<-p.done
}

// cpu returns the time that the process has spent on the cores so far, an error elsewhere than on Linux.
func (p *process) cpu() (time.Duration, error) {
	b, err := os.ReadFile(p.proc("stat"))
	if err != nil {
		return 0, fmt.Errorf("CPU time: %w", err)
	}
	_, rest, _ := strings.Cut(string(b), ") ") // the program's name may hold blanks
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, errors.New("CPU time: /proc is not as expected")
	}
	var ticks int64
	for _, field := range fields[11:13] { // of the program, of the kernel for it
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / 100, nil // Linux tells all programs of 100 ticks a second
}

// tail returns the last 1,000 bytes of what the process printed.
func (p *process) tail() string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(b[max(0, len(b)-1000):]))
}

// memory is what a process occupies, in bytes, as Linux counts it.
type memory struct {
	RSS, Anon, File size // resident: all, anonymous, of mapped files (and shared memory)
	PSS             size // resident, shared pages by share
	Peak            size // highest RSS since the start or the last resetPeak
}

// memory reads /proc: an error elsewhere than on Linux.
func (p *process) memory() (memory, error) {
	status, err := procFields(p.proc("status"))
	if err != nil {
		return memory{}, fmt.Errorf("memory figures: %w", err)
	}
	m := memory{
		RSS:  status["VmRSS"],
		Anon: status["RssAnon"],
		File: status["RssFile"] + status["RssShmem"],
		Peak: status["VmHWM"],
	}
	if rollup, err := procFields(p.proc("smaps_rollup")); err == nil {
		m.PSS = rollup["Pss"]
	}
	return m, nil
}

// resetPeak makes memory.Peak start anew. Where that is not permitted the peak stays that of the whole life.
func (p *process) resetPeak() {
	os.WriteFile(p.proc("clear_refs"), []byte("5"), 0)
}

func (p *process) proc(name string) string {
	return "/proc/" + strconv.Itoa(p.cmd.Process.Pid) + "/" + name
}

// procFields reads the "Name: 123 kB" lines of a file in /proc.
func procFields(path string) (map[string]size, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	fields := make(map[string]size)
	for lines := bufio.NewScanner(bytes.NewReader(b)); lines.Scan(); {
		name, rest, _ := strings.Cut(lines.Text(), ":")
		number, ok := strings.CutSuffix(strings.TrimSpace(rest), " kB")
		if !ok {
			continue
		}
		if n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64); err == nil {
			fields[name] = size(n) << 10
		}
	}
	return fields, nil
}

// peakAnon samples a process's anonymous memory every 20 ms until the returned function is called, which tells the
// highest value seen.
func (p *process) peakAnon() (stop func() size) {
	quit := make(chan struct{})
	result := make(chan size)
	go func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		var peak size
		for {
			if fields, err := procFields(p.proc("status")); err == nil {
				peak = max(peak, fields["RssAnon"])
			}
			select {
			case <-tick.C:
			case <-quit:
				result <- peak
				return
			}
		}
	}()
	return func() size { close(quit); return <-result }
}

// usage is what a data folder occupies on the disk, in bytes of allocated blocks, as du counts it.
type usage struct {
	Log  size // the folder of the update log, its spare segments included
	Rest size // the tree and all else
}

func (u usage) total() size { return u.Log + u.Rest }

// diskUsage walks a folder. Files that vanish meanwhile are not counted.
func diskUsage(dir string) (usage, error) {
	var u usage
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			if os.IsNotExist(err) {
				return nil
			}
			return err
		}
		info, err := d.Info()
		if err != nil {
			return nil // gone since
		}
		n := size(info.Size())
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			n = size(st.Blocks * 512)
		}
		if filepath.Base(filepath.Dir(path)) == "ulog" {
			u.Log += n
		} else {
			u.Rest += n
		}
		return nil
	})
	return u, err
}
