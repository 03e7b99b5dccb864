package source

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/latch-cni/latch/cmd/latchd/apis"
)

// server is as much of an API server as reflectors need: lists, streamed lists and watches, in JSON.
type server struct {
	t    *testing.T
	http *httptest.Server

	mu       sync.Mutex
	version  int
	objects  map[string]map[string]apis.Object // by resource and key
	streams  map[chan []byte]string            // resource
	served   map[string]bool                   // custom resources
	later    []string                          // custom resources of version v1beta1
	hang     map[string]chan struct{}          // resources that do not answer until it is closed
	requests map[string]int                    // lists, streamed or not
}

func newServer(t *testing.T, served ...string) *server {
	s := &server{
		t: t, objects: map[string]map[string]apis.Object{}, streams: map[chan []byte]string{},
		served: map[string]bool{}, hang: map[string]chan struct{}{}, requests: map[string]int{},
	}
	s.serve(served...)
	s.http = httptest.NewServer(http.HandlerFunc(s.handle))
	t.Cleanup(func() {
		s.cut()
		s.http.Close()
	})
	return s
}

// serve adds custom resources.
func (s *server) serve(resources ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range resources {
		s.served[r] = true
	}
}

func (s *server) kubeconfig() string {
	path := filepath.Join(s.t.TempDir(), "kubeconfig")
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters: [{name: a, cluster: {server: %q}}]\n"+
		"contexts: [{name: a, context: {cluster: a}}]\ncurrent-context: a\n", s.http.URL)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return path
}

func (s *server) handle(w http.ResponseWriter, r *http.Request) {
	resource := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	s.mu.Lock()
	wait, custom := s.hang[resource], strings.HasPrefix(r.URL.Path, "/apis/networking.k8s.aws/")
	missing := custom && !s.served[resource] && resource != "v1alpha1"
	s.mu.Unlock()
	if wait != nil {
		select {
		case <-wait:
		case <-r.Context().Done():
			return
		}
	}
	switch {
	case r.URL.Path == "/apis/networking.k8s.aws" || r.URL.Path == "/apis/networking.k8s.aws/v1beta1":
		s.group(w, resource)
	case missing:
		http.NotFound(w, r)
	case resource == "v1alpha1":
		s.resources(w)
	case r.URL.Query().Get("watch") != "":
		s.watch(w, r, resource)
	default:
		s.list(w, r, resource)
	}
}

func (s *server) resources(w http.ResponseWriter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []map[string]string
	for r := range s.served {
		list = append(list, map[string]string{"name": r})
	}
	if len(list) == 0 {
		w.WriteHeader(http.StatusNotFound)
	}
	s.write(w, map[string]any{"kind": "APIResourceList", "apiVersion": "v1", "resources": list})
}

// group tells of the version that is not ours.
func (s *server) group(w http.ResponseWriter, what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.later) == 0 {
		w.WriteHeader(http.StatusNotFound)
	}
	if what != "v1beta1" {
		s.write(w, map[string]any{"kind": "APIGroup", "apiVersion": "v1", "name": what, "versions": []map[string]string{{"version": "v1beta1"}}})
		return
	}
	var list []map[string]string
	for _, r := range s.later {
		list = append(list, map[string]string{"name": r})
	}
	s.write(w, map[string]any{"kind": "APIResourceList", "apiVersion": "v1", "resources": list})
}

// list returns the objects of a resource, or the one that is asked for by name.
func (s *server) list(w http.ResponseWriter, r *http.Request, resource string) {
	name, named := strings.CutPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name=")
	key := "/" + name
	if _, path, ok := strings.Cut(r.URL.Path, "/namespaces/"); ok {
		namespace, _, _ := strings.Cut(path, "/")
		key = namespace + key
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests[resource]++
	var items []any
	for k, o := range s.objects[resource] {
		if !named || k == key {
			items = append(items, o)
		}
	}
	s.write(w, map[string]any{
		"kind": kindOf(resource) + "List", "apiVersion": versionOf(resource),
		"metadata": map[string]any{"resourceVersion": strconv.Itoa(s.version + 1)}, "items": items,
	})
}

func (s *server) write(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(v); err != nil {
		s.t.Error(err)
	}
}

func (s *server) watch(w http.ResponseWriter, r *http.Request, resource string) {
	w.Header().Set("Content-Type", "application/json")
	events := make(chan []byte, 1024)
	s.mu.Lock()
	if r.URL.Query().Get("sendInitialEvents") == "true" {
		s.requests[resource]++
		for _, o := range s.objects[resource] {
			events <- event("ADDED", o)
		}
		events <- fmt.Appendf(nil, `{"type":"BOOKMARK","object":{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":"%d","annotations":{"k8s.io/initial-events-end":"true"}}}}`,
			kindOf(resource), versionOf(resource), s.version+1)
	}
	s.streams[events] = resource
	s.mu.Unlock()
	for {
		w.(http.Flusher).Flush()
		select {
		case e, ok := <-events:
			if !ok {
				return
			}
			if _, err := w.Write(e); err != nil {
				return
			}
		case <-r.Context().Done():
			return
		}
	}
}

// put creates or changes an object. With silent, no watch tells.
func (s *server) put(o apis.Object) { s.tell("MODIFIED", o, true) }

func (s *server) remove(o apis.Object) { s.tell("DELETED", o, true) }

func (s *server) tell(what string, o apis.Object, aloud bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ref, ok := apis.RefOf(o)
	resource := strings.ToLower(ref.Kind) + "s"
	if !ok {
		resource = "nodes"
	}
	if strings.HasSuffix(resource, "ys") {
		resource = strings.TrimSuffix(resource, "ys") + "ies"
	}
	o.GetObjectKind().SetGroupVersionKind(gvkOf(resource))
	s.version++
	o.SetResourceVersion(strconv.Itoa(s.version))
	if s.objects[resource] == nil {
		s.objects[resource] = map[string]apis.Object{}
	}
	if what == "DELETED" {
		delete(s.objects[resource], keyOf(o))
	} else {
		s.objects[resource][keyOf(o)] = o
	}
	for stream, of := range s.streams {
		if aloud && of == resource {
			stream <- event(what, o)
		}
	}
}

// cut ends all watches.
func (s *server) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for stream := range s.streams {
		close(stream)
		delete(s.streams, stream)
	}
}

func event(what string, o apis.Object) []byte {
	raw, err := json.Marshal(map[string]any{"type": what, "object": o})
	if err != nil {
		panic(err)
	}
	return raw
}
