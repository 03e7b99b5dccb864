package plugin

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

func TestOpenLogAppendsOneJSONObjectALine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "latch.log")
	for range 2 {
		log, done := openLog(path, slog.LevelInfo)
		log.Debug("below the level")
		log.Info("add", "pod", "shop/web")
		done()
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := 0
	for line := range bytes.Lines(data) {
		var entry map[string]any
		if err := json.Unmarshal(line, &entry); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		if entry["pod"] != "shop/web" {
			t.Errorf("line %q lacks the pod", line)
		}
		lines++
	}
	if lines != 2 {
		t.Errorf("%d lines, want 2", lines)
	}
}

func TestOpenLogWithoutFileStillLogs(t *testing.T) {
	dir := t.TempDir()
	log, done := openLog(dir, slog.LevelError) // a folder cannot be opened for writing
	defer done()
	if log == nil {
		t.Fatal("no logger")
	}
}

func TestLogIsPutAsideOnceItIsLarge(t *testing.T) {
	path := filepath.Join(t.TempDir(), "latch.log")
	if err := os.WriteFile(path, make([]byte, maxLogSize), 0o640); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			log, done := openLog(path, slog.LevelInfo)
			defer done()
			log.Info("add")
		})
	}
	wg.Wait()
	current, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	aside, err := os.Stat(path + ".1")
	if err != nil {
		t.Fatal(err)
	}
	if current.Size() >= maxLogSize || aside.Size() < maxLogSize {
		t.Errorf("sizes %d and %d, want the large file aside and kept", current.Size(), aside.Size())
	}
}
