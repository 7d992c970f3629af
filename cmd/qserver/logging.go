package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
)

// logFile is the file of -log. Reopen follows a rotation; writes go to the old file until the new one is open.
type logFile struct {
	path string

	mu   sync.Mutex // guards file
	file *os.File
}

func openLogFile(path string) (*logFile, error) {
	f, err := openAppend(path)
	if err != nil {
		return nil, withCode(exitCreate, fmt.Errorf("-log: %w", err))
	}
	return &logFile{path: path, file: f}, nil
}

func openAppend(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
}

func (l *logFile) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.file.Write(p)
}

// Reopen opens the path anew. After an error the old file stays in use.
func (l *logFile) Reopen() error {
	f, err := openAppend(l.path)
	if err != nil {
		return err
	}
	l.mu.Lock()
	old := l.file
	l.file = f
	l.mu.Unlock()
	return old.Close()
}

func (l *logFile) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.file.Close()
}

// openLog returns the server's logger and its file, nil where the log goes to a standard stream.
func openLog(c *config, stdout, stderr io.Writer) (*slog.Logger, *logFile, error) {
	var file *logFile
	out := stderr
	switch c.log {
	case "":
	case "-":
		out = stdout
	default:
		var err error
		if file, err = openLogFile(c.log); err != nil {
			return nil, nil, err
		}
		out = file
	}
	return slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: c.logLevel})), file, nil
}
