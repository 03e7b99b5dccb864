package announce

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
)

// patience bounds one request.
const patience = 10 * time.Second

// maxMessage is what the API server takes.
const maxMessage = 1000

// newRecorder makes a recorder that writes through a client until the context ends.
func newRecorder(ctx context.Context, client rest.Interface, node string, failed func(error)) record.EventRecorder {
	b := record.NewBroadcaster(record.WithContext(ctx))
	b.StartRecordingToSink(sink{ctx, client, failed})
	return b.NewRecorder(runtime.NewScheme(), corev1.EventSource{Component: component, Host: node})
}

const component = "latchd"

// sink writes Events.
type sink struct {
	ctx    context.Context
	client rest.Interface
	failed func(error) // told how each request went
}

var _ record.EventSink = sink{}

// Create makes an Event. That another node has made the same one about a policy is an error that the
// recorder knows.
func (s sink) Create(e *corev1.Event) (*corev1.Event, error) {
	if e.InvolvedObject.Kind != "Pod" {
		e.Name = sharedName(e)
	}
	return s.do(s.client.Post().Namespace(e.Namespace).Resource("events").Body(e))
}

func (s sink) Update(e *corev1.Event) (*corev1.Event, error) {
	return s.do(s.client.Put().Namespace(e.Namespace).Resource("events").Name(e.Name).Body(e))
}

func (s sink) Patch(e *corev1.Event, patch []byte) (*corev1.Event, error) {
	return s.do(s.client.Patch(types.StrategicMergePatchType).Namespace(e.Namespace).Resource("events").Name(e.Name).Body(patch))
}

func (s sink) do(r *rest.Request) (*corev1.Event, error) {
	ctx, cancel := context.WithTimeout(s.ctx, patience)
	defer cancel()
	out := &corev1.Event{}
	err := r.Do(ctx).Into(out)
	s.failed(err)
	return out, err
}

// sharedName is the same on every node that has the same to say about an object.
func sharedName(e *corev1.Event) string {
	o := e.InvolvedObject
	sum := sha256.Sum256([]byte(strings.Join([]string{o.Kind, o.Namespace, o.Name, string(o.UID), e.Reason, e.Message}, "\x00")))
	return "latch." + hex.EncodeToString(sum[:12])
}

// cut shortens a message to what the API server takes.
func cut(message string) string {
	if len(message) <= maxMessage {
		return message
	}
	return strings.ToValidUTF8(message[:maxMessage], "") + " ..."
}
