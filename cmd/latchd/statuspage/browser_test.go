package statuspage

import (
	"context"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/latch-cni/latch/shared/testenv"
)

// A browser shows the page: it parses, and the policy of its content lets its own style be applied.
func TestPageInABrowser(t *testing.T) {
	browser := ""
	for _, name := range []string{"chromium-headless-shell", "chromium", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			browser = path
			break
		}
	}
	if browser == "" {
		testenv.Missing(t, "needs a browser: hack/setup")
	}
	s := httptest.NewServer(Handler(newNode(t)))
	defer s.Close()
	dir := t.TempDir()
	picture := filepath.Join(dir, "page.png")
	visit := func(args ...string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		c := exec.CommandContext(ctx, browser, append([]string{"--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--user-data-dir=" + dir,
			"--window-size=1280,900"}, append(args, s.URL)...)...)
		var complaints strings.Builder
		c.Stderr = &complaints
		out, err := c.Output()
		if err != nil {
			t.Fatalf("%s: %v: %s", browser, err, &complaints)
		}
		if strings.Contains(complaints.String(), "Content Security Policy") {
			t.Errorf("the page breaks its own policy: %s", &complaints)
		}
		return string(out)
	}
	dom := visit("--dump-dom", "--enable-logging=stderr")
	for _, want := range []string{`<table id="pods">`, "<td>shop/db</td>", `<table id="policies">`, "<td>10.0.0.1:40000</td>"} {
		if !strings.Contains(dom, want) {
			t.Errorf("no %q in\n%s", want, dom)
		}
	}
	visit("--screenshot=" + picture)
	if st, err := os.Stat(picture); err != nil || st.Size() < 10_000 {
		t.Errorf("the picture is empty: %v, %v", st, err)
	}
	if keep := os.Getenv("LATCH_PICTURE"); keep != "" {
		raw, err := os.ReadFile(picture)
		if err == nil {
			err = os.WriteFile(keep, raw, 0o600)
		}
		if err != nil {
			t.Error(err)
		}
	}
}
