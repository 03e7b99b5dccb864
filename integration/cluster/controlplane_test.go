package cluster

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/latch-cni/latch/integration/harness"
	"github.com/latch-cni/latch/shared/testenv"
)

// serverAddr is where kube-apiserver listens, in its own network namespace.
const serverAddr = "127.0.0.1:16443"

// controlPlane is an etcd and a kube-apiserver.
type controlPlane struct {
	*api   // as administrator
	dir    string
	ns     *harness.NetNS
	args   []string // more arguments of kube-apiserver
	apiBin string
	etcd   *harness.Process
	server *harness.Process
}

// noServiceAccounts lets pods be created without a ServiceAccount, which nobody makes here.
const noServiceAccounts = "--disable-admission-plugins=ServiceAccount"

// startControlPlane starts both, with the CRDs and the ServiceAccount of conf, and ends them with the
// test.
func startControlPlane(t *testing.T, args ...string) *controlPlane {
	t.Helper()
	cp := &controlPlane{dir: t.TempDir(), args: args, apiBin: part(t, k8sDir(), "kube-apiserver")}
	etcd := part(t, k8sDir(), "etcd")
	var err error
	if cp.ns, err = harness.NewNetNS(cp.dir, "netns"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, p := range []*harness.Process{cp.server, cp.etcd} {
			if p != nil {
				_ = p.Kill()
			}
		}
		if err := cp.ns.Close(); err != nil {
			t.Error(err)
		}
	})
	token := make([]byte, 16)
	if _, err := rand.Read(token); err != nil {
		t.Fatal(err)
	}
	cp.api = &api{base: "https://" + serverAddr, token: hex.EncodeToString(token)}
	if err := cp.writeKeys(); err != nil {
		t.Fatal(err)
	}
	err = cp.ns.Do(func() error {
		if err := up("lo"); err != nil {
			return err
		}
		cp.etcd, err = harness.Start(cp.path("etcd.log"), etcd, "--name=e", "--data-dir="+cp.path("etcd"), "--unsafe-no-fsync",
			"--log-level=warn", "--listen-client-urls=http://127.0.0.1:2379", "--advertise-client-urls=http://127.0.0.1:2379",
			"--listen-peer-urls=http://127.0.0.1:2380", "--initial-advertise-peer-urls=http://127.0.0.1:2380",
			"--initial-cluster=e=http://127.0.0.1:2380")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	cp.startServer(t)
	cp.applyConf(t)
	return cp
}

func (cp *controlPlane) path(name string) string { return filepath.Join(cp.dir, name) }

func (cp *controlPlane) writeKeys() error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	if err := os.WriteFile(cp.path("sa.key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		return err
	}
	return os.WriteFile(cp.path("tokens.csv"), []byte(cp.token+",admin,admin,system:masters\n"), 0o600)
}

// writeKubeconfig lets a client reach the API server at an address, under a token.
func (cp *controlPlane) writeKubeconfig(file, addr, token string) error {
	return os.WriteFile(file, fmt.Appendf(nil, "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: \"https://%s\", certificate-authority: %s}}]\n"+
		"users: [{name: u, user: {token: %s}}]\ncontexts: [{name: c, context: {cluster: c, user: u}}]\ncurrent-context: c\n",
		addr, cp.path("certs/apiserver.crt"), token), 0o600)
}

// startServer starts kube-apiserver and waits until it is ready.
func (cp *controlPlane) startServer(t *testing.T) {
	t.Helper()
	args := append([]string{"--etcd-servers=http://127.0.0.1:2379", "--cert-dir=" + cp.path("certs"),
		"--bind-address=127.0.0.1", "--secure-port=16443", "--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none",
		"--service-cluster-ip-range=10.96.0.0/16", "--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + cp.path("sa.key"), "--service-account-signing-key-file=" + cp.path("sa.key"),
		"--token-auth-file=" + cp.path("tokens.csv"), "--authorization-mode=RBAC",
		"--allow-privileged=true", "--profiling=false"}, cp.args...)
	err := cp.ns.Do(func() (err error) {
		cp.server, err = harness.Start(cp.path("apiserver.log"), cp.apiBin, args...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, 60*time.Second, func() error {
		if err := cp.server.Running(); err != nil {
			return err
		}
		if cp.http == nil {
			if cp.http, err = cp.newClient(); err != nil {
				return err
			}
		}
		return cp.get("/readyz", nil)
	})
}

// newClient makes a client that dials in the control plane's namespace and trusts its certificate.
func (cp *controlPlane) newClient() (*http.Client, error) {
	cert, err := os.ReadFile(cp.path("certs/apiserver.crt"))
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(cert) {
		return nil, fmt.Errorf("no certificate in apiserver.crt")
	}
	return &http.Client{Transport: transport(cp.dial, pool), Timeout: 30 * time.Second}, nil
}

func (cp *controlPlane) dial(ctx context.Context, _, addr string) (c net.Conn, err error) {
	err = cp.ns.Do(func() error {
		c, err = (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		return err
	})
	return c, err
}

// applyConf applies what an operator would.
func (cp *controlPlane) applyConf(t *testing.T) {
	t.Helper()
	files, err := filepath.Glob("../../conf/crds/*.yaml")
	if err != nil || len(files) != 4 {
		t.Fatalf("conf/crds: %v, %v", files, err)
	}
	testenv.Eventually(t, 10*time.Second, func() error { return cp.get("/api/v1/namespaces/kube-system", nil) })
	for _, file := range append(files, "../../conf/rbac.yaml") {
		cp.applyFile(t, file)
	}
	for _, resource := range []string{"policyendpoints", "clusterpolicyendpoints", "applicationnetworkpolicies", "clusternetworkpolicies"} {
		testenv.Eventually(t, 10*time.Second, func() error { return cp.get("/apis/networking.k8s.aws/v1alpha1/"+resource, nil) })
	}
}
