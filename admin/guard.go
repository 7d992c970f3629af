package admin

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// guard lets requests through to next that name an allowed host and that no foreign web page has sent, and gives every
// answer the headers that keep browsers from doing more with it than show it.
func (s *Server) guard(next http.Handler) http.Handler {
	cross := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		if !allowedHost(r.Host, s.hosts) {
			fail(w, r, http.StatusMisdirectedRequest, "this server does not answer to the host of the request; allow it by name")
			return
		}
		if err := cross.Check(r); err != nil {
			fail(w, r, http.StatusForbidden, err.Error())
			return
		}
		next.ServeHTTP(w, r)
	})
}

// fail answers with code and message in the form of the path: a procedure's record or JSON.
func fail(w http.ResponseWriter, r *http.Request, code int, message string) {
	if strings.HasPrefix(r.URL.Path, rpcPrefix) {
		writeTSV(w, code, map[string]string{"ERROR": message})
		return
	}
	writeJSON(w, code, errorJSON{message})
}

// allowMethods says whether the request's method is one of methods; if not it has answered 405.
func allowMethods(w http.ResponseWriter, r *http.Request, methods ...string) bool {
	if slices.Contains(methods, r.Method) {
		return true
	}
	list := strings.Join(methods, ", ")
	w.Header().Set("Allow", list)
	fail(w, r, http.StatusMethodNotAllowed, "method not allowed; allowed: "+list)
	return false
}

// allowedHost says whether a Host header names loopback or a member of hosts, with whatever port. An empty name is
// allowed: no browser sends one, ktremotemgr does unless it is given a host, and HTTP/1.0 has no such header.
func allowedHost(header string, hosts map[string]bool) bool {
	name := hostName(header)
	if name == "" || name == "localhost" || hosts[name] {
		return true
	}
	addr, err := netip.ParseAddr(name)
	return err == nil && addr.Unmap().IsLoopback()
}

// hostName is the name in a Host header, without port, brackets and root dot, in lower case.
func hostName(header string) string {
	name := header
	if host, _, err := net.SplitHostPort(header); err == nil {
		name = host
	} else if inner, ok := strings.CutPrefix(name, "["); ok {
		name = strings.TrimSuffix(inner, "]")
	}
	return strings.ToLower(strings.TrimSuffix(name, "."))
}

func hostSet(names []string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, name := range names {
		if name = hostName(name); name != "" {
			set[name] = true
		}
	}
	return set
}

// fromBrowser says whether a request shows any sign of having been sent by a web browser. Pages can suppress Origin,
// Referer and, on plain HTTP, Sec-Fetch; the user agent they cannot.
func fromBrowser(r *http.Request) bool {
	if r.Header.Get("Origin") != "" || r.Header.Get("Referer") != "" {
		return true
	}
	for key := range r.Header {
		if strings.HasPrefix(key, "Sec-Fetch-") {
			return true
		}
	}
	return strings.Contains(r.Header.Get("User-Agent"), "Mozilla/")
}
