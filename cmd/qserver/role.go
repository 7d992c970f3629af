package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"qserver/storage"
)

// A server that was promoted, or that follows another by command, must do so after a restart too, with the command line of
// before. So its folder has a file that says for which -mhost and -mport it acts otherwise. As long as the command line
// stays as it was the file counts; when somebody has changed it, that counts and the file goes.

// role is that file.
type role struct {
	Configured string `json:"command_line"` // host:port of the master by the command line; "": none
	Master     string `json:"follows"`      // whom it follows instead; "": it leads
}

func rolePath(data string) string { return filepath.Join(data, "role") }

// readRole returns host:port of the master that this server is to follow; "": it leads.
func (s *server) readRole() (string, error) {
	configured := s.config.masterAddress()
	b, err := os.ReadFile(rolePath(s.data))
	if errors.Is(err, fs.ErrNotExist) {
		return configured, nil
	}
	if err != nil {
		return "", err
	}
	var r role
	if err := json.Unmarshal(b, &r); err != nil {
		return "", fmt.Errorf("%s can't be read: %w; remove it to have the role of the command line", rolePath(s.data), err)
	}
	if r.Configured != configured {
		s.log.Info("role by the command line, which has changed", "master", configured)
		return configured, os.Remove(rolePath(s.data))
	}
	if r.Master == "" {
		s.log.Warn("this server was promoted: it leads, although the command line names a master", "master", configured)
	} else {
		s.log.Warn("this server follows by command, not by its command line", "master", r.Master)
	}
	return r.Master, nil
}

// writeRole makes the role, "" or whom it follows, last over restarts.
func (s *server) writeRole(master string) error {
	configured := s.config.masterAddress()
	if master == configured {
		err := os.Remove(rolePath(s.data))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	b, err := json.Marshal(role{configured, master})
	if err != nil {
		return err
	}
	return storage.WriteFile(rolePath(s.data), append(b, '\n'))
}
