package admin

import (
	"errors"
	"net/http"

	"qserver/storage"
)

type healthJSON struct {
	Status string `json:"status"`          // "ok" or "unavailable"
	Error  string `json:"error,omitempty"` // why it is unavailable
}

func (s *Server) serveHealth(w http.ResponseWriter, r *http.Request) {
	writeJSON(w, http.StatusOK, healthJSON{Status: "ok"})
}

func (s *Server) serveReady(w http.ResponseWriter, r *http.Request) {
	if reason := s.notReady(); reason != "" {
		writeJSON(w, http.StatusServiceUnavailable, healthJSON{"unavailable", reason})
		return
	}
	writeJSON(w, http.StatusOK, healthJSON{Status: "ok"})
}

// notReady says why the server should get no new work; empty if it should.
func (s *Server) notReady() string {
	if s.draining.Load() {
		return "shutdown"
	}
	st := s.attached()
	if st == nil {
		return s.recovering()
	}
	switch err := st.Writable(); {
	case err == nil:
		return ""
	case errors.Is(err, storage.ErrDiskFull):
		return "disk full"
	case errors.Is(err, storage.ErrClosed):
		return "shutdown"
	default:
		return err.Error()
	}
}

func (s *Server) recovering() string {
	if s.Recovery != nil {
		if text := s.Recovery(); text != "" {
			return text
		}
	}
	return "recovery"
}
