package admin

import (
	"net/http"
	"net/http/pprof"
	"strings"
)

const pprofPrefix = "/debug/pprof/"

// servePprof answers Go's profiling addresses below path /debug/pprof/. They cost time on the cores and tell of the
// program's inner life, so they are there only if Server.Pprof says so. cmdline is left out: flags may hold what is not
// meant for everybody.
func (s *Server) servePprof(w http.ResponseWriter, r *http.Request) {
	methods := []string{http.MethodGet, http.MethodHead}
	handler := pprof.Index
	switch strings.TrimPrefix(r.URL.Path, pprofPrefix) {
	case "cmdline":
		fail(w, r, http.StatusNotFound, "no such address")
		return
	case "profile":
		handler = pprof.Profile
	case "trace":
		handler = pprof.Trace
	case "symbol":
		handler = pprof.Symbol
		methods = append(methods, http.MethodPost) // go tool pprof asks so
	}
	if allowMethods(w, r, methods...) {
		handler(w, r)
	}
}
