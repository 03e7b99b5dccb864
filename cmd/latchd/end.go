package main

import (
	"context"
	"errors"
	"io"
	"runtime"
	"time"
)

// endPatience is how long the end may take from the signal on. Whatever holds it up must not keep the next
// latchd from starting: what a write path was doing then, the next holder of its lock finishes.
const endPatience = 15 * time.Second

// isEnd tells whether an error only says that the end was asked for, while something was waited for.
func isEnd(ctx context.Context, err error) bool {
	return ctx.Err() != nil && errors.Is(err, context.Cause(ctx))
}

// endWithin calls late with what every goroutine does when patience is over after the end of ctx, unless
// the end was reported by then.
func endWithin(ctx context.Context, patience time.Duration, late func(goroutines string)) (ended func()) {
	done, end := context.WithCancel(context.Background())
	context.AfterFunc(ctx, func() {
		select {
		case <-done.Done():
		case <-time.After(patience):
			all := make([]byte, 1<<18)
			late(string(all[:runtime.Stack(all, true)]))
		}
	})
	return end
}

// writeWithin writes unless nobody reads.
func writeWithin(w io.Writer, patience time.Duration, text string) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.WriteString(w, text)
	}()
	select {
	case <-done:
	case <-time.After(patience):
	}
}
