package cluster

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/latch-cni/latch/integration/harness"
)

// gateAddr is where a node finds the API server.
const gateAddr = "127.0.0.1:6443"

// gate stands between a node and the API server, and can be shut.
type gate struct {
	mu   sync.Mutex
	held map[string]chan struct{} // part of a path -> closed when it may pass
	seen map[string]int           // requests by path
	cut  map[*context.CancelFunc]bool
}

// openGate listens in the node's namespace, at addresses that are in the API server's certificate.
func openGate(t *testing.T, ns *harness.NetNS, cp *controlPlane, addrs ...string) *gate {
	t.Helper()
	g := &gate{held: map[string]chan struct{}{}, seen: map[string]int{}, cut: map[*context.CancelFunc]bool{}}
	target, err := url.Parse(cp.base)
	if err != nil {
		t.Fatal(err)
	}
	forward := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     cp.http.Transport,
		FlushInterval: -1,
		ErrorLog:      log.New(io.Discard, "", 0),
		// A server that is away is a connection that breaks, not an answer.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	server := &http.Server{ErrorLog: log.New(io.Discard, "", 0), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, done, err := g.pass(r)
		defer done()
		if err == nil {
			forward.ServeHTTP(w, r.WithContext(ctx))
		}
	})}
	var wg sync.WaitGroup
	for _, addr := range addrs {
		err := ns.Do(func() error {
			l, err := net.Listen("tcp", addr)
			if err == nil {
				wg.Go(func() { _ = server.ServeTLS(l, cp.path("certs/apiserver.crt"), cp.path("certs/apiserver.key")) })
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		_ = server.Close()
		wg.Wait()
	})
	return g
}

// pass counts a request and waits while it is held.
func (g *gate) pass(r *http.Request) (context.Context, func(), error) {
	ctx, cancel := context.WithCancel(r.Context())
	g.mu.Lock()
	g.seen[r.URL.Path]++
	g.cut[&cancel] = true
	var wait chan struct{}
	for part, c := range g.held {
		if strings.Contains(r.URL.Path, part) {
			wait = c
		}
	}
	g.mu.Unlock()
	done := func() {
		cancel()
		g.mu.Lock()
		delete(g.cut, &cancel)
		g.mu.Unlock()
	}
	if wait != nil {
		select {
		case <-wait:
		case <-ctx.Done():
			return ctx, done, errors.New("gave up")
		}
	}
	return ctx, done, nil
}

// hold keeps requests whose path has a part from passing, and says how to let them.
func (g *gate) hold(part string) (release func()) {
	c := make(chan struct{})
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held[part] = c
	return sync.OnceFunc(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.held, part)
		close(c)
	})
}

// sever ends all requests that are under way: watches above all.
func (g *gate) sever() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for cancel := range g.cut {
		(*cancel)()
	}
}
