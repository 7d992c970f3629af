package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"qserver/storage"
)

const rpcPrefix = "/rpc/"

// statusLogic is Kyoto Tycoon's "Logical Inconsistency": understood, and not done.
const statusLogic = 450

// call is one call of a procedure.
type call struct {
	s   *Server
	w   http.ResponseWriter
	r   *http.Request
	in  map[string]string
	out map[string]string
	st  Store // nil where the procedure needs none
}

// procedure is how one is called. run fills the call's answer or returns a *rpcError.
type procedure struct {
	methods  []string
	store    bool // needs the store
	database bool // has a DB argument, which must name ours
	run      func(context.Context, *call) error
}

var (
	reads  = []string{http.MethodGet, http.MethodHead, http.MethodPost}
	writes = []string{http.MethodPost}
)

var procedures = map[string]procedure{
	"void":        {methods: reads, run: func(context.Context, *call) error { return nil }},
	"echo":        {methods: reads, run: echo},
	"report":      {methods: reads, store: true, run: report},
	"status":      {methods: reads, store: true, database: true, run: status},
	"clear":       {methods: []string{http.MethodGet, http.MethodPost}, store: true, database: true, run: purge},
	"synchronize": {methods: writes, store: true, database: true, run: synchronize},
	"ulog_list":   {methods: reads, store: true, run: logList},
	"ulog_remove": {methods: writes, store: true, run: logRemove},
}

// rpcError is a refusal: its code is what Kyoto Tycoon's clients tell apart.
type rpcError struct {
	code    int
	message string
}

func (e *rpcError) Error() string { return e.message }

// dbError has the form of a database's error in Kyoto Tycoon. number is its code there: 4 no permission, 8 logical inconsistency, 9 system error.
func dbError(code, number int, name, message string) *rpcError {
	return &rpcError{code, fmt.Sprintf("DB: %d: %s: %s", number, name, message)}
}

func systemError(err error) *rpcError {
	return dbError(http.StatusInternalServerError, 9, "system error", err.Error())
}

func logicError(message string) *rpcError {
	return dbError(statusLogic, 8, "logical inconsistency", message)
}

// serveRPC calls the procedure name.
func (s *Server) serveRPC(w http.ResponseWriter, r *http.Request, name string) {
	p, ok := procedures[name]
	if !ok {
		fail(w, r, http.StatusNotImplemented, "not implemented: "+name)
		return
	}
	if !allowMethods(w, r, p.methods...) {
		return
	}
	c := &call{s: s, w: w, r: r, out: map[string]string{}}
	err := c.prepare(p, name)
	if err == nil {
		err = p.run(r.Context(), c)
	}
	if err != nil {
		refused := systemError(err)
		errors.As(err, &refused)
		if refused.code == http.StatusInternalServerError {
			s.log.Error("procedure failed", "procedure", name, "peer", r.RemoteAddr, "error", err)
		}
		fail(w, r, refused.code, refused.message)
		return
	}
	writeTSV(w, http.StatusOK, c.out)
}

// prepare reads the input and looks after what the procedure needs.
func (c *call) prepare(p procedure, name string) error {
	var err error
	if c.in, err = readInput(c.w, c.r); err != nil {
		return err
	}
	for _, key := range []string{"WAIT", "SIGNAL"} {
		if _, ok := c.in[key]; ok && name != "echo" {
			return &rpcError{http.StatusNotImplemented, "not implemented: " + key}
		}
	}
	if !p.store {
		return nil
	}
	if c.st = c.s.attached(); c.st == nil {
		return &rpcError{http.StatusServiceUnavailable, c.s.recovering()}
	}
	if p.database && !isDatabase(c.in["DB"], c.st.Stats().Path) {
		return &rpcError{http.StatusBadRequest, "no such database"}
	}
	return nil
}

// readInput merges the query and the body of a POST, whose records win.
func readInput(w http.ResponseWriter, r *http.Request) (map[string]string, error) {
	in := map[string]string{}
	decodeForm(in, r.URL.RawQuery)
	if r.Method != http.MethodPost {
		return in, nil
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBodyBytes))
	if err != nil {
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return nil, &rpcError{http.StatusRequestEntityTooLarge, "body too large"}
		}
		return nil, &rpcError{http.StatusBadRequest, "body not readable"}
	}
	switch kind, codec := mediaType(r.Header.Get("Content-Type")); kind {
	case formType:
		decodeForm(in, string(body))
	case tsvType:
		decodeTSV(in, string(body), codec)
	}
	return in, nil
}

// isDatabase says whether a DB argument names the one database there is: absent or empty, its number, or its file name.
func isDatabase(db, path string) bool {
	if db == "" || db == filepath.Base(path) {
		return true
	}
	n, err := strconv.ParseUint(db, 10, 64)
	return err == nil && n == 0
}

func echo(_ context.Context, c *call) error {
	c.out = c.in
	return nil
}

// purge is the procedure "clear".
func purge(_ context.Context, c *call) error {
	if c.r.Method == http.MethodGet && fromBrowser(c.r) {
		return &rpcError{http.StatusForbidden, "clear by GET is not for browsers"}
	}
	if !c.s.AllowFlushAll {
		return dbError(statusLogic, 4, "no permission", "clear not allowed")
	}
	n, err := c.st.PurgeAll()
	if err != nil {
		return systemError(err)
	}
	c.s.log.Info("all queues purged", "messages", n, "peer", c.r.RemoteAddr)
	return nil
}

// logList has a record for each file of the update log: its path, and its size in bytes and time of change in ns.
func logList(_ context.Context, c *call) error {
	for _, f := range c.st.LogFiles() {
		c.out[f.Path] = fmt.Sprintf("%d:%d", f.Size, f.Modified.UnixNano())
	}
	return nil
}

// logRemove removes the files of the update log that nothing needs, if one of them is as old as ts (ns since 1970, "now" if absent).
// The server may at any time remove what nothing needs, so ts keeps no single file.
func logRemove(_ context.Context, c *call) error {
	before := time.Now().UnixNano()
	if ts, ok := c.in["ts"]; ok && ts != "now" {
		n, err := strconv.ParseInt(ts, 10, 64)
		if err != nil || n < 0 {
			return &rpcError{http.StatusBadRequest, "ts must be nanoseconds since 1970, or now"}
		}
		before = n
	}
	old := func(f storage.LogFile) bool { return !f.Needed && f.Modified.UnixNano() <= before }
	if !slices.ContainsFunc(c.st.LogFiles(), old) {
		return nil
	}
	n, err := c.st.RemoveLogs()
	if err != nil {
		return systemError(err)
	}
	c.s.log.Info("update log files removed", "files", n, "peer", c.r.RemoteAddr)
	return nil
}

// printable makes a value that clients need not decode: at most 255 bytes, control bytes shown as '?'.
func printable(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, text(s))
	if len(s) > maxPlain {
		s = strings.ToValidUTF8(s[:maxPlain], "")
	}
	return s
}
