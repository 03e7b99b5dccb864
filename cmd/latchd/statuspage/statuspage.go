package statuspage

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/latch-cni/latch/shared/view"
)

//go:embed page.html
var source string

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"ago":  func(t *time.Time) string { return ago(t) },
	"join": join,
}).Parse(source))

// Listen takes an address. One without a host is on loopback: to be seen from elsewhere is asked for by name,
// 0.0.0.0 or an address.
func Listen(addr string) (net.Listener, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	if host == "" {
		host = "127.0.0.1"
	}
	return net.Listen("tcp", net.JoinHostPort(host, port))
}

// Options say what to show.
type Options struct {
	Bpffs, StateDir string
	Version         string
}

// keep is how long a rendered page is good for.
const keep = time.Second

// Handler serves the page.
func Handler(o Options) http.Handler {
	s := &server{Options: o}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", s.serve)
	return mux
}

type server struct {
	Options

	mu       sync.Mutex
	rendered []byte
	at       time.Time
}

func (s *server) serve(w http.ResponseWriter, r *http.Request) {
	if !local(r) {
		http.Error(w, "this is the status page of a node's own: ask for it by the name localhost or its address", http.StatusForbidden)
		return
	}
	raw, err := s.render()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	_, _ = w.Write(raw) // who asked may be gone
}

// local tells whether a request that comes in on loopback names loopback.
func local(r *http.Request) bool {
	on, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return true
	}
	addr, err := netip.ParseAddrPort(on.String())
	if err != nil || !addr.Addr().IsLoopback() {
		return true
	}
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	if host == "localhost" {
		return true
	}
	_, err = netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil
}

func (s *server) render() ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.at) < keep {
		return s.rendered, nil
	}
	c, err := collect(s.Options)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := page.Execute(&b, c); err != nil {
		return nil, fmt.Errorf("render status page: %w", err)
	}
	s.rendered, s.at = b.Bytes(), time.Now()
	return s.rendered, nil
}

func ago(t *time.Time) string {
	if t == nil || t.IsZero() {
		return ""
	}
	d := time.Since(*t)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours())/24)
}

func join(policies []view.Policy) string {
	var names []string
	for _, p := range policies {
		names = append(names, p.String())
	}
	return strings.Join(names, ", ")
}
