package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const (
	defaultCommandTimeout = 10 * time.Minute
	maxCommandOutput      = 1 << 10 // bytes of a command's output that are logged
)

// synchronize is the procedure of that name: it flushes the log, with "hard" also brings the tree up to it, and with
// "command" runs that program of the CmdDir on a consistent copy. It goes on when the client hangs up: many of them have
// timeouts of a second.
func synchronize(ctx context.Context, c *call) error {
	name, run := c.in["command"]
	run = run && name != ""
	if run && !isBareName(name) {
		return &rpcError{http.StatusBadRequest, "command must be the bare name of a program"}
	}
	ctx, cancel := c.s.detach(ctx, c.w)
	defer cancel()
	if err := c.st.Sync(); err != nil {
		return systemError(err)
	}
	if _, hard := c.in["hard"]; hard {
		if err := c.st.Checkpoint(ctx); err != nil {
			return systemError(err)
		}
	}
	if !run {
		return nil
	}
	return c.s.runCommand(ctx, c.st, name)
}

// detach returns a context that outlives the request and ends with the command's time or with Close, and gives the answer
// as much time.
func (s *Server) detach(ctx context.Context, w http.ResponseWriter) (context.Context, context.CancelFunc) {
	limit := s.CommandTimeout
	if limit <= 0 {
		limit = defaultCommandTimeout
	}
	control := http.NewResponseController(w)
	control.SetReadDeadline(time.Time{}) // the request has been read
	control.SetWriteDeadline(time.Now().Add(limit + answerTimeout))
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	go func() {
		select {
		case <-s.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// isBareName says whether name is that of a file within a folder and leads nowhere else.
func isBareName(name string) bool {
	return name != "." && name != ".." && !strings.ContainsAny(name, "/\\\x00") && filepath.IsLocal(name)
}

// runCommand runs CmdDir/name with the path of a fresh copy of the tree and the time in ns, 20 digits. Afterwards the copy
// is removed; what else the command has put beside it stays.
func (s *Server) runCommand(ctx context.Context, st Store, name string) error {
	if s.CmdDir == "" {
		return logicError("no folder of commands is set")
	}
	program, err := filepath.Abs(filepath.Join(s.CmdDir, name))
	if err != nil {
		return systemError(err)
	}
	if info, err := os.Stat(program); err != nil || !info.Mode().IsRegular() {
		return logicError("no such command: " + name)
	}
	select {
	case s.command <- struct{}{}:
		defer func() { <-s.command }()
	default:
		return logicError("another command is running")
	}
	data, err := s.copyStore(ctx, st)
	if err != nil {
		return systemError(fmt.Errorf("copy for command %s: %w", name, err))
	}
	defer os.Remove(data)
	return s.execute(ctx, program, data)
}

// copyStore writes the copy that a command gets and returns its absolute path. What an earlier run left there is replaced.
func (s *Server) copyStore(ctx context.Context, st Store) (string, error) {
	folder := st.Stats().Path
	dir := s.CopyDir
	if dir == "" {
		dir = filepath.Join(folder, "backup")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	path := filepath.Join(dir, filepath.Base(folder))
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	if err := st.CopyTo(ctx, path); err != nil {
		os.Remove(path)
		return "", err
	}
	return path, nil
}

// execute runs the program to its end. Its environment is small: the server's own may hold secrets.
func (s *Server) execute(ctx context.Context, program, data string) error {
	var output tail
	cmd := exec.CommandContext(ctx, program, data, fmt.Sprintf("%020d", time.Now().UnixNano()))
	cmd.Dir = filepath.Dir(data)
	for _, key := range []string{"PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR"} {
		if value, ok := os.LookupEnv(key); ok {
			cmd.Env = append(cmd.Env, key+"="+value)
		}
	}
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.WaitDelay = 5 * time.Second
	ownGroup(cmd)
	started := time.Now()
	err := cmd.Run()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	name := filepath.Base(program)
	if err != nil {
		s.log.Error("command failed", "command", name, "error", err, "output", string(output.kept))
		return logicError("command failed: " + err.Error())
	}
	s.log.Info("command run", "command", name, "copy", data, "seconds", time.Since(started).Seconds())
	return nil
}

// tail keeps the end of what is written to it.
type tail struct{ kept []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p[max(0, len(p)-maxCommandOutput):]...)
	t.kept = append(t.kept[:0], t.kept[max(0, len(t.kept)-maxCommandOutput):]...)
	return len(p), nil
}
