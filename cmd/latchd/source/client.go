package source

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/latch-cni/latch/cmd/latchd/apis/v1alpha1"
)

// ErrNoServer says that nothing tells where the API server is.
var ErrNoServer = errors.New("not in a cluster and no kubeconfig given")

const protobuf = "application/vnd.kubernetes.protobuf,application/json"

// clients talk to the API server, one per group. They share connections and the rate limit.
type clients map[schema.GroupVersion]rest.Interface

// restConfig finds the API server: by the file, or by what Kubernetes puts into a pod.
func restConfig(o Options) (*rest.Config, error) {
	var c *rest.Config
	var err error
	if o.Kubeconfig != "" {
		c, err = clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
	} else if c, err = rest.InClusterConfig(); errors.Is(err, rest.ErrNotInCluster) {
		err = ErrNoServer
	}
	if err != nil {
		return nil, fmt.Errorf("find the API server: %w", err)
	}
	c.UserAgent = "latchd"
	c.QPS, c.Burst = o.QPS, o.Burst
	return c, nil
}

// newClients makes the clients. It does not talk to the API server yet.
func newClients(c *rest.Config) (clients, error) {
	scheme := runtime.NewScheme()
	err := errors.Join(corev1.AddToScheme(scheme), networkingv1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme))
	if err != nil {
		return nil, fmt.Errorf("register types: %w", err)
	}
	web, err := rest.HTTPClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("make API client: %w", err)
	}
	out := clients{}
	for _, gv := range []schema.GroupVersion{corev1.SchemeGroupVersion, networkingv1.SchemeGroupVersion, v1alpha1.GroupVersion} {
		cfg := rest.CopyConfig(c)
		cfg.GroupVersion = &gv
		cfg.APIPath = "/apis"
		if gv.Group == "" {
			cfg.APIPath = "/api"
		}
		if gv != v1alpha1.GroupVersion { // custom resources are JSON only
			cfg.AcceptContentTypes, cfg.ContentType = protobuf, runtime.ContentTypeProtobuf
		}
		cfg.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
		if out[gv], err = rest.RESTClientForConfigAndClient(cfg, web); err != nil {
			return nil, fmt.Errorf("make API client of %s: %w", gv, err)
		}
	}
	return out, nil
}

// Writer makes a client of the core group for those who have something to say. It has a rate limit of its
// own: what is said must not delay what is followed.
func Writer(o Options) (rest.Interface, error) {
	cfg, err := restConfig(o)
	if err != nil {
		return nil, err
	}
	c, err := newClients(cfg)
	if err != nil {
		return nil, err
	}
	return c[corev1.SchemeGroupVersion], nil
}
