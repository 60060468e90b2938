// SPDX-License-Identifier: LGPL-2.1-only

package wqprom_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"wq.example/wq"
	"wq.example/wq/wqprom"
)

// scrape returns what Prometheus would read.
func scrape(queues ...*wq.Queue) (status int, text string) {
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(wqprom.New(queues...))
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).
		ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	return answer.Code, answer.Body.String()
}

// samples returns the lines of a text: a sample's value, or 0 for a comment.
func samples(t *testing.T, text io.Reader) map[string]float64 {
	t.Helper()
	made := make(map[string]float64)
	for lines := bufio.NewScanner(text); lines.Scan(); {
		line := lines.Text()
		if strings.Contains(line, "wq_priority_ready_keys") ||
			strings.Contains(line, "wq_queue_info") {
			continue
		}
		if strings.HasPrefix(line, "#") {
			made[line] = 0
			continue
		}
		name, number, _ := strings.Cut(line, " ")
		value, err := strconv.ParseFloat(number, 64)
		if err != nil {
			t.Fatal(err)
		}
		made[name] = value
	}
	return made
}

// WQCTL is the path of wqctl.
func TestMetricsAreThoseOfWqctl(t *testing.T) {
	q, err := wq.OpenFile("go-wqprom", os.O_RDWR|os.O_CREATE, 0o600, wq.Attrs{
		MaxKeys: 100, Lease: time.Hour, Slack: time.Second,
		Limiter: wq.Exponential(time.Hour, time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	defer wq.Unlink("go-wqprom")
	// Each counter gets a value of its own.
	for i := 0; i < 20; i++ {
		q.Add(fmt.Sprint(i % 15))
	}
	for i := 0; i < 7; i++ {
		it, err := q.TryGet()
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case i < 2:
			it.Done()
		case i < 3:
			it.GiveUp(errors.New("failed"))
		case i < 6:
			it.Retry(nil)
		}
		// The last one stays processing.
	}
	q.Cancel("14")
	q.Pause(wq.Gets, -1)
	defer q.Resume(wq.Gets)

	status, text := scrape(q)
	if status != 200 {
		t.Fatalf("expected the status 200, got %d: %s", status, text)
	}
	got := samples(t, strings.NewReader(text))
	out, err := exec.Command(os.Getenv("WQCTL"), "metrics", "go-wqprom").Output()
	if err != nil {
		t.Fatal(err)
	}
	want := samples(t, strings.NewReader(string(out)))
	if len(want) < 100 {
		t.Fatalf("expected at least 100 lines of wqctl, got %d", len(want))
	}
	for line, value := range want {
		have, ok := got[line]
		if !ok {
			t.Errorf("expected the line %q", line)
		}
		// Times go on, and wqctl does not count itself.
		if strings.HasSuffix(line, "seconds{name=\"go-wqprom\"}") && have > 0 {
			have = max(have, min(value, have+60))
		}
		if have != value {
			t.Errorf("%s: expected %v, got %v", line, value, have)
		}
	}
	for line := range got {
		if _, ok := want[line]; !ok {
			t.Errorf("wqctl has no line %q", line)
		}
	}
}

func TestAQueueThatIsClosedIsAnErrorOfTheCollection(t *testing.T) {
	q, err := wq.New(wq.Attrs{})
	if err != nil {
		t.Fatal(err)
	}
	if status, text := scrape(q); status != 200 {
		t.Errorf("expected the status 200, got %d: %s", status, text)
	}
	q.Close()
	if status, _ := scrape(q); status != 500 {
		t.Errorf("expected the status 500, got %d", status)
	}
}

func ExampleNew() {
	q, err := wq.New(wq.Attrs{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer q.Close()
	q.Add("alice")
	registry := prometheus.NewRegistry()
	registry.MustRegister(wqprom.New(q))
	families, err := registry.Gather()
	if err != nil {
		fmt.Println(err)
	}
	for _, family := range families {
		if family.GetName() == "workqueue_depth" {
			fmt.Println(family.GetName(), family.Metric[0].GetGauge().GetValue())
		}
	}
	// Output: workqueue_depth 1
}
