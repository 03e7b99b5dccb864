package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/latch-cni/latch/cmd/latchd/observe/health"
)

// The end that was asked for is none of an error, whatever was waited for then; another error is.
func TestEndIsNoError(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	signal := errors.New("signal")
	waited := fmt.Errorf("lock: %w", signal)
	if isEnd(ctx, waited) {
		t.Error("no signal has come")
	}
	cancel(signal)
	if !isEnd(ctx, waited) || isEnd(ctx, errors.New("another")) {
		t.Error("the end is not told from an error")
	}
}

// What holds up the end is named, and does not hold it up for ever.
func TestEndIsBounded(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	late := make(chan string, 1)
	endWithin(ctx, time.Millisecond, func(all string) { late <- all })
	select {
	case <-late:
		t.Fatal("ended without a signal")
	case <-time.After(20 * time.Millisecond):
	}
	cancel()
	if all := <-late; !strings.Contains(all, "TestEndIsBounded") {
		t.Errorf("what this test does is not named:\n%s", all)
	}

	ctx, cancel = context.WithCancel(t.Context())
	endWithin(ctx, time.Millisecond, func(all string) { late <- all })() // it has ended
	cancel()
	select {
	case <-late:
		t.Error("it had ended, and was late")
	case <-time.After(20 * time.Millisecond):
	}
}

// The end does not wait for an inspection: with many attachments out of order one takes minutes.
func TestEndDoesNotWaitForAnInspection(t *testing.T) {
	begun, block, left := make(chan struct{}), make(chan struct{}), make(chan struct{})
	inspecting := func() bool {
		defer close(left)
		close(begun)
		<-block
		return false
	}
	ob := &observation{monitor: &health.Monitor{Inspector: &health.Inspector{Adopted: inspecting}}}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		ob.run(ctx)
	}()
	<-begun
	cancel()
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Error("it is still waiting for an inspection")
	}
	close(block)
	<-left
	<-ended
}

// A log that nobody reads does not hold up the end.
func TestLastWordsAreBounded(t *testing.T) {
	_, w := io.Pipe()
	writeWithin(w, time.Millisecond, "stuck")
	var b strings.Builder
	writeWithin(&b, time.Hour, "said")
	if b.String() != "said" {
		t.Errorf("%q", b.String())
	}
}
