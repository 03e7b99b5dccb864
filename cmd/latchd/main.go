// latchd is the node watcher of Latch: it follows policy and keeps the pinned kernel objects of the
// node current, through the same write path and under the same locks as the CNI plugin. It is not in
// the way of a packet or of a starting pod: when it stops, enforcement goes on as it is.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"gopkg.in/natefinch/lumberjack.v2"

	"github.com/latch-cni/latch/shared/near"
)

var version = "unknown"

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	if len(args) > 0 {
		switch args[0] {
		case "install", "uninstall":
			return place(args[0], args[1:])
		case "--version":
			fmt.Println("latchd version", version)
			return 0
		}
		if !strings.HasPrefix(args[0], "-") {
			fmt.Fprintf(os.Stderr, "latchd: unknown command %q%s\nsee: latchd --help\n", args[0], meant(args[0]))
			return 2
		}
	}
	opts, err := parseFlags(args)
	if errors.Is(err, errHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "latchd: %v\nsee: latchd --help\n", err)
		return 2
	}
	if err := checkLogFile(opts.logFile); err != nil {
		fmt.Fprintln(os.Stderr, "latchd:", err)
		return 2
	}
	out := logWriter(opts.logFile)
	defer out.Close()
	log := slog.New(slog.NewJSONHandler(out, &slog.HandlerOptions{Level: opts.logLevel}))
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends at once
	ended := endWithin(ctx, endPatience, func(goroutines string) {
		writeWithin(os.Stderr, time.Second, "latchd: still running "+endPatience.String()+" after the signal, ending; enforcement stays in place\n"+goroutines)
		os.Exit(1)
	})
	defer ended()
	log.Info("starting", "version", version, "node", opts.nodeName, "mode", opts.mode)
	if err := serve(ctx, opts, log); err != nil && !isEnd(ctx, err) {
		log.Error("stopped", "error", err)
		return 1
	}
	log.Info("stopped, enforcement stays in place")
	return 0
}

// meant asks whether a mistyped command was meant to be one that there is.
func meant(command string) string {
	if word := near.Word(strings.ToLower(command), []string{"install", "uninstall"}); word != "" {
		return fmt.Sprintf("; did you mean %q?", word)
	}
	return ""
}

// checkLogFile refuses a file in a folder of a folder that does not exist: that is mistyped, and would be made.
func checkLogFile(file string) error {
	above := filepath.Dir(filepath.Dir(file))
	if _, err := os.Stat(above); file != "" && errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("--log-file %s: folder %s does not exist", file, above)
	}
	return nil
}

// logWriter is standard error, or a file whose size is bounded.
func logWriter(file string) io.WriteCloser {
	if file == "" {
		return os.Stderr
	}
	return &lumberjack.Logger{Filename: file, MaxSize: 50, MaxBackups: 3}
}
