package metrics

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"sigs.k8s.io/yaml"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/cmd/latchd/observe/health"
	"github.com/latch-cni/latch/cmd/latchd/observe/reference"
	"github.com/latch-cni/latch/shared/enforce"
)

// everything is a registry in which no metric is missing.
func everything(t *testing.T) *ground {
	g := newGround(t, DetailIdentifier)
	g.slot(5, "t1")
	g.count(5, bpf.ReasonPolicy, 0, 1)
	g.count(5, bpf.ReasonPolicy, 1, 1)
	g.tables = []enforce.Table{{Table: bpf.TableFlows4}, {Table: bpf.TableFrags}}
	g.Observer().Diverged("eth1: to_pod was not in force")
	return g
}

func TestNamesAreByConvention(t *testing.T) {
	g := everything(t)
	w := httptest.NewRecorder()
	g.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("scrape: %d %s", w.Code, w.Body)
	}
	problems, err := promlint.New(strings.NewReader(w.Body.String())).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "latch_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}

// own are our metrics, by name.
func (g *ground) own() map[string]*dto.MetricFamily {
	own := g.gather()
	maps.DeleteFunc(own, func(name string, _ *dto.MetricFamily) bool { return !strings.HasPrefix(name, "latch_") })
	return own
}

func TestReference(t *testing.T) {
	own := everything(t).own()
	var b strings.Builder
	b.WriteString("| metric | type | labels | meaning |\n|---|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(own)) {
		f := own[name]
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, "`"+l.GetName()+"`")
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", name, strings.ToLower(f.GetType().String()), strings.Join(labels, " "), f.GetHelp())
	}
	reference.Check(t, "metrics.md", "metrics", b.String())

	var of []string
	for _, k := range kinds {
		of = append(of, k.kind)
	}
	reference.Mentions(t, "metrics.md", "Kinds of divergences", slices.Compact(of)...) // one may be said in several ways
	of = nil
	for _, s := range health.States() {
		of = append(of, string(s))
	}
	reference.Mentions(t, "metrics.md", "States of attachments", of...)
	of = []string{tableFull}
	for _, e := range bpf.Ends() {
		of = append(of, e.String())
	}
	reference.Mentions(t, "metrics.md", "Causes of evictions", of...)
}

// What alerts and dashboards ask for is there.
func TestMonitoringAsksForMetricsThatExist(t *testing.T) {
	own := everything(t).own()
	dir := filepath.Join(reference.Root(t), "conf", "monitoring")
	files, err := os.ReadDir(dir)
	if err != nil || len(files) < 2 {
		t.Fatalf("%v: %d files", err, len(files))
	}
	for _, f := range files {
		raw, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		var content any
		switch filepath.Ext(f.Name()) {
		case ".yaml":
			err = yaml.UnmarshalStrict(raw, &content)
		case ".json":
			err = json.Unmarshal(raw, &content)
		}
		if err != nil {
			t.Errorf("%s: %v", f.Name(), err)
		}
		asked := regexp.MustCompile(`\blatch_[a-z0-9_]+`).FindAllString(string(raw), -1)
		if len(asked) == 0 {
			t.Errorf("%s asks for nothing", f.Name())
		}
		for _, name := range asked {
			base := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")
			if h := own[base]; own[name] == nil && (h == nil || h.GetType() != dto.MetricType_HISTOGRAM) {
				t.Errorf("%s asks for %s, which there is not", f.Name(), name)
			}
		}
	}
}
