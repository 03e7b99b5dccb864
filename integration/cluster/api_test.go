package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"sigs.k8s.io/yaml"
)

type object = map[string]any

// api is a client of the API server under one identity.
type api struct {
	base, token string
	http        *http.Client
}

func transport(dial func(ctx context.Context, network, addr string) (net.Conn, error), trust *x509.CertPool) *http.Transport {
	return &http.Transport{DialContext: dial, TLSClientConfig: &tls.Config{RootCAs: trust}, ForceAttemptHTTP2: true}
}

// refusal is an answer that is not a success.
type refusal struct {
	code int
	text string
}

func (r *refusal) Error() string { return fmt.Sprintf("status %d: %s", r.code, r.text) }

func (a *api) do(method, path, contentType string, in, out any) error {
	var body io.Reader
	if in != nil {
		raw, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(raw)
	}
	req, err := http.NewRequest(method, a.base+path, body)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+a.token)
	req.Header.Set("Content-Type", contentType)
	res, err := a.http.Do(req)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	if res.StatusCode >= 300 {
		return fmt.Errorf("%s %s: %w", method, path, &refusal{res.StatusCode, string(raw)})
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(raw, out)
}

func (a *api) get(path string, out any) error { return a.do("GET", path, "", nil, out) }

func (a *api) create(path string, in, out any) error {
	return a.do("POST", path, "application/json", in, out)
}

// merge changes fields of an object; nil takes one away.
func (a *api) merge(path string, fields object) error {
	return a.do("PATCH", path, "application/merge-patch+json", fields, nil)
}

// apply creates an object or takes over its fields, as kubectl apply --server-side does.
func (a *api) apply(o object) error {
	return a.do("PATCH", pathOf(o)+"?fieldManager=test&force=true&fieldValidation=Strict", "application/apply-patch+yaml", o, nil)
}

// accepts asks whether an object could be applied.
func (a *api) accepts(o object) error {
	return a.do("PATCH", pathOf(o)+"?dryRun=All&fieldManager=test&force=true&fieldValidation=Strict", "application/apply-patch+yaml", o, nil)
}

// remove deletes an object at once, without waiting for a kubelet.
func (a *api) remove(path string) error {
	return a.do("DELETE", path, "application/json", object{"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}, nil)
}

// applyFile applies every object of a file.
func (a *api) applyFile(t *testing.T, file string) {
	t.Helper()
	for _, o := range objectsOf(t, file) {
		if err := a.apply(o); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
}

func objectsOf(t *testing.T, file string) (out []object) {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, doc := range strings.Split(string(raw), "\n---\n") {
		var o object
		if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		out = append(out, o)
	}
	return out
}

// clusterWide are the resources without a namespace.
var clusterWide = map[string]bool{"namespaces": true, "nodes": true, "customresourcedefinitions": true, "clusterroles": true,
	"clusterrolebindings": true, "clusterpolicyendpoints": true, "clusternetworkpolicies": true, "priorityclasses": true}

// pathOf is where an object lives.
func pathOf(o object) string {
	meta := o["metadata"].(object)
	namespace, _ := meta["namespace"].(string)
	return resourcePath(o["apiVersion"].(string), o["kind"].(string), namespace) + "/" + meta["name"].(string)
}

func resourcePath(apiVersion, kind, namespace string) string {
	resource := strings.ToLower(kind) + "s"
	if strings.HasSuffix(resource, "ys") {
		resource = strings.TrimSuffix(resource, "ys") + "ies"
	}
	path := "/apis/" + apiVersion
	if apiVersion == "v1" {
		path = "/api/v1"
	}
	if clusterWide[resource] {
		return path + "/" + resource
	}
	if namespace == "" {
		namespace = "default"
	}
	return path + "/namespaces/" + namespace + "/" + resource
}

// up sets an interface of the calling thread's namespace up.
func up(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(link)
}
